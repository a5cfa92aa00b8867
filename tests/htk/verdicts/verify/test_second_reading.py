"""The second reading on cases worked out by hand."""

from pathlib import Path
from typing import Any

import pytest

from htk.base.io.sources import resolve_inputs
from htk.verdicts.verify.reading import EventsByKind, Span, read_events
from htk.verdicts.verify.spans import (
    Nesting,
    intersect_intervals,
    measure_covered_time,
    merge_intervals,
)
from htk.verdicts.verify.totals import Facts, File, merge_facts
from tests.htk.verdicts.verify.two_busy_ranks import ALL_REDUCE, write_ranks
from tests.kineto_file import kernel, launch, op, span, write

KINDS = {"gemm": "compute", "add": "compute", "nccl": "comm"}


def recording(path: Path) -> EventsByKind:
    return read_events(resolve_inputs(path)[0], 1 << 20)


def facts(path: Path, *events: Any, kinds: dict[str, str] = KINDS, **header: Any) -> Facts:
    file = write(path / "t.json", *events, **header)
    return File(recording(file), 0, kinds).facts()


def test_unions_by_hand() -> None:
    spans = merge_intervals([(5, 8), (1, 3), (2, 4), (8, 9), (20, 20)])
    assert spans == [(1, 4), (5, 9), (20, 20)]
    assert intersect_intervals(spans, [(0, 2), (3, 6), (8, 30)]) == [(1, 2), (3, 4), (5, 6), (8, 9)]
    assert (
        measure_covered_time(spans, 2, 7) == 4
        and measure_covered_time(spans, 9, 30) == 0
        and measure_covered_time([], 0, 9) == 0
    )


@pytest.mark.parametrize(
    ("ts", "ns"),
    [
        (1, 1_000),
        (0.001, 1),
        ("12.5", 12_500),
        ("1725548425983.2345", 1_725_548_425_983_234),
        (1.0005, 1_000),  # half to even
        (1.0015, 1_002),
        (-2.5, -2_500),
        ("1e3", 1_000_000),
    ],
)
def test_times_are_exact(ts: Any, ns: int, tmp_path: Path) -> None:
    event = kernel("gemm", 0, 1) | {"ts": ts}
    path = write(tmp_path / "t.json", event, baseTimeNanoseconds=7)
    assert [s.start for s in recording(path).spans["kernels"]] == [ns + 7]


