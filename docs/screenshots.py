"""Pictures of every page of the dashboard, light and dark, made of the samples: docs/img/.

    python docs/screenshots.py [PAGE…]

Needs playwright and a Chromium (`HTK_CHROMIUM`, or one on the path). Fails when the pictures of the
folder exceed 3 MB together.
"""

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from waitress.server import create_server

from htk.dashboard.app import create_app
from htk.dashboard.pages import composed
from htk.dashboard.runs import Runs
from htk.trace.opening import open_trace

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_traces"
FOLDER = Path(__file__).parent / "img"
MOST_BYTES = 3_000_000
SIZE = {"width": 1440, "height": 900}
QUALITY = 68
_FILLED = """() => !document.querySelector('#reading-bar')
    && [...document.querySelectorAll('main .part')].every(p => p.childElementCount)
    && [...document.querySelectorAll('main .dash-graph')].every(
        g => g.querySelector('.main-svg'))"""
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


def main(wanted: list[str]) -> int:
    FOLDER.mkdir(exist_ok=True)
    shown = [page for page in composed().values() if not page.needs_history]
    pages = {page.path or "overview": page.path for page in shown}
    pages = {name: ADDRESSES.get(path, path) for name, path in pages.items()} | MORE
    chosen = {name: path for name, path in pages.items() if not wanted or name in wanted}
    with served() as address, sync_playwright() as p:
        chromium = os.environ.get("HTK_CHROMIUM") or shutil.which("chromium")
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport=SIZE, color_scheme=scheme)
            page = context.new_page()
            for name, path in chosen.items():
                taken(page, f"{address}/{path}", FOLDER / f"{name}-{scheme}.jpg")
        browser.close()
    total = sum(f.stat().st_size for f in FOLDER.iterdir())
    print(f"{len(list(FOLDER.iterdir()))} pictures, {total / 1e6:.2f} MB", file=sys.stderr)
    return int(total > MOST_BYTES)


@contextmanager
def served() -> Iterator[str]:
    """The 8-rank sample, and the folder of all samples to choose from."""
    runs = Runs([SAMPLES], trace=open_trace(SAMPLES / "simulated/llama2-7b"))
    server = create_server(create_app(runs).server, host="127.0.0.1", port=0, threads=8)
    threading.Thread(target=server.run, daemon=True).start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


def taken(page: Any, address: str, path: Path) -> None:
    """A picture, when nothing more is being fetched or drawn."""
    page.goto(address)
    page.wait_for_selector("main h1", timeout=60_000)
    for _ in range(300):
        if page.evaluate(_FILLED):
            break
        page.wait_for_timeout(200)
    page.wait_for_load_state("networkidle", timeout=60_000)
    page.wait_for_timeout(1500)
    page.screenshot(path=path, type="jpeg", quality=QUALITY)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
