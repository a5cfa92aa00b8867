"""Tables over all ranks, and what a selection leaves of them."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable, UsageError
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, of_rank, op, span, step, write


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Two ranks of two steps; rank 1 has one more operator, so that row numbers differ."""
    for rank in (0, 1):
        extra = [op("aten::extra", 0.5, 0.2)] if rank == 0 else []
        events = [
            *extra,
            step(0, 1, 9),
            span("forward", 1, 4),
            op("aten::mm", 2, 2),
            launch(1, 3),
            kernel("gemm", 4, 3, 1),
            step(1, 10, 9),
            op("aten::add", 12, 2),
            launch(2, 13),
            kernel("add", 14, 4, 2),
        ]
        write(tmp_path / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return open_trace(tmp_path, OpenOptions(cache=False))


def names(trace: Trace, table: str) -> list[Any]:
    return trace.tables[table]["name"].to_pylist()


def test_row_numbers_hold_over_all_ranks(trace: Trace) -> None:
    ops = names(trace, "cpu_ops")
    rows = trace.tables["kernel_links"]["op_row"].to_pylist()
    assert [ops[row] for row in rows] == ["aten::mm", "aten::add"] * 2


def test_a_kernel_belongs_to_the_step_and_range_that_launched_it(trace: Trace) -> None:
    links = trace.tables["kernel_links"]
    assert links["step"].to_pylist() == [0, 1, 0, 1]
    ranges = names(trace, "annotations")
    rows = links["annotation_row"].to_pylist()
    assert [None if r is None else ranges[r] for r in rows] == ["forward", None] * 2


def test_ranks_are_chosen_before_anything_is_read(trace: Trace) -> None:
    chosen = trace.sel(ranks=[1])
    assert chosen.ranks == [1]
    assert set(chosen.tables["kernels"]["rank"].to_pylist()) == {1}


def test_steps_keep_what_they_launched(trace: Trace) -> None:
    chosen = trace.sel(steps=[1])
    assert names(chosen, "kernels") == ["add", "add"]
    assert chosen.tables["kernel_links"].num_rows == 2
    assert names(chosen, "cpu_ops") == ["aten::add"] * 2
    assert chosen.tables["kernel_links"]["op_row"].to_pylist() == [0, 1]


def test_steps_narrow_the_windows_but_keep_all_activities(trace: Trace) -> None:
    chosen = trace.sel(ranks=[0], steps=[1])
    (window,) = chosen.tables["rank_windows"].to_pylist()
    assert (window["start_ns"], window["end_ns"]) == (7_000, 18_000)
    assert chosen.tables["activities"].num_rows == 2


def test_times_count_from_the_first_event_of_the_trace(trace: Trace) -> None:
    assert trace.origin_ns == 500
    chosen = trace.sel(from_ns=12_500, to_ns=20_000)
    assert names(chosen, "kernels") == ["add", "add"]
    windows = chosen.tables["rank_windows"].to_pylist()
    assert [(w["start_ns"], w["end_ns"]) for w in windows] == [(13_000, 18_000)] * 2


def test_times_keep_what_was_launched_and_know_what_else_runs(trace: Trace) -> None:
    """The kernel that runs from 14 to 18 us was launched at 13, before the time looked at."""
    chosen = trace.sel(from_ns=13_000, to_ns=16_500, ranks=[0])
    assert names(chosen, "kernels") == []
    assert names(chosen, "activities") == ["gemm", "add"]
    (row,) = ask_trace(chosen, "time_breakdown").to_pylist()
    assert (row["total_ns"], row["busy_ns"]) == (3_500, 3_000)


def test_calls_are_cut_at_the_edges_of_the_time(trace: Trace) -> None:
    chosen = trace.sel(from_ns=12_500, to_ns=16_500, ranks=[0])
    ops = chosen.tables["cpu_ops"].select(["name", "start_ns", "end_ns"]).to_pylist()
    assert ops == [{"name": "aten::add", "start_ns": 13_000, "end_ns": 14_000}]
    steps = chosen.tables["annotations"].select(["step", "start_ns", "end_ns"]).to_pylist()
    assert steps == [{"step": 1, "start_ns": 13_000, "end_ns": 17_000}]
    assert chosen.tables["step_windows"]["complete"].to_pylist() == [False]


def test_ranges_keep_what_was_launched_inside(trace: Trace) -> None:
    chosen = trace.sel(annotation="^forw")
    assert names(chosen, "kernels") == ["gemm", "gemm"]
    windows = chosen.tables["rank_windows"].to_pylist()
    assert [(w["start_ns"], w["end_ns"]) for w in windows] == [(4_000, 7_000)] * 2


def test_steps_tile_the_window(trace: Trace) -> None:
    windows = trace.sel(ranks=[0]).tables["step_windows"].to_pylist()
    assert [(w["step"], w["start_ns"], w["end_ns"]) for w in windows] == [
        (0, 4_000, 7_000),
        (1, 7_000, 18_000),
    ]


def test_what_is_not_there_says_what_would_record_it(trace: Trace) -> None:
    with pytest.raises(MissingTable, match="profile_memory=True"):
        trace.need("memory")
    with pytest.raises(MissingTable, match="no table 'nonsense'"):
        trace.tables["nonsense"]


def test_times_relative_to_the_trace(trace: Trace) -> None:
    kernels = trace.relative("kernels")
    assert kernels["start_ns"].to_pylist() == [3_500, 13_500] * 2
    assert trace.tables["kernels"]["start_ns"].to_pylist() == [4_000, 14_000] * 2


def test_a_name_has_one_code_on_all_ranks(trace: Trace) -> None:
    column = trace.tables["cpu_ops"]["name"]
    dictionaries = {tuple(chunk.dictionary.to_pylist()) for chunk in column.chunks}
    assert len(dictionaries) == 1


def test_steps_on_the_host_are_chosen_too(trace: Trace) -> None:
    steps = ask_trace(trace, "step_times").table
    chosen = ask_trace(trace.sel(steps=[1]), "step_times").table
    assert set(steps["step"].to_pylist()) > {1}
    assert set(chosen["step"].to_pylist()) == {1}


def test_the_first_steps_are_those_of_the_recording_whatever_their_numbers(trace: Trace) -> None:
    recorded = sorted(set(ask_trace(trace, "step_times").table["step"].to_pylist()))
    assert len(recorded) > 1, "one of more is chosen"
    for text, steps in (("first:1", recorded[:1]), ("first:99", recorded)):
        chosen = ask_trace(trace.sel(steps=text), "step_times").table
        assert sorted(set(chosen["step"].to_pylist())) == steps


def test_steps_may_be_named_as_text(trace: Trace) -> None:
    assert trace.sel(steps="1..2,5").selection.steps == {1, 2, 5}
    with pytest.raises(UsageError, match="not a list of numbers"):
        trace.sel(steps="last:2")


@pytest.mark.parametrize(
    ("chosen", "words"), [({"ranks": [7]}, r"ranks 7 \(of 0..1\)"), ({"steps": [99]}, "steps 99")]
)
def test_a_selection_of_what_is_not_there_is_no_empty_answer(
    trace: Trace, chosen: dict[str, list[int]], words: str
) -> None:
    with pytest.raises(MissingTable, match=words):
        ask_trace(trace.sel(**chosen), "op_breakdown")  # type: ignore[arg-type]
