"""Step numbers that begin anew within one file, or skip a time without events, are another cycle.

Each rank's file holds steps 1, 2, 1, 2. On the host (us, rank 0; rank r launches the same, and its
kernels are 10·r longer):

    step 1     0-100    launch 1 at 10, kernel  20-60
    step 2   100-200    launch 2 at 110, kernel 120-160; launch 3 at 190, kernel 230-260: past the
                        border, and still of the first cycle
    step 1   200-300    launch 1 at 210 (its id anew), kernel 270-290
    step 2   300-400    launch 2 at 310, kernel 320-390

So the GPU's steps of rank 0 are 20-60 and 60-260, then 270-290 and 290-390.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from htk.answers.ask import ask_trace
from htk.parsers.kineto.cycles import _find_borders
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.verify.outcome import DIFFERS, list_outcomes
from htk.verdicts.verify.subject import Subject
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

US = 1000
_LAUNCHES = (  # correlation, launch, name, kernel's start and length
    (1, 10, "a", 20, 40),
    (2, 110, "b", 120, 40),
    (3, 190, "late", 230, 30),
    (1, 210, "a", 270, 20),
    (2, 310, "b", 320, 70),
)


def _arrow(correlation: int, start: float, end: float) -> list[Event]:
    common = {"cat": "ac2g", "name": "ac2g", "id": correlation}
    return [
        {**common, "ph": "s", "pid": 100, "tid": 1, "ts": start},
        {**common, "ph": "f", "pid": 0, "tid": 7, "ts": end, "bp": "e"},
    ]


def _gpu_step(number: int, start: float, length: float) -> Event:
    event = {**step(number, start, length), "cat": "gpu_user_annotation", "pid": 0, "tid": 7}
    return {**event, "args": {"device": 0, "stream": 7}}


def _events(rank: int) -> list[Event]:
    events = [step(number, start, 100) for start, number in ((0, 1), (100, 2), (200, 1), (300, 2))]
    events += [
        _gpu_step(*span) for span in ((1, 20, 40), (2, 120, 140), (1, 270, 20), (2, 320, 70))
    ]
    for correlation, called, name, start, length in _LAUNCHES:
        events += [
            op(f"aten::{name}", called - 2, 8),
            launch(correlation, called),
            kernel(name, start, length + 10 * rank, correlation),
            *_arrow(correlation, called, start),
        ]
    return events


@pytest.fixture(params=["compiled", "pure"])
def trace(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Trace:
    monkeypatch.setenv("HTK_ENGINE", request.param)
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.json", *_events(rank), **of_rank(rank, 2, base=7_000_000))
    return open_trace(tmp_path, OpenOptions(cache=False))


def _rows(trace: Trace, table: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = trace.tables[table].select(columns).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_each_run_of_numbers_is_a_cycle_of_its_rank(trace: Trace) -> None:
    assert trace.ranks == [0, 1]
    base = 7_000_000
    assert _rows(trace, "ranks", "rank", "cycle", "start_ns", "end_ns", "events") == [
        (0, 0, base, base + 260 * US, 13),
        (0, 1, base + 200 * US, base + 400 * US, 10),
        (1, 0, base, base + 270 * US, 13),
        (1, 1, base + 200 * US, base + 400 * US, 10),
    ]
    assert trace.tables["parse_issues"].num_rows == 0


def test_what_was_launched_before_the_border_is_of_the_earlier_cycle(trace: Trace) -> None:
    kernels, links = trace.tables["kernels"], trace.tables["kernel_links"]
    who = [kernels["rank"], kernels["cycle"], links["step"], kernels["name"]]
    rows = zip(*(column.to_pylist() for column in who), strict=True)
    of_cycles = [(0, 1, "a"), (0, 2, "b"), (0, 2, "late"), (1, 1, "a"), (1, 2, "b")]
    assert sorted(rows) == [(rank, *row) for rank in (0, 1) for row in of_cycles]
    assert links["launch_row"].null_count == 0 and links["op_row"].null_count == 0
    flows = _rows(trace, "flows", "rank", "cycle")
    assert {who: flows.count(who) for who in flows} == {
        (0, 0): 6, (0, 1): 4, (1, 0): 6, (1, 1): 4
    }  # fmt: skip
    gpu_steps = [row[1:] for row in _rows(trace, "annotations", "on_gpu", "rank", "cycle", "step")
                 if row[0]]  # fmt: skip
    assert sorted(gpu_steps) == [(r, c, s) for r in (0, 1) for c in (0, 1) for s in (1, 2)]


def test_every_event_keeps_its_row_of_the_file(trace: Trace) -> None:
    """Rank 0's are 4 + 4 marks of steps and 3 complete rows of 5 for each launch."""
    wanted = [*range(8), *(8 + 5 * k + j for k in range(5) for j in range(3))]
    events = [event for rank, event in _rows(trace, "events", "rank", "event") if rank == 0]
    assert sorted(events) == wanted


