"""The pages in a real browser: no error, nothing from outside, links that reopen the same view."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import new_tab
from tests.dashboard.conftest import go, idle, settled, shows, slow_line, until, watch

PAGES = ["", "kernels", "operators", "communication", "idle", "compare?o.base=0&o.new=1"]


def serious(page: Any) -> list[str]:
    """What axe finds that keeps people out."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{v['id']}: {v['nodes'][0]['html'][:200]}"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


def internal_words(page: Any) -> list[str]:
    """Return headings, labels and titles of axes that are names of the program, not words."""
    texts: list[str] = page.evaluate(
        """() => ['h1', 'h2', 'h3', 'label', '.ag-header-cell-text', '.legendtext', '.xtitle',
            '.ytitle'].flatMap(what => [...document.querySelectorAll(`main ${what}`)])
          .concat([...document.querySelectorAll('nav a')]).map(element => element.textContent)"""
    )
    assert len(texts) > 10
    internal = re.compile(r"[a-z]_[a-z]|\b(lo|hi)\d\d\b|(^| )--[a-z]|\bns/")
    return [text for text in texts if internal.search(text)]


def open_to_all(page: Any) -> None:
    """Nothing keeps people out, once tables have found their widths: they do in several goes."""
    for _ in range(20):
        if not (found := serious(page)):
            return
        page.wait_for_timeout(500)
    assert found == []


def test_the_first_screen(page: Any) -> None:
    go(page, "/")
    settled(page)
    shown = page.inner_text("main")
    for words in ("GPU step", "on the host", "Exposed communication", "Each rank's time"):
        assert words in shown
    assert "all 2 ranks" in shown, "what the numbers rest on"
    bars = page.evaluate(
        "[...document.querySelectorAll('.rank-bar')].map(bar =>"
        " [...bar.querySelectorAll('i')].map(piece => parseFloat(piece.style.width)))"
    )
    assert [sum(pieces) for pieces in bars] == pytest.approx([100, 100], abs=0.01)
    open_to_all(page)
    page.click("text=rank 1 >> visible=true")
    until(page, "() => location.search === '?ranks=1'")


@pytest.mark.parametrize("path", PAGES[1:])
def test_a_composed_page(page: Any, path: str) -> None:
    go(page, f"/{path}")
    settled(page)
    assert "Internal error" not in page.inner_text("main")
    assert page.locator("main .js-plotly-plot").count()
    assert internal_words(page) == []
    open_to_all(page)


def test_two_ranks_lie_side_by_side_and_move_together(page: Any) -> None:
    go(page, "/compare?o.base=0&o.new=1")
    settled(page)
    shows(page, "From base to new, a step")
    until(page, "() => window.htkTwins?.every(t => t.place.isConnected && t.handle.count() > 0)")
    page.evaluate("window.htkTwins[0].handle.go(20000, 50000)")
    until(page, "() => Math.abs(window.htkTwins[1].handle.view().start - 20000) < 5000")


def test_another_run_is_read_and_compared(page: Any, folder: Path) -> None:
    go(page, f"/compare?o.with={folder.name}/two")
    shows(page, "From base to new, a step")
    shows(page, "Both take the same time.")


def test_more_than_two_runs_stand_side_by_side(page: Any, folder: Path) -> None:
    """A row for each, the third chosen on the page and kept in the address."""
    two = f"{folder.name}/two"
    go(page, f"/compare?o.with={two}")
    shows(page, "From base to new, a step")
    page.get_by_role("textbox", name="and with").click()
    page.locator("[role=option]:visible", has_text="sample").click()
    until(page, "() => location.search.includes('o.more=sample')")
    shows(page, "Runs side by side")
    heading = page.get_by_role("heading", name="Runs side by side")
    table = heading.locator("..").locator(".ag-root")
    table.get_by_text("sample", exact=True).wait_for()
    names = table.locator(".ag-pinned-left-cols-container .ag-cell").all_inner_texts()
    assert len(names) == 3 and names[1:] == [two, "sample"]
    same = table.locator(".ag-center-cols-container .ag-row").nth(1).inner_text().split()
    assert "same" in same and "–" not in same


def test_not_recorded_is_said_and_what_is_missing(page: Any) -> None:
    go(page, "/memory")
    shows(page, "profile_memory=True")
    assert page.inner_text("main h1") == "Memory"


def test_a_question_has_a_page_of_its_own(page: Any) -> None:
    go(page, "/kernel_top?o.n=1")
    until(page, "() => document.querySelector('.ag-root')?.innerText.includes('others')")
    open_to_all(page)


def test_a_filter_holds_on_all_pages_and_lives_in_the_address(page: Any) -> None:
    go(page, "/time_breakdown")
    page.click(".pill >> text=Ranks")
    page.click("#filter-ranks")
    page.locator("[role=option]:visible", has_text="1").click()
    page.wait_for_selector(".pills .clear")
    until(page, "() => location.pathname + location.search === '/time_breakdown?ranks=1'")
    page.click("nav >> text=Idle")
    until(page, "() => location.pathname + location.search === '/idle?ranks=1'")
    settled(page)
    page.click(".pills .clear")
    until(page, "() => location.search === ''")


