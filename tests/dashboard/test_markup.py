"""What a page is sent as: elements as data, charts and tables when they come near the window."""

import json
from collections.abc import Iterator
from typing import Any

import dash_mantine_components as dmc
import pytest
from dash import dcc, html

from htk.dashboard.markup import Markup, compact_components
from tests.dashboard.conftest import go, idle, settled, until

_THERE = """() => ({
  charts: document.querySelectorAll('main figure.plot .main-svg').length > 0,
  undrawn: [...document.querySelectorAll('main figure.plot')].filter(
    f => !f.querySelector('.main-svg')).length,
  unmade: document.querySelectorAll('main .nearby:empty').length,
})"""


@pytest.fixture
def low(page: Any) -> Iterator[Any]:
    """A window that shows a small part of a page."""
    usual = page.viewport_size
    page.set_viewport_size({**usual, "height": 300})
    yield page
    page.set_viewport_size(usual)


def test_elements_are_data_and_components_keep_their_places() -> None:
    button = html.Button("press", id="press")
    group = dmc.Group([html.B("bold"), dmc.Select(id="choice")])
    page = html.Div([html.P(["a", 1]), button, dcc.Link("go", href="/x"), group], className="c")
    made = compact_components(page)
    assert isinstance(made, Markup)
    paragraph = {"tag": "p", "props": {}, "inside": ["a", 1]}
    link = {"tag": "link", "props": {"href": "/x"}, "inside": "go"}
    inside = [paragraph, {"live": 0}, link, {"live": 1}]
    assert made.tree == {"tag": "div", "props": {"className": "c"}, "inside": inside}
    kept, own = made.children
    assert kept is button
    bold = {"tag": "b", "props": {}, "inside": "bold"}
    assert own.children.tree == [bold, {"live": 0}] and own.children.children[0].id == "choice"
    assert group.children[0].children == "bold", "what was given may be kept for another visit"
    assert compact_components(made).children == made.children, "twice is as once"


def test_what_needs_no_markup_stays_as_it_is() -> None:
    button = html.Button("press", id="press")
    assert (
        compact_components("text") == "text"
        and compact_components(None) is None
        and compact_components(button) is button
    )


def test_charts_and_tables_are_made_when_they_come_near(low: Any, address: str) -> None:
    low.goto(f"{address}/kernels")
    until(low, f"() => ({_THERE})().charts")
    idle(low)
    begin = low.evaluate(_THERE)
    assert begin["undrawn"] and begin["unmade"], "the page is longer than the window"
    tables, links = (low.locator(f"main {what}").count() for what in (".nearby", "[data-table]"))
    assert links == 3 * tables, "what a table can be exported to is there before it"
    last = low.locator("main .nearby").last
    last.scroll_into_view_if_needed()
    last.locator(".ag-cell-value").first.wait_for()


def test_all_of_a_page_is_there_when_it_is_printed(low: Any) -> None:
    filled(low, "/kernels")
    assert low.evaluate(_THERE)["unmade"]
    until(low, "() => Object.keys(window.dash_ag_grid.AgGrid).length > 0")  # fetched
    printed = low.evaluate(
        f"() => {{ dispatchEvent(new Event('beforeprint')); return ({_THERE})(); }}"
    )
    assert printed == {"charts": True, "undrawn": 0, "unmade": 0}


def test_parts_in_sight_are_asked_for_first_and_all_in_the_end(low: Any, address: str) -> None:
    """Two at once, of which the server makes one after the other."""
    low.goto(f"{address}/sql")
    idle(low)
    held: list[Any] = []
    is_held = True

    def hold(route: Any) -> None:
        if is_held and '"type":"part"' in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    low.route(lambda url: "_dash-update-component" in url, hold)
    low.evaluate("window.htkVisit('/kernels?ranks=1')")
    until(low, "() => document.querySelectorAll('main .part').length > 3")
    low.wait_for_timeout(500)
    is_held = False
    begin = [part_of(route.request) for route in held]
    for route in held:
        route.continue_()
    until(low, "() => [...document.querySelectorAll('main .part')].every(p => p.childElementCount)")
    first, second = (json.loads(text)["part"] for text in low.evaluate(_PARTS)[:2])
    low.unroute_all()
    assert begin == [first, second]


_PARTS = "[...document.querySelectorAll('main .part')].map(p => p.id)"


def part_of(request: Any) -> str:
    """Return the name of the part that a request is for."""
    return str(json.loads(request.post_data)["inputs"][0]["id"]["part"])


def test_keys_make_a_table_and_go_on_into_it(low: Any) -> None:
    filled(low, "/kernels")
    low.evaluate("[...document.querySelectorAll('main .nearby:empty')].at(-1).focus()")
    until(low, "() => !!document.activeElement.querySelector('.ag-cell-value')")
    low.keyboard.press("Tab")
    until(low, "() => !!document.activeElement.closest('.nearby .ag-root-wrapper')")


def filled(page: Any, path: str) -> None:
    """All parts of a page are there, and a chart; the page is seen from its top."""
    page.evaluate("scrollTo(0, 0)")
    go(page, "/sql")  # from elsewhere, so that nothing of it is there
    go(page, path)
    until(page, f"() => ({_THERE})().charts")
    parts = "[...document.querySelectorAll('main .part')]"
    until(page, f"() => {parts}.every(p => p.childElementCount)")
    idle(page)


def test_what_was_drawn_before_comes_with_the_page(page: Any, address: str) -> None:
    """The first visit fills the parts one by one; a later one has all that could be answered."""
    page.goto(f"{address}/sql")
    first, asked = visited(page, "/kernels?ranks=0&name=gem")
    assert len(asked) > 3 and "gemm" in first
    second, asked = visited(page, "/kernels?ranks=0&name=gem")
    assert not asked, "what was not recorded was said with the page, too"
    assert second == first
    _, asked = visited(page, "/kernels?ranks=0&name=gemm")
    assert asked, "what was drawn under other filters is no answer"


def visited(page: Any, path: str) -> tuple[str, list[str]]:
    """Return the sentences and the charts' words of a page, and the requests for its parts."""
    go(page, "/sql")
    asked: list[str] = []

    def note(request: Any) -> None:
        if '"type":"part"' in (request.post_data or ""):
            asked.append(part_of(request))

    page.on("request", note)
    go(page, path)
    settled(page)
    page.remove_listener("request", note)
    what = "main h1, main h2, main p, main .main-svg text"
    text = f"[...document.querySelectorAll('{what}')].map(e => e.textContent)"
    return page.evaluate(f"{text}.join('|')"), asked
