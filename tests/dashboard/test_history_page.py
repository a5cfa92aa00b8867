"""The page of runs over time, in a real browser: what changed, and two runs compared by clicks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest

from htk.dashboard.runs import Runs
from htk.traces.compare.baseline import RecordedBaseline, Series
from htk.verdicts.history.archive import History
from htk.verdicts.history.run_facts import RunFacts
from tests.dashboard.conftest import go, idle, serving, shows, until, visiting
from tests.htk.verdicts.history.recorded_runs import facts

RUNS, CHANGED = 24, 14
HOSTILE = "<img src=x onerror=alert(1)>"


def kept_run(number: int) -> RunFacts:
    """A run of a job whose steps take 6 % longer from run 14 on, since its gemm does."""
    rng = np.random.default_rng(number)
    step = (400e6 if number < CHANGED else 424e6) * rng.normal(1, 0.003)
    bare = facts(
        number,
        step_time_ns=round(step),
        step_time_ns_p10=step * 0.99,
        step_time_ns_p90=step * 1.01,
        mfu_pct=float(44 * 400e6 / step),
        exposed_comm_ns=round(31e6 * rng.normal(1, 0.05)),
        device_name="NVIDIA H100 80GB HBM3",
        world_size=64,
        name=HOSTILE if number == 3 else f"nightly-{number:02d}",
    )
    times = step * rng.normal(1, 0.001, (2, 10))
    kinds = {
        "time": {"total": Series(1.0, times[0], times[0][:2], times[0])},
        "kernel": {"gemm": Series(8.0, times[0] / 2, times[0][:2] / 2, times[0] / 2)},
    }
    return RunFacts(bare.row, RecordedBaseline(10, (0, 1), kinds), bare.summary)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    archive = History(str(folder))
    for number in range(RUNS):
        archive.add(kept_run(number), {"model": "llama-8b", "commit": f"{number // 2:07x}"})
        if number % 4 == 1:
            archive.mark(f"{number:016x}", "good" if number < 20 else "bad", {})
    return folder


@pytest.fixture(scope="module")
def served(history: Path) -> Iterator[str]:
    """A server with a history and no recording."""
    with serving(Runs([], history_address=str(history))) as address:
        yield address


@pytest.fixture(scope="module")
def visitor(browser: Any, served: str) -> Iterator[tuple[Any, list[str]]]:
    yield from visiting(browser, served)


def drawn(page: Any) -> None:
    """All three pictures are there."""
    until(
        page,
        """() => {
          window.dispatchEvent(new Event('beforeprint'));  // those below the window too
          return document.querySelectorAll('main .plot .main-svg').length >= 3;
        }""",
    )
    idle(page)


def options(page: Any) -> dict[str, str]:
    query = parse_qs(urlparse(page.url).query)
    return {name.removeprefix("o."): values[0] for name, values in query.items()}


def click(page: Any, number: int) -> None:
    """Click the point of a run in the first picture."""
    points = page.locator("main .plot").first.locator(".scatterlayer .point")
    box = points.nth(number).bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def test_it_says_what_changed_and_draws_it(page: Any) -> None:
    page.get_by_role("link", name="Runs over time").click()
    shows(page, "longer since 2026-01-15 (nightly-14, commit 0000007).")
    drawn(page)
    heading = page.locator("main h1").inner_text()
    assert heading.startswith("Steps take 6.") or heading.startswith("Steps take 5.")
    pictures = page.locator("main .plot")
    assert pictures.count() == 3
    assert pictures.first.locator(".scatterlayer .point").count() == RUNS
    assert "sure" in pictures.first.locator(".annotation-text").text_content()
    assert pictures.nth(2).locator(".annotation-text").count() == 0, "exposed: within its noise"
    assert page.locator("main .tile").count() == 3


def test_two_clicks_compare_two_runs(page: Any) -> None:
    go(page, "/history")
    drawn(page)
    click(page, 20)
    until(page, "() => location.search.includes('o.base=')")
    drawn(page)
    click(page, 2)
    shows(page, "nightly-20 · 00000000 against nightly-02")
    assert (options(page)["base"][:10], options(page)["new"][:10]) == ("nightly-02", "nightly-20")
    shows(page, "gemm")
    table = page.locator("main .grid").first.inner_text()
    assert "slower" in table and "212 ms" in table
    with page.expect_download() as download:
        page.locator("main .grid").first.get_by_role("link", name="CSV").click()
    text = Path(download.value.path()).read_text()
    assert text.splitlines()[1].startswith('"kernel","gemm",,"slower"')


def test_runs_are_laid_out_by_commit_and_names_stay_text(page: Any) -> None:
    go(page, "/history?o.by=commit")
    drawn(page)
    until(page, "() => document.querySelector('main .xtick')?.textContent === '0000000'")
    texts = "() => document.querySelector('main .js-plotly-plot').data[0].customdata.map(d => d[1])"
    (hostile,) = [text for text in page.evaluate(texts) if "onerror" in text]
    assert "&lt;img" in hostile and "<img" not in hostile
    assert page.locator("main img[src='x']").count() == 0


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_sticks_out_of_a_phone(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    go(page, "/history")
    drawn(page)
    until(page, "width => document.documentElement.scrollWidth <= width", width)
    page.set_viewport_size({"width": 1280, "height": 900})


def test_without_a_history_there_is_no_such_page(browser: Any, address: str) -> None:
    for opened, wrong in visiting(browser, address):
        assert opened.get_by_role("link", name="Runs over time").count() == 0
        go(opened, "/history")
        shows(opened, "No history is kept here")
        wrong.clear()


def test_points_are_what_the_runs_say(page: Any) -> None:
    go(page, "/history")
    drawn(page)
    for label, column, unit in (("Step time", "step_time_ns", 1e6), ("MFU", "mfu_pct", 1)):
        points = page.evaluate(
            """label => [...document.querySelectorAll('main figure.plot')]
              .find(f => f.getAttribute('aria-label').startsWith(label))
              .querySelector('.js-plotly-plot').calcdata[0].map(mark => mark.y)""",
            label,
        )
        expected = [kept_run(number).row[column] / unit for number in range(RUNS)]
        assert points == pytest.approx(expected)


def test_a_change_is_drawn_where_it_was_made(page: Any) -> None:
    """The mean of the runs before and from it on, from the first to the last of each, and a dashed
    line at the run that it begins with. What did not change has neither."""
    go(page, "/history")
    drawn(page)
    found = page.evaluate(
        """() => [...document.querySelectorAll('main figure.plot')].map(figure => {
          const gd = figure.querySelector('.js-plotly-plot'), { xaxis, shapes } = gd._fullLayout;
          const at = x => xaxis.d2c(x);
          return { runs: gd.calcdata[0].map(mark => mark.x),
            levels: gd.calcdata.slice(1).map(marks => marks.map(mark => [mark.x, mark.y])),
            dashed: shapes.filter(s => s.type === 'line').map(s => at(s.x0)),
            between: shapes.filter(s => s.type === 'rect').map(s => [at(s.x0), at(s.x1)]) };
        })"""
    )
    for picture, column, unit in zip(found[:2], ("step_time_ns", "mfu_pct"), (1e6, 1), strict=True):
        values = [kept_run(number).row[column] / unit for number in range(RUNS)]
        places = picture["runs"]
        assert picture["dashed"] == [places[CHANGED]]
        for (low, high), level in zip(
            ((0, CHANGED), (CHANGED, RUNS)), picture["levels"], strict=True
        ):
            mean = sum(values[low:high]) / (high - low)
            assert [x for x, _ in level] == [places[low], places[high - 1]]
            assert [y for _, y in level] == pytest.approx([mean, mean])
        for first, last in picture["between"]:
            assert places[0] <= first <= places[CHANGED] <= last <= places[-1]
    assert (found[2]["levels"], found[2]["dashed"]) == ([], [])
