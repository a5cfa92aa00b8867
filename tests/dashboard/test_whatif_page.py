"""What-ifs and SQL in a real browser, on a simulated job whose step replays."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from htk.dashboard import whatif_plots
from htk.dashboard.edits import PRESETS, saved_of, write_scenarios
from htk.recording.simulate.config import Config
from tests.dashboard.conftest import (
    made,
    serving_simulated,
    settled,
    slow_line,
    typed,
    until,
    visiting,
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    config = Config(
        model="gpt3-126m", layers=4, nodes=1, gpus_per_node=2, micro_batch=8, steps=4, seed=5
    )
    with serving_simulated(config, tmp_path_factory.mktemp("job") / "run") as address:
        yield address


@pytest.fixture(scope="module")
def visitor(browser: Any, job: str) -> Iterator[tuple[Any, list[str]]]:
    """A page of this server, so that those of the other stay where they are."""
    yield from visiting(browser, job)


def test_a_change_is_answered_in_place_and_lives_in_the_address(page: Any, job: str) -> None:
    page.goto(f"{job}/whatif")
    settled(page)
    assert page.inner_text("main .mark.strong") == "trusted"
    assert page.locator("main .js-plotly-plot").count() == 2, "bounds and map are there first"
    thumb = page.locator("[aria-label='micro-batch']")
    thumb.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#whatif-answer .tile")
    until(page, "() => location.search.includes('o.batch=2x')")
    shown = page.inner_text("#whatif-answer")
    for words in ("step time", "(90 %)", "tokens/s", "Assumed", "in proportion"):
        assert words in shown


def test_the_old_answer_stays_until_the_new_one_is_there(page: Any, job: str) -> None:
    page.goto(f"{job}/whatif?o.batch=2x")
    settled(page)
    with slow_line(page, 2000):
        page.locator("[aria-label='micro-batch']").focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(1000)  # longer than the sign that something is under way waits
        assert "step time" in page.inner_text("#whatif-answer")
    until(page, "() => location.search.includes('o.batch=4x')")
    settled(page)


def test_scenarios_are_saved_compared_and_shared_by_link(page: Any, job: str) -> None:
    page.goto(f"{job}/whatif?o.network=bandwidth%3D2x")
    page.wait_for_selector("#whatif-answer .tile")
    typed(page, "scenario-name", "fat ~ pipe")
    page.click("#scenario-save")
    made(page, "#whatif-scenarios .ag-row")
    until(page, "() => location.search.includes('o.saved')")
    page.goto(page.url)
    made(page, "#whatif-scenarios .ag-row")
    table = "document.querySelector('#whatif-scenarios .ag-root')?.innerText"
    until(page, f"() => {table}?.includes('fat pipe: network bandwidth=2x')")
    with page.expect_download() as got:
        page.click("#whatif-scenarios >> text=CSV")
    assert "fat pipe" in Path(got.value.path()).read_text()
    page.click("[aria-label='forget fat pipe']")
    until(page, "() => !location.search.includes('o.saved')")


def test_what_is_saved_stays_whatever_is_asked_next(page: Any, job: str) -> None:
    page.goto(f"{job}/whatif?o.network=bandwidth%3D2x")
    page.wait_for_selector("#whatif-answer .tile")
    thumb = page.locator("[aria-label='micro-batch']")
    with slow_line(page, 700):
        page.evaluate("document.querySelector('#scenario-save').click()")
        thumb.press("ArrowRight")
    made(page, "#whatif-scenarios .ag-row")
    until(page, "() => /o.batch=2x.*o.saved=scenario/.test(location.search)")


def test_what_cannot_be_is_said(page: Any, job: str) -> None:
    page.goto(f"{job}/whatif?o.world=none")
    page.wait_for_selector("#whatif-answer [role=alert]")
    words = "nodes × GPUs: a positive whole number was expected. The answer is without it."
    assert page.inner_text("#whatif-answer [role=alert]") == words


def test_a_wrong_field_is_its_own(page: Any, job: str) -> None:
    """It says at its place what is expected; what the other fields ask is answered all the same."""
    page.goto(f"{job}/whatif?o.batch=2x")
    page.wait_for_selector("#whatif-answer .tile")
    tiles = page.inner_text("#whatif-answer .tiles")
    for name, label in (("world", "nodes × GPUs"), ("price", "price of a GPU-hour")):
        field = page.get_by_label(label)
        field.fill("banana")
        at_field = page.locator(f'.field-error[id*="{name}"]')
        at_field.get_by_text("number was expected").wait_for()
        until(page, "t => document.querySelector('#whatif-answer .tiles')?.innerText === t", tiles)
        field.fill("")
        until(page, "() => ![...document.querySelectorAll('.field-error')].some(e => e.innerText)")


def test_presets_can_be_saved_as_scenarios() -> None:
    """The signs that part scenarios stand in no preset."""
    for _, name, value in PRESETS:
        assert saved_of(write_scenarios([("kept", ((name, value),))])) == [
            ("kept", ((name, value),))
        ]


def test_a_query_is_answered_and_lives_in_the_address(page: Any, job: str) -> None:
    page.goto(f"{job}/sql")
    typed(page, "sql-text", "select rank, count(*) as n from kernels group by rank order by rank")
    page.click("#sql-run")
    page.wait_for_selector("#sql-answer .ag-row")
    until(page, "() => location.search.includes('o.query')")
    page.goto(page.url)
    page.wait_for_selector("#sql-answer .ag-row")
    typed(page, "sql-text", "select * from read_csv('/etc/passwd')")
    page.click("#sql-run")
    page.wait_for_selector("#sql-answer [role=alert]")
    assert "disabled" in page.inner_text("#sql-answer [role=alert]")


def test_intervals_are_drawn_where_they_lie() -> None:
    """Bars begin at the low end and reach the high one, 50 % within 90 %; dots are the steps."""
    ends = {"lo90": 280, "lo50": 300, "hi50": 330, "hi90": 360}
    row = {f"step_time_ns_{end}": value * 10**6 for end, value in ends.items()}
    row |= {"step_time_ns": 312 * 10**6, "measured_step_time_ns": 334 * 10**6}
    larger = {k: 2 * v for k, v in row.items()} | {"measured_step_time_ns": 334 * 10**6}
    rows = [
        {"whatif": "hybrid: sharding hybrid_shard", **row},
        {"whatif": "no fit", **dict.fromkeys(row)},
        {"whatif": "big: batch 2x", **larger},
    ]
    fig = whatif_plots.draw_intervals(rows, False)
    wide, narrow, dots = fig.data
    assert list(wide.y) == list(narrow.y) == list(dots.y) == ["hybrid", "big"]
    assert list(wide.base) == [280, 560] and list(wide.x) == [80, 160]
    assert list(narrow.base) == [300, 600] and list(narrow.x) == [30, 60]
    assert list(dots.x) == [312, 624]
    assert fig.layout.shapes[0].x0 == fig.layout.shapes[0].x1 == 334
