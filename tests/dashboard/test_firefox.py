"""The dashboard in a second engine: the first screen, a table, the timeline."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dashboard.firefox import FIREFOX, Firefox, opened


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    if FIREFOX is None:
        pytest.skip("no Firefox: install firefox-esr or firefox")
    pytest.importorskip("tornado")
    with opened(tmp_path_factory.mktemp("profile")) as page:
        yield page


def test_firefox_shows_and_moves_what_chromium_does(
    firefox: Firefox, address: str, folder: Path
) -> None:
    firefox.goto(f"{address}/")
    firefox.until("document.querySelectorAll('.rank-bar').length === 2")
    firefox.until("document.querySelector('main .main-svg')")
    firefox.goto(f"{address}/kernel_top")
    firefox.until("document.querySelector('.ag-row .ag-cell-value')")
    assert "gemm" in firefox.evaluate("document.querySelector('main').innerText")
    firefox.goto(f"{address}/timeline?ranks=1")
    firefox.until("window.htkHandle && htkHandle.count() > 0 && htkHandle.idle()")
    before = firefox.evaluate("htkHandle.view()")
    firefox.evaluate("document.querySelector('canvas.main').focus()")
    firefox.press("w")
    firefox.until(f"htkHandle.view().end - htkHandle.view().start < {before['end']}")
    firefox.evaluate("void htkHandle.search('gemm')")
    firefox.until("document.querySelector('.found').innerText.includes('events of')")
    firefox.evaluate("htkHandle.pin('1|streams|stream 7')")
    firefox.until("location.hash.includes('pins=')")
    assert firefox.errors == []