def test_a_cycle_ends_with_its_own_last_event(trace: Trace) -> None:
    """Not where the next begins: nobody recorded the time between."""
    rows = trace.tables["ranks"].filter(pc.field("rank") == 0).to_pylist()
    assert [row["end_ns"] for row in rows] == [7_260 * US, 7_400 * US]


def test_steps_of_two_cycles_are_not_added_up(trace: Trace) -> None:
    rows = ask_trace(trace, "step_times").to_pylist()
    lengths = [(r["rank"], r["step"], r["gpu_period_ns"], r["cpu_ns"], r["skew_ns"]) for r in rows]
    # In the second cycle the GPU began 70 us after the host: that wait of step 1 has no beginning.
    assert lengths == [
        (0, 1, 40 * US, 100 * US, 0),
        (0, 2, 200 * US, 100 * US, 0),
        (0, 1, 20 * US, 100 * US, None),
        (0, 2, 100 * US, 100 * US, 0),
        (1, 1, 50 * US, 100 * US, 10 * US),
        (1, 2, 200 * US, 100 * US, 0),
        (1, 1, 30 * US, 100 * US, None),
        (1, 2, 100 * US, 100 * US, 0),
    ]


def test_a_breakdown_by_step_has_a_row_for_each(trace: Trace) -> None:
    rows = ask_trace(trace, "time_breakdown", per="step").to_pylist()
    assert [(r["rank"], r["step"], r["total_ns"], r["busy_ns"]) for r in rows][:4] == [
        (0, 1, 40 * US, 40 * US),
        (0, 2, 200 * US, 70 * US),
        (0, 1, 20 * US, 20 * US),
        (0, 2, 100 * US, 70 * US),
    ]
    idle = ask_trace(trace, "idle_breakdown", per="step").to_pylist()
    by_step = [(r["step"], r["idle_ns"]) for r in idle if r["rank"] == 0]
    assert sum(ns for step, ns in by_step if step == 2) == (130 + 30) * US
    assert list(dict.fromkeys(step for step, _ in by_step)) == [2]
    assert len(by_step) >= 2
    kinds = ask_trace(trace, "kernel_kinds", per="step").to_pylist()
    assert [r["step"] for r in kinds if r["rank"] is None] == [1, 2, 1, 2]


def test_phases_by_step_are_told_apart(trace: Trace) -> None:
    rows = ask_trace(trace, "phase_breakdown", per="step").to_pylist()
    busy = [(r["step"], r["device_busy_ns"]) for r in rows if r["rank"] == 0 and r["kernels"]]
    assert busy == [(1, 40 * US), (2, 70 * US), (1, 20 * US), (2, 70 * US)]


def test_numbers_that_are_marked_twice_at_one_time_are_one_step(tmp_path: Path) -> None:
    twice = [{**step(n, 100 * n, 100), "tid": thread} for n in (1, 2, 3) for thread in (1, 2)]
    path = write(tmp_path / "t.json", *twice, **of_rank(0))
    assert _rows(open_trace(path, OpenOptions(cache=False)), "ranks", "cycle") == [(0,)]


