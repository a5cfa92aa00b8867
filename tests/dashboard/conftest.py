"""A server with a run of two ranks, and a browser that fails the test when a page complains."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from htk.dashboard.app import create_app
from htk.dashboard.runs import Runs
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import PATIENCE_MS, new_tab
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to choose from: two/ of two ranks, damaged/ of one broken file."""
    root = tmp_path_factory.mktemp("runs")
    (root / "two").mkdir()
    (root / "damaged").mkdir()
    for rank in (0, 1):
        events: list[Event] = [step(0, 1, 40), step(1, 41, 40)]
        for k in range(8):
            name = "gemm" if k % 2 else COMM
            length = 6 - rank if k % 2 else 6
            begin = 2 + 10 * k
            events += [op("aten::mm", begin, 3), launch(k + 1, begin + 1)]
            events += [kernel(name, begin + 2, length, k + 1)]
        write(root / "two" / f"rank{rank}.json", *events, **of_rank(rank, 2))
    (root / "damaged" / "rank0.json").write_text('{"traceEvents": "none"')
    return root


@contextmanager
def serving(runs: Runs) -> Iterator[str]:
    """Give the address of a real server of these runs, which are closed with it."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, create_app(runs).server, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        runs.close()


@contextmanager
def serving_simulated(config: Config, folder: Path) -> Iterator[str]:
    """Give the address of a real server of one simulated run."""
    simulate_job(config, folder)
    with serving(Runs([folder], trace=open_trace(folder, OpenOptions(cache=False)))) as address:
        yield address


@pytest.fixture(scope="session")
def address(folder: Path) -> Iterator[str]:
    runs = Runs(
        [folder], trace=open_trace(folder / "two", OpenOptions(cache=False)), upload_bytes=1 << 20
    )
    with serving(runs) as served:
        yield served


@pytest.fixture(scope="session")
def visitor(browser: Any, address: str) -> Iterator[tuple[Any, list[str]]]:
    """One page for all tests, so that the libraries are loaded once; and what it complained of."""
    yield from visiting(browser, address)


def visiting(browser: Any, address: str) -> Iterator[tuple[Any, list[str]]]:
    opened = new_tab(browser, viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    watch(opened, wrong)
    opened.goto(f"{address}/runs")
    opened.wait_for_selector("main h1")
    yield opened, wrong
    opened.close()


@pytest.fixture
def page(visitor: tuple[Any, list[str]]) -> Iterator[Any]:
    """A page that fails the test when it complains, or asks for anything from elsewhere."""
    opened, wrong = visitor
    wrong.clear()
    yield opened
    idle(opened)  # what it still waits for is its own, not the next test's
    assert wrong == []


def watch(page: Any, wrong: list[str]) -> None:
    """Notes errors and requests that leave the machine."""
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: wrong.append(str(e)))
    local = ("http://127.0.0.1", "data:", "blob:")
    page.on("request", lambda r: r.url.startswith(local) or wrong.append(r.url))


def until(page: Any, condition: str, argument: Any = None) -> None:
    """Waits for a condition; the page's own policy forbids the browser to do it by eval."""
    for _ in range(PATIENCE_MS // 50):
        if page.evaluate(condition, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition} ({argument})")


def shows(page: Any, text: str) -> None:
    until(page, "t => !!document.querySelector('main')?.innerText.includes(t)", text)


def idle(page: Any) -> None:
    """No callback is under way or due."""
    until(page, "() => window.store && !window.store.getState().isLoading")


def go(page: Any, path: str) -> None:
    """To another page as a link goes there, without loading the app anew."""
    page.evaluate(
        "path => { history.pushState({}, '', path);"
        " window.dispatchEvent(new CustomEvent('_dashprivate_pushstate')); }",
        path,
    )
    until(page, "v => document.querySelector('#page [data-view]')?.dataset.view === v", path)
    idle(page)


def settled(page: Any) -> None:
    """All parts of the page are there, plots are drawn and tables have rows, those below the window
    too, as before printing."""
    until(
        page,
        """() => {
          window.dispatchEvent(new Event('beforeprint'));
          const all = (what, has) => [...document.querySelectorAll(`main ${what}`)].every(has);
          return window.store && !window.store.getState().isLoading
            && document.querySelector('main .part') && all('.part', p => p.childElementCount)
            && all('figure.plot', f => f.querySelector('.main-svg'))
            && all('.grid', g => g.querySelector('.ag-row .ag-cell-value'))
            && !document.querySelector('main .dash-graph--pending');
        }""",
    )


def made(page: Any, what: str) -> None:
    """Something is there, even if it lies below the window: all is made before printing."""
    condition = (
        "w => { dispatchEvent(new Event('beforeprint')); return !!document.querySelector(w) }"
    )
    until(page, condition, what)


@contextmanager
def slow_line(page: Any, milliseconds: int) -> Iterator[None]:
    """Every answer takes so long at least."""
    session = page.context.new_cdp_session(page)
    line = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    session.send("Network.enable")
    session.send("Network.emulateNetworkConditions", {**line, "latency": milliseconds})
    try:
        yield
    finally:
        session.send("Network.emulateNetworkConditions", {**line, "latency": 0})
        session.detach()


def typed(page: Any, element: str, text: str) -> None:
    """Types into a field of the app, and waits until the app knows of it."""
    page.fill(f"#{element}", text)
    until(
        page,
        """([place, text]) => {
          const { layout, paths } = window.store.getState();
          return paths.strs[place].reduce((at, step) => at[step], layout).props.value === text;
        }""",
        [element, text],
    )
