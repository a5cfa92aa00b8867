"""Pictures of every page of the dashboard, made of the samples.

    python docs/screenshots.py [PAGE…]                   as the docs show them: docs/img/
    python docs/screenshots.py --into FOLDER [PAGE…]     whole pages, on every screen
    python docs/screenshots.py --beside BEFORE AFTER     AFTER/beside.html: two such folders

To compare two versions, run the second command with each on PYTHONPATH, then the third. `--of PATH`
takes another recording than the sample. Needs playwright and a Chromium (`HTK_CHROMIUM`, or one on
the path). Fails when the pictures of the docs exceed 3 MB together.
"""

import argparse
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from waitress.server import create_server

from htk.answers.output.tokens import css_variables
from htk.dashboard.app import create_app
from htk.dashboard.pages import load_pages
from htk.dashboard.runs import Runs
from htk.faces.notebook.session_card import render_session_card
from htk.faces.report.content import gather_report
from htk.faces.report.page import render_report_page as report_page
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_traces"
FOLDER = Path(__file__).parent / "img"
MOST_BYTES = 3_000_000
QUALITY = 64
DESK, WIDE, PHONE = (1440, 900), (1920, 1080), (390, 844)
_FILLED = """() => !document.querySelector('#reading-bar')
    && [...document.querySelectorAll('main .part')].every(p => p.childElementCount)
    && [...document.querySelectorAll('main .dash-graph')].every(
        g => g.querySelector('.main-svg') || g.getBoundingClientRect().top > innerHeight)"""
# Tables and plots are drawn when they come into view.
_SEEN = """() => [...document.querySelectorAll('main .grid, main .dash-graph')].every(part => {
  const { top, bottom } = part.getBoundingClientRect();
  return bottom < 0 || top > innerHeight || part.querySelector('.ag-cell-value, .main-svg');
})"""
# What is asked of a page that shows nothing unasked, and pages that are of no module.
ADDRESSES = {
    "compare": "compare?o.base=0&o.new=4",
    "whatif": "whatif?o.batch=2x",
    "job": "job?run=sample_traces/operation_rows/slow_worker.parquet",
    "sql": "sql?o.query=select rank, step, gpu_period_ns from step_times order by 3 desc",
}
MORE = {
    "start": "runs",
    "question": "kernel_top",
    "hang": "?run=sample_traces/flight_recorder/hang_missing_rank_v2.10",
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--into", type=Path, metavar="FOLDER")
    parser.add_argument("--beside", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--of", default=SAMPLES / "simulated/llama2-7b", metavar="PATH")
    parser.add_argument("pages", nargs="*")
    args = parser.parse_args(arguments)
    if args.beside:
        return beside(*args.beside)
    trace = open_trace(args.of)
    chosen = {k: v for k, v in addresses().items() if not args.pages or k in args.pages}
    if args.into is None:
        shoot(trace, chosen, FOLDER, [DESK], full_page=False)
        total = sum(f.stat().st_size for f in FOLDER.iterdir())
        print(f"{len(list(FOLDER.iterdir()))} pictures, {total / 1e6:.2f} MB", file=sys.stderr)
        return int(total > MOST_BYTES)
    documents(trace, args.into)
    for name in ("report", "card"):
        if not args.pages or name in args.pages:
            chosen[name] = (args.into / f"{name}.html").resolve().as_uri()
    shoot(trace, chosen, args.into, [DESK, WIDE, PHONE], full_page=True)
    return 0


def addresses() -> dict[str, str]:
    """Return the address of every page, by its name."""
    shown = [page for page in load_pages().values() if not page.needs_history]
    paths = {page.path or "overview": page.path for page in shown}
    return {name: ADDRESSES.get(path, path) for name, path in paths.items()} | MORE


def documents(trace: Trace, folder: Path) -> None:
    """Write the report and the notebook's card, which stand beside the dashboard's pages."""
    folder.mkdir(parents=True, exist_ok=True)
    report = gather_report(trace, title="Report", command="htk report")
    (folder / "report.html").write_text(report_page(report))
    schemes = "".join(
        f"@media (prefers-color-scheme: {name}) {{ :root {{ {css_variables(dark=name == 'dark')} "
        f"color-scheme: {name} }} }}"
        for name in ("light", "dark")
    )
    body = "<style>body { background: Canvas; color: CanvasText }</style>" + render_session_card(
        trace
    )
    (folder / "card.html").write_text(f"<meta charset='utf-8'><style>{schemes}</style>{body}")


def shoot(
    trace: Trace,
    pages: dict[str, str],
    folder: Path,
    screens: list[tuple[int, int]],
    *,
    full_page: bool,
) -> None:
    """Take each page on each screen, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    with served(trace) as address, sync_playwright() as p:
        chromium = os.environ.get("HTK_CHROMIUM") or shutil.which("chromium")
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width, height in screens:
            size = f"-{width}" if full_page else ""
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page = context.new_page()
                for name, path in pages.items():
                    page.goto(path if "://" in path else f"{address}/{path}")
                    target = folder / f"{name}{size}-{scheme}.jpg"
                    taken(page, target, full_page, served="://" not in path)
                context.close()
        browser.close()


@contextmanager
def served(trace: Trace) -> Iterator[str]:
    """Serve a recording, and the folder of all samples to choose from."""
    server = create_server(
        create_app(Runs([SAMPLES], trace=trace)).server, host="127.0.0.1", port=0, threads=8
    )
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


def taken(page: Any, path: Path, full_page: bool, *, served: bool) -> None:
    """Take a picture, when nothing more is being fetched or drawn."""
    if served:
        page.wait_for_selector("main h1", timeout=60_000)
        for _ in range(300):
            if page.evaluate(_FILLED):
                break
            page.wait_for_timeout(200)
    top = 0
    while full_page and top < page.evaluate("() => document.documentElement.scrollHeight"):
        page.evaluate("top => window.scrollTo(0, top)", top)
        for _ in range(50):
            page.wait_for_timeout(100)
            if page.evaluate(_SEEN):
                break
        top += 600
    page.evaluate("() => window.scrollTo(0, 0)")
    page.wait_for_load_state("networkidle", timeout=60_000)
    page.wait_for_timeout(1500)
    page.screenshot(path=path, type="jpeg", quality=QUALITY, full_page=full_page)


def beside(before: Path, after: Path) -> int:
    """Write a page that shows the pictures of two folders in pairs; those that differ first."""
    names = sorted({f.name for folder in (before, after) for f in folder.glob("*.jpg")})
    pairs = [(name, before / name, after / name) for name in names]
    changed = [p for p in pairs if not (p[1].exists() and p[2].exists()) or differ(*p[1:])]
    rows = []
    for name, old, new in [*changed, *(p for p in pairs if p not in changed)]:
        note = "" if (name, old, new) in changed else " (the same)"
        cells = "".join(
            f"<td><img src='{escape(f.resolve().as_uri())}' alt='{escape(name)}' loading='lazy'>"
            if f.exists()
            else "<td>none"
            for f in (old, new)
        )
        rows.append(f"<tr><th colspan='2'>{escape(name)}{note}<tr>{cells}")
    style = "td { width: 50%; vertical-align: top } img { max-width: 100% } table { width: 100% }"
    target = after / "beside.html"
    target.write_text(
        f"<!doctype html><meta charset='utf-8'><style>{style}</style><table>{''.join(rows)}</table>"
    )
    print(f"{len(changed)} of {len(pairs)} differ: {target}", file=sys.stderr)
    return 0


def differ(old: Path, new: Path) -> bool:
    return old.read_bytes() != new.read_bytes()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