@pytest.mark.parametrize("engine", ["compiled", "pure"])
def test_a_time_that_was_not_recorded_between_steps_parts_cycles(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 3, 4, 13, 14 of 100 us, 100,000 us apart: idle are the 30 us within steps alone."""
    monkeypatch.setenv("HTK_ENGINE", engine)
    events: list[Event] = []
    for k, (number, at) in enumerate(((3, 0), (4, 100), (13, 100_200), (14, 100_300))):
        events += [step(number, at, 100), op("aten::mm", at, 9), launch(k + 1, at + 1)]
        events.append(kernel("gemm", at + 5, 85, k + 1))
    opened = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    assert _rows(opened, "ranks", "cycle") == [(0,), (1,)]
    (row,) = ask_trace(opened, "time_breakdown").to_pylist()
    # From the first kernel to the second's end, twice: 85 + 15 + 85.
    assert (row["busy_ns"], row["idle_ns"]) == (4 * 85 * US, 2 * 15 * US)


@pytest.mark.parametrize(
    "between",
    [op("aten::validate", 450, 20), launch(9, 450), {**op("f", 450, 20), "cat": "python_function"}],
)
def test_numbers_that_go_on_after_something_recorded_are_one_cycle(
    between: Event, tmp_path: Path
) -> None:
    steps = [step(n, 100 * n, 90) for n in (1, 2, 7, 8)]
    path = write(tmp_path / "t.json", *steps, between, **of_rank(0))
    assert _rows(open_trace(path, OpenOptions(cache=False)), "ranks", "cycle") == [(0,)]
    path = write(tmp_path / "u.json", *steps, **of_rank(0))
    assert _rows(open_trace(path, OpenOptions(cache=False)), "ranks", "cycle") == [(0,), (1,)]


def test_a_file_whose_name_says_the_rank_keeps_it_in_both_cycles(tmp_path: Path) -> None:
    write(tmp_path / "rank3.json", *_events(0))
    write(tmp_path / "rank5.json", *_events(1))
    opened = open_trace(tmp_path, OpenOptions(cache=True))
    assert _rows(opened, "ranks", "rank", "cycle") == [(3, 0), (3, 1), (5, 0), (5, 1)]
    again = open_trace(tmp_path, OpenOptions(cache=True))
    assert _rows(again, "ranks", "rank", "cycle") == [(3, 0), (3, 1), (5, 0), (5, 1)]


def test_numbers_that_begin_anew_without_end_are_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", *(step(1, 100 * k, 90) for k in range(300)), **of_rank(0))
    opened = open_trace(path, OpenOptions(cache=False))
    assert _rows(opened, "parse_issues", "kind", "count") == [("repeated_steps", 299)]


def test_a_second_reading_says_that_it_cuts_no_cycles(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.json", *_events(rank), **of_rank(rank, 2, base=7_000_000))
    states = {o.check.name: (o.state, o.finding) for o in list_outcomes(Subject(str(tmp_path)))}
    assert not [name for name, (state, _) in states.items() if state == DIFFERS]
    assert states["steps fill the window"][0] == "ok"
    assert states["kernels"][1].count("holds several cycles") == 2  # once a file


@pytest.mark.parametrize(
    ("steps", "borders"),
    [
        ([(7, 0, 10)], []),
        ([(7, 0, 10), (8, 10, 20)], []),
        ([(7, 0, 10), (7, 9_000_000, 9_000_010)], [9_000_000]),
        ([(7, 0, 10), (3, 9_000_000, 9_000_010)], [9_000_000]),
        ([(7, 0, 9_000_000), (7, 10, 9_000_000)], []),  # marked by two threads
        ([(1, 0, 10), (2, 20, 30), (1, 9_000_000, 9_000_010), (2, 9_000_020, 9_000_030)],
         [9_000_000]),
    ],
)  # fmt: skip
def test_a_cycle_begins_at_a_step_that_is_not_beyond_all_before(
    steps: list[tuple[int, int, int]], borders: list[int]
) -> None:
    columns = tuple(np.array(column, np.int64) for column in zip(*steps, strict=True))
    assert _find_borders(columns).tolist() == borders  # type: ignore[arg-type]
