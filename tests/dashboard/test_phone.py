"""Charts on a phone: labels that do not run together, and maps that keep their room."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from htk.analyses import find_analysis
from htk.dashboard.pages import load_pages
from htk.dashboard.runs import Runs
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import ROOT, new_tab
from tests.dashboard.conftest import serving, settled, until, watch
from tests.thinned import thinned


@pytest.fixture(scope="module")
def phone(browser: Any) -> Iterator[tuple[Any, str]]:
    trace = open_trace(ROOT / "sample_traces/simulated/llama2-7b", OpenOptions(cache=False))
    with serving(Runs([], trace=trace)) as address:
        page = new_tab(browser, viewport={"width": 390, "height": 844})
        wrong: list[str] = []
        watch(page, wrong)
        yield page, address
        page.close()
        assert wrong == []


def texts(page: Any, figure: str, axis: str) -> list[dict[str, Any]]:
    """Return the labels of an axis as they are drawn, each with its ends on the screen."""
    where = f"main figure[aria-label='{figure}']"
    until(page, "w => !!document.querySelector(w + ' [data-narrow] .main-svg')", where)
    found: list[dict[str, Any]] = page.evaluate(
        """([where, tick]) => [...document.querySelectorAll(`${where} .${tick} text`)].map(t => {
          const { left, right } = t.getBoundingClientRect();
          return { text: t.textContent, left, right };
        })""",
        [where, axis],
    )
    return found


def test_ranks_stand_apart(phone: tuple[Any, str]) -> None:
    page, address = phone
    page.goto(f"{address}/communication")
    settled(page)
    label = page.get_attribute("main figure", "aria-label")
    drawn = texts(page, label, "xtick")
    assert [d["text"] for d in drawn] == [str(rank) for rank in range(8)]
    for before, after in pairwise(drawn):
        assert before["right"] < after["left"], "they do not touch"
    bars = page.evaluate("() => [...document.querySelector('main .js-plotly-plot').data[0].x]")
    assert bars == [f"rank {rank}" for rank in range(8)], "what is clicked keeps its name"


def test_a_map_keeps_its_cells(phone: tuple[Any, str]) -> None:
    """Shardings in words, no scale beside the map, and each step within its cell."""
    page, address = phone
    page.goto(f"{address}/whatif")
    settled(page)
    drawn = texts(page, "Micro-batch × sharding", "ytick")
    assert {d["text"] for d in drawn} == {"DDP", "FSDP, hybrid", "FSDP (ZeRO-2)", "FSDP (ZeRO-3)"}
    cells = page.evaluate(
        """() => {
          const gd = document.querySelector(
            "main figure[aria-label='Micro-batch × sharding'] .js-plotly-plot");
          const wide = gd._fullLayout.xaxis._length;
          return { scale: gd.data[0].showscale, of: wide / gd.data[0].x.length,
            texts: [...gd.querySelectorAll('.textpoint text')].map(
              t => t.getBoundingClientRect().width) };
        }"""
    )
    assert cells["scale"] is False and len(cells["texts"]) == 20
    assert max(cells["texts"]) < cells["of"]
    within = page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert within, "nothing is wider than the phone"


PAGES = sorted({*load_pages()} - {"job"})  # which this recording has nothing of
MORE = ("runs", "kernel_top", "compare?o.base=0&o.new=4", "whatif?o.batch=2x", "nowhere")
WIDER = """() => [...document.querySelectorAll('body *')].filter(element => {
  const { width, right } = element.getBoundingClientRect();
  if (!width || right <= innerWidth + 1 || !element.checkVisibility({contentVisibilityAuto: true}))
    return false;
  const within = (box) => box.getBoundingClientRect().right <= innerWidth + 1
    && ['auto', 'scroll', 'hidden'].includes(getComputedStyle(box).overflowX);
  for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
    if (within(box)) return false; // it scrolls there, or is shortened
  return true;
}).map(element => `${element.tagName}.${element.className} ${element.textContent.slice(0, 40)}`)"""

DRAWN = """() => {
  window.dispatchEvent(new Event('beforeprint'));
  const all = (what, has) => [...document.querySelectorAll(`main ${what}`)].every(has);
  return window.store && !window.store.getState().isLoading
    && all('.part', p => p.childElementCount)
    && all('figure.plot', f => f.querySelector('.main-svg'))
    && all('.grid', g => g.querySelector('.ag-row .ag-cell-value'));
}"""


@pytest.mark.parametrize("path", thinned([*PAGES, *MORE]))
def test_no_page_is_wider_than_the_window(phone: tuple[Any, str], path: str) -> None:
    """Nothing sticks out of it, not even where the page would cut it off, filters neither."""
    page, address = phone
    page.goto(f"{address}/{path}")
    page.wait_for_selector("main h1, main .problem")
    until(page, DRAWN)
    assert page.evaluate(WIDER) == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    for pill in page.query_selector_all("header details.pick > summary"):
        pill.click()
        assert page.evaluate(WIDER) == [], pill.inner_text()
        pill.click()


def test_words_below_bars_stand_in_two_rows(phone: tuple[Any, str]) -> None:
    page, address = phone
    page.goto(f"{address}/operators")
    settled(page)
    figure = find_analysis("phase_breakdown").question
    drawn = texts(page, figure, "xtick")
    assert len(drawn) > 3
    for row in (drawn[::2], drawn[1::2]):
        for before, after in pairwise(row):
            assert before["right"] < after["left"], "they do not touch"


def test_names_take_half_of_a_narrow_table_at_most(phone: tuple[Any, str], browser: Any) -> None:
    """In a wide window, too, what is said of a kernel stands beside its name."""
    _, address = phone
    page = new_tab(browser, viewport={"width": 1280, "height": 900})
    page.goto(address)
    settled(page)
    table = "#page .halves .grid:has(.ag-pinned-left-header [col-id='name'])"
    page.locator(table).first.scroll_into_view_if_needed()
    until(page, "t => !!document.querySelector(t + ' [data-narrow] .ag-row')", table)
    until(
        page,
        """table => {
          const grid = document.querySelector(table + " [data-narrow]");
          const box = (cell) => grid.querySelector(cell).getBoundingClientRect();
          const first = box(".ag-header-viewport [col-id]"); // of what is said of a name
          return grid.clientWidth < 600 && box("[col-id='name']").width <= grid.clientWidth / 2 + 1
            && first.right <= grid.getBoundingClientRect().right;
        }""",
        table,
    )
    page.close()