@pytest.mark.parametrize(("dur", "length"), [(-3, 0), (1e12, 0), (2.25, 2_250), (None, 0)])
def test_impossible_durations_count_as_nothing(dur: Any, length: int, tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", kernel("gemm", 1, 0) | {"dur": dur})
    assert [s.length for s in recording(path).spans["kernels"]] == [length]


def test_what_has_no_time_is_an_event_and_no_span(tmp_path: Path) -> None:
    lost = kernel("gemm", 1, 1)
    del lost["ts"]
    read_again = recording(write(tmp_path / "t.json", lost, {"ph": "M"}, kernel("add", 1, 1)))
    assert read_again.events == 3 and len(read_again.spans["kernels"]) == 1


def test_nesting_of_equal_touching_and_empty_spans() -> None:
    def of(name: str, start: int, end: int) -> Span:
        return Span(name, "cpu_op", ("1", "1"), start, end, {})

    spans = [
        of("inner", 0, 5),
        of("outer", 0, 10),
        of("twin", 0, 5),
        of("instant", 10, 10),  # at the very end of its caller
        of("next", 11, 13),
        of("over", 12, 15),  # longer than its caller, by rounding
    ]
    nesting = Nesting(spans)
    assert nesting.parent == [1, -1, 0, 1, -1, 4]
    assert nesting.self_times() == [0, 5, 5, 0, -1, 3]
    assert nesting.inclusive([0, 1, 10, 0, 0, 100]) == [10, 11, 10, 0, 100, 100]
    assert nesting.around(("1", "1"), 4) == 2 and nesting.around(("1", "1"), 7) == 1
    assert nesting.around(("1", "2"), 4) == -1 and nesting.around(("1", "1"), 99) == -1


def test_of_spans_that_begin_together_ids_tell_which_came_first() -> None:
    def of(start: int, end: int, number: int) -> Span:
        return Span("op", "cpu_op", ("1", "1"), start, end, {"External id": number})

    assert Nesting([of(0, 9, 1), of(4, 5, 3), of(4, 4, 2)]).parent == [-1, 0, 0]
    assert Nesting([of(0, 9, 9), of(4, 5, 3), of(4, 4, 2)]).parent == [-1, 0, 1], "they do not grow"


def test_a_range_holds_what_is_launched_before_it_ends(tmp_path: Path) -> None:
    """Of two that overlap without nesting both hold what was launched in both."""
    rows = facts(
        tmp_path,
        span("X", 0, 100),
        span("Y", 50, 100),
        *(launch(k, ts) for k, ts in enumerate((20, 70, 120), start=1)),
        launch(4, 60, tid=2),
        op("aten::copy_", 55, 20, tid=2),
        launch(5, 80, tid=3),
        op("autograd::engine::evaluate_function: MulBackward0", 75, 20, tid=3),
        *(kernel("k", 200 * k, k, k) for k in range(1, 6)),
    )["ranges"]
    assert (rows[0, "X"]["kernels"], rows[0, "X"]["device_ns"]) == (3, 8_000)  # 1, 2, 5
    assert (rows[0, "Y"]["kernels"], rows[0, "Y"]["device_ns"]) == (3, 10_000)  # 2, 3, 5


def test_a_launch_starts_no_later_than_its_activity(tmp_path: Path) -> None:
    """An id that comes again belongs to the latest call before; one only later is of no call."""
    rows = facts(
        tmp_path,
        op("aten::mm", 0, 10),
        op("aten::add", 20, 10),
        launch(1, 1),
        launch(1, 21),
        launch(2, 25),
        kernel("gemm", 5, 3, 1),
        kernel("add", 40, 2, 1),
        kernel("add", 24, 1, 2),
    )["operators"]
    assert rows[0, "aten::mm"]["device_self_ns"] == 3_000
    assert rows[0, "aten::add"]["device_self_ns"] == 2_000
    assert rows[0, None] == {"device_self_ns": 1_000, "kernels": 1}


def test_figures_of_a_rank_by_hand(tmp_path: Path) -> None:
    write_ranks(tmp_path)
    kinds = {ALL_REDUCE: "comm"}
    rows = File(recording(tmp_path / "rank1.json"), 1, kinds).facts()
    # Window: 10+40.5 to 500+10+365; compute 50.253+60+25.5+5, of the all-reduce's 80 10 beside it.
    time = rows["time"][1, 0, None]
    assert time["total_ns"] == 824_500
    assert time["compute_ns"] == 2 * 140_753 and time["comm_ns"] == 2 * 80_000
    assert time["overlap_ns"] == 2 * 10_000 and time["exposed_comm_ns"] == 2 * 70_000
    # The copy runs from 70.125 to 100.125, beside the product until 90.753.
    assert time["memory_ns"] == 2 * 30_000 and time["exposed_memory_ns"] == 2 * 9_372
    assert time["idle_ns"] == 824_500 - 2 * (140_753 + 70_000 + 9_372)
    # Step 0 ends with the last activity it launched: the second product, at 10+355.5.
    steps = rows["step_times"]
    assert steps[1, 0, 0, 0]["gpu_period_ns"] == 355_500 - 40_500
    assert steps[1, 0, 0, 1]["gpu_period_ns"] == 500_000
    linear = rows["operators"][1, "aten::linear"]
    assert linear["cpu_total_ns"] == 2 * 30_001 and linear["cpu_self_ns"] == 2 * 10_001
    assert linear["device_total_ns"] == 2 * 50_253 and linear["device_self_ns"] == 0
    assert rows["operators"][1, None] == {"device_self_ns": 2 * 30_500, "kernels": 4}
    assert rows["ranges"][1, "forward"] == {
        "count": 2,
        "cpu_total_ns": 200_000,
        "cpu_ns_max": 100_000,
        "kernels": 4,  # the product and the copy of each step
        "device_ns": 2 * (50_253 + 30_000),
        "gpu_ranges": 2,
        "gpu_ranges_ns": 120_000,
    }
    assert rows["functions"]["train.py(1): main",]["self_ns"] == 1_000_000 - 2 * 400_000
    assert rows["copies"][1,] == {"count": 2, "total_ns": 60_000}


def test_sums_over_recordings(tmp_path: Path) -> None:
    sums: Facts = {}
    merge_facts(sums, facts(tmp_path, kernel("gemm", 1, 5), kernel("gemm", 9, 2)))
    merge_facts(sums, facts(tmp_path, kernel("gemm", 1, 7), span("forward", 0, 1)))
    assert sums["kernels"][0, "gemm"] == {
        "count": 3,
        "total_ns": 14_000,
        "duration_ns_min": 2_000,
        "duration_ns_max": 7_000,
    }
