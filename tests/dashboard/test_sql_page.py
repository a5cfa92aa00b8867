"""SQL in the dashboard while a query does not end: everything else is answered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from htk.analyses import ANALYSES
from htk.base.schema import DERIVED, TABLES
from htk.dashboard.pages import sql
from htk.dashboard.runs import Runs
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.query.worker import Limits, worker_of
from tests.conftest import new_tab
from tests.dashboard.conftest import go, serving, settled, shows, typed, until, visiting

ENDLESS = "select count(*) from range(10000000) a, range(10000000) b where a.range*b.range%7=3"
LIMITS = Limits(seconds=3600, memory="2GB")


@pytest.fixture(scope="module")
def run(folder: Path) -> Trace:
    return open_trace(folder / "two", OpenOptions(cache=False))


@pytest.fixture(scope="module")
def server(run: Trace, folder: Path) -> Iterator[str]:
    with serving(Runs([folder], trace=run)) as address:
        yield address


@pytest.fixture(scope="module")
def visitor(browser: Any, server: str) -> Iterator[tuple[Any, list[str]]]:
    """A page of this server, so that those of the others stay where they are."""
    yield from visiting(browser, server)


def test_a_query_that_does_not_end_leaves_the_dashboard_live(
    page: Any, browser: Any, server: str, run: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_LIMITS", LIMITS)
    page.goto(f"{server}/sql")
    shows(page, "Ask in SQL")
    typed(page, "sql-text", ENDLESS)
    page.click("#sql-run")
    worker = worker_of(run.everything, LIMITS.memory_bytes, {})
    until(page, "() => window.store.getState().isLoading")
    while not worker.busy:
        page.wait_for_timeout(20)

    other = new_tab(browser)
    for path in ("/kernels", "/operators"):  # of the same run: their answers were not there yet
        other.goto(f"{server}{path}")
        settled(other)
        assert "Internal error" not in other.inner_text("main")
    other.goto(f"{server}/sql")
    shows(other, "Ask in SQL")
    typed(other, "sql-text", "select count(*) as n from kernels")
    other.click("#sql-run")
    until(other, "() => window.store.getState().isLoading")
    assert worker.busy, "the first query still runs, the second waits for its turn"

    worker.close()  # as the system does that runs out of memory
    shows(page, "ended DuckDB's process")
    until(other, "() => document.querySelector('main .ag-row .ag-cell-value')?.innerText === '16'")
    other.close()


def test_rows_with_a_start_and_an_end_are_a_track_of_the_timeline(page: Any, address: str) -> None:
    query = "select rank, name, start_ns, end_ns from kernels where name = 'gemm'"
    page.goto(f"{address}/sql?ranks=1&o.query={quote(query)}")
    page.click("text=These rows as a track of the timeline")
    until(page, "() => !!window.htkHandle && window.htkHandle.count() > 0")
    counted = """() => {
      const { state } = window.htkHandle;
      const row = state.rows.list.find(r => r.section === 'query');
      const { shown } = state;
      return row && [row.rank, [...shown.lane].filter(k => shown.lanes[k] === row.lane).length];
    }"""
    assert page.evaluate(counted) == [1, 4]


def test_a_word_of_the_query_is_completed(page: Any, address: str) -> None:
    """Columns of the tables that the query names come first; a chosen name is part of the query."""
    offered = """() => [...document.querySelectorAll('#sql-suggestions li')].map(
      li => [li.firstChild.textContent, li.lastChild.textContent])"""
    page.goto(f"{address}/sql")
    shows(page, "Ask in SQL")
    page.fill("#sql-text", "select  from kernels")
    page.evaluate("() => document.getElementById('sql-text').setSelectionRange(7, 7)")
    page.type("#sql-text", "corr")
    until(page, "() => document.querySelectorAll('#sql-suggestions li').length > 0")
    assert page.evaluate(offered)[0] == ["correlation", "column of kernels"]
    page.press("#sql-text", "Tab")
    assert page.input_value("#sql-text") == "select correlation from kernels"
    assert page.evaluate(offered) == []
    page.press("#sql-text", "Control+Enter")
    until(page, "() => document.querySelector('main .ag-row .ag-cell-value')?.innerText === '1'")
    page.type("#sql-text", ", nam")
    until(page, "() => document.querySelectorAll('#sql-suggestions li').length > 0")
    page.press("#sql-text", "Escape")
    assert page.evaluate(offered) == []
    assert page.input_value("#sql-text") == "select correlation, nam from kernels"


def test_what_can_be_read_is_listed(page: Any) -> None:
    """Each table with its columns and what they mean, each analysis with its question."""
    go(page, "/sql")
    until(page, "() => document.querySelectorAll('.readable details').length > 100")
    listed = page.locator(".readable details").evaluate_all(
        "all => all.map(d => ['summary', 'p'].map(tag => d.querySelector(tag).textContent))"
    )
    text_of = dict(listed)
    for name, schema in {**TABLES, **DERIVED}.items():
        assert all(f"{column}: " in text_of[name] for column in schema.names)
    for name, entry in ANALYSES.items():
        assert text_of[name] == entry.question
