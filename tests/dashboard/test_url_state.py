"""The address holds the view."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from htk.dashboard.filters import change_filter, clear_filter, draw_filter_pills
from htk.dashboard.page import Visit
from htk.dashboard.runs import Runs
from htk.dashboard.url_state import FILTERS, UrlState
from htk.traces.trace.opening import open_trace
from tests.kineto_file import kernel, of_rank, step, write

PRINTABLE = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
TEXT = st.text(PRINTABLE).map(str.strip).filter(bool)
NAMES = st.sampled_from(["n", "by", "per"])


@given(
    st.sampled_from(["", "kernels", "kernel_top"]),
    st.dictionaries(st.sampled_from(FILTERS), TEXT),
    st.dictionaries(NAMES, TEXT),
    st.one_of(st.just(""), TEXT),
)
def test_an_address_is_read_back(
    page: str, filters: dict[str, str], options: dict[str, str], run: str
) -> None:
    view = UrlState(page, filters, options, run)
    assert UrlState.from_address("/" + page, view.search()) == view


def test_filters_go_along_and_options_stay() -> None:
    view = UrlState("kernels", {"ranks": "1"}, {"n": "3"}, "runs/a")
    assert view.link("idle") == "/idle?run=runs/a&ranks=1"
    assert view.link("timeline", **{"from": "1ms"}) == "/timeline?run=runs/a&ranks=1&from=1ms"
    assert view.without("ranks").search() == "?run=runs/a&o.n=3"
    assert view.with_option("n", "10", default=10).options == {}


def test_a_picker_of_times_that_rounds_is_no_choice() -> None:
    """A browser rounds the ends of a long recording to the picker's steps; a person moves them."""
    long_ms = 121_795.531
    view = UrlState("timeline")
    assert change_filter(view, "time", [0, 121_673.734], long_ms) == view
    narrowed = change_filter(view, "time", [1000.0, 50_000.0], long_ms)
    assert narrowed.filters == {"from": "1000ms", "to": "50000ms"}
    assert change_filter(narrowed, "time", [1000.1, 49_990.0], long_ms) == narrowed
    assert change_filter(view, "ranks", ["0", "2", "3"]).filters == {"ranks": "0,2..3"}
    assert clear_filter(narrowed, "time") == view


def test_cycles_are_chosen_as_on_the_command_line(tmp_path: Path) -> None:
    """Two recordings of a rank: one kernel in the first, two in the second."""
    for cycle in (0, 1):
        events = [kernel("gemm", 1e6 * cycle + 10 * k, 5) for k in range(cycle + 1)]
        marks = step(7 * cycle, 1e6 * cycle, 100)
        write(tmp_path / f"c{cycle}.json", marks, *events, **of_rank(0))
    runs = Runs(trace=open_trace(tmp_path))
    view = UrlState.from_address("/kernels", "?cycles=1")
    assert view.selection.cycles == {1}
    counts = [
        sum(row["count"] for row in runs.ask("", chosen, "kernel_top").to_pylist())
        for chosen in (UrlState().selection, view.selection)
    ]
    assert counts == [3, 2]
    assert change_filter(UrlState("kernels"), "cycles", ["1"]).filters == {"cycles": "1"}
    assert any("Cycles" in str(pill) for pill in draw_filter_pills(Visit(runs, view)))
    whole = runs.trace("")
    assert whole is not None
    alone = Runs(trace=whole.part(whole.files[:1]))
    assert not any("Cycles" in str(pill) for pill in draw_filter_pills(Visit(alone, UrlState())))