def test_a_late_answer_changes_nothing_elsewhere(page: Any) -> None:
    go(page, "/time_breakdown?ranks=0")
    with slow_line(page, 2000):
        with page.expect_request(lambda r: "changed.data" in (r.post_data or "")):
            page.click(".pills .clear")
        go(page, "/kernel_top?name=gemm")
    idle(page)
    assert page.evaluate("location.pathname + location.search") == "/kernel_top?name=gemm"


def test_a_link_reopens_the_same_view(page: Any, address: str) -> None:
    page.goto(f"{address}/kernels?name=gemm&ranks=1&o.sort_by=count")
    page.wait_for_selector(".ag-pinned-left-cols-container .ag-cell-value")
    idle(page)
    names = page.locator(".ag-pinned-left-cols-container").first.inner_text()
    assert names.split() == ["↗", "gemm"]
    assert page.inner_text(".pill.on >> text=gemm") == "gemm"
    assert page.locator(".pill.on").count() == 2


def test_two_visitors_do_not_see_each_others_filters(browser: Any, address: str) -> None:
    wrong: list[str] = []
    visitors = [new_tab(browser) for _ in range(2)]  # each in a context of its own
    for visitor, ranks in zip(visitors, ("0", "1"), strict=True):
        watch(visitor, wrong)
        visitor.goto(f"{address}/time_breakdown?ranks={ranks}")
    for visitor, ranks in zip(visitors, ("0", "1"), strict=True):
        visitor.wait_for_selector(".pill.on")
        assert visitor.inner_text(".pill.on b") == ranks
        visitor.close()
    assert wrong == []


def test_a_brushed_range_becomes_the_time_filter(page: Any) -> None:
    go(page, "/idle")
    settled(page)
    plot = page.locator(".js-plotly-plot .nsewdrag").first
    box = plot.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.move(box["x"] + box["width"] * 0.5, y)
    page.mouse.up()
    page.wait_for_selector(".pill.on")
    asked = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    assert asked["from"].endswith("ms") and asked["to"].endswith("ms")
    assert 0 < float(asked["from"][:-2]) < float(asked["to"][:-2])


def test_a_bad_filter_is_said_not_thrown(page: Any) -> None:
    go(page, "/kernel_top?steps=abc")
    page.wait_for_selector(".problem")
    assert "is not a list of numbers" in page.inner_text(".problem")


def test_rows_group(page: Any) -> None:
    go(page, "/kernel_top?o.per=rank")
    page.wait_for_selector(".ag-row")
    page.click("input[placeholder='group by …']")
    page.locator("[role=option]:visible", has_text="rank").click()
    until(
        page,
        "() => document.querySelector('.ag-header')?.innerText.includes('rows')"
        " && document.querySelectorAll('.ag-center-cols-container .ag-row').length === 2",
    )
    until(page, "() => location.search.includes('o.group.kernel_top=rank')")
    page.click(".pill >> text=Name")
    page.fill("#filter-name", "gemm")  # another filter keeps the grouping, and so does a link
    page.press("#filter-name", "Escape")
    until(page, "() => location.search.includes('name=gemm')")
    assert "o.group.kernel_top=rank" in page.evaluate("location.search")
    until(page, "() => document.querySelector('.ag-header')?.innerText.includes('rows')")
    page.reload()
    until(page, "() => document.querySelector('.ag-header')?.innerText.includes('rows')")
    idle(page)


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_plot_is_saved(page: Any, kind: str) -> None:
    go(page, "/kernel_top")
    page.wait_for_selector("figure.plot .main-svg")
    page.hover("figure.plot")
    with page.expect_download() as download:
        page.click(f"figure.plot [data-save={kind}]")
    assert download.value.suggested_filename == f"which-kernels-cost-most-gpu-time-.{kind}"


def test_dark_is_kept(page: Any) -> None:
    go(page, "/idle")
    page.click("#dark-switch", force=True)
    until(page, "() => document.documentElement.dataset.mantineColorScheme === 'dark'")
    until(page, "() => localStorage.getItem('dark') === 'true'")
    page.reload()
    until(page, "() => document.documentElement.dataset.mantineColorScheme === 'dark'")
    settled(page)
    open_to_all(page)
    page.click("#dark-switch", force=True)
    until(page, "() => document.documentElement.dataset.mantineColorScheme === 'light'")
    settled(page)  # the page is drawn anew


@pytest.mark.parametrize("width", [1280, 3840])
def test_nothing_sticks_out(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    go(page, "/operators")
    settled(page)
    until(page, "width => document.documentElement.scrollWidth === width", width)
    page.set_viewport_size({"width": 1280, "height": 900})
