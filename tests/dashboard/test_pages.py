"""The pages in a real browser: no error, nothing from outside, links that reopen the same view."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from htk import api
from htk.analyses import ANALYSES
from htk.dashboard.app import create_app
from htk.dashboard.runs import Runs
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

CHROMIUM = os.environ.get("HTK_CHROMIUM") or shutil.which("chromium")


COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def until(page: Any, condition: str, argument: Any = None) -> None:
    """Waits for a condition; the page's own policy forbids the browser to do it by eval."""
    for _ in range(200):
        if page.evaluate(condition, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {condition} ({argument})")


def shows(page: Any, text: str) -> None:
    until(page, "t => !!document.querySelector('main')?.innerText.includes(t)", text)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from werkzeug.serving import make_server

    folder = tmp_path_factory.mktemp("run")
    for rank in (0, 1):
        events: list[Event] = [step(0, 1, 40), step(1, 41, 40)]
        for k in range(8):
            events += [
                op("aten::mm", 2 + 10 * k, 3),
                launch(k + 1, 3 + 10 * k),
                kernel(
                    "gemm" if k % 2 else "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    4 + 10 * k,
                    6,
                    k + 1,
                ),
            ]
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    server = make_server(
        "127.0.0.1", 0, create_app(Runs(given=api.open(folder, cache=False))).server, True
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium: install it, or name it in HTK_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        opened = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test when it complains, or asks for anything from elsewhere."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    wrong: list[str] = []
    opened.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    opened.on("pageerror", lambda e: wrong.append(str(e)))
    local = ("http://127.0.0.1", "data:", "blob:")
    opened.on("request", lambda r: r.url.startswith(local) or wrong.append(r.url))
    yield opened
    opened.close()
    assert wrong == []


def test_the_first_screen(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".js-plotly-plot")
    assert "Where did the time go?" in page.inner_text("main")
    assert "2 of 2 ranks" in page.inner_text("main")


def test_every_analysis_has_a_page(page: Any, address: str) -> None:
    for name, entry in ANALYSES.items():
        page.goto(f"{address}/{name}")
        shows(page, entry.question)
        page.wait_for_selector(".ag-root, .problem, .empty", timeout=10_000)


def test_a_filter_holds_on_all_pages_and_lives_in_the_address(page: Any, address: str) -> None:
    page.goto(f"{address}/time_breakdown")
    page.fill("#filter-ranks", "1")
    page.press("#filter-ranks", "Enter")
    page.wait_for_selector(".chip")
    until(page, "() => location.pathname + location.search === '/time_breakdown?ranks=1'")
    page.click("nav summary >> text=kernels")
    page.click("nav >> text=kernel top")
    until(page, "() => location.pathname + location.search === '/kernel_top?ranks=1'")
    shows(page, "1 of 2 rank")
    page.click(".chip")
    until(page, "() => location.search === ''")
    shows(page, "2 of 2 ranks")


def test_a_bad_filter_is_said_not_thrown(page: Any, address: str) -> None:
    page.goto(f"{address}/kernel_top?steps=abc")
    page.wait_for_selector(".problem")
    assert "is no list of numbers" in page.inner_text(".problem")


def test_an_option_is_a_control(page: Any, address: str) -> None:
    page.goto(f"{address}/kernel_top?o.n=1")
    page.wait_for_selector(".ag-row")
    assert "others" in page.inner_text(".ag-root")


def test_dark_is_kept(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(".js-plotly-plot")
    page.click("#dark-switch")
    until(page, "() => document.documentElement.dataset.mantineColorScheme === 'dark'")


def test_no_path_leads_outside(address: str, tmp_path: Path) -> None:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    with pytest.raises(HTTPError):
        urlopen(f"{address}/assets/..%2f..%2fpyproject.toml")
