"""Cycles of a rank that missed one are those of the same time on the other ranks."""

from collections import defaultdict
from pathlib import Path

import pytest

import htk
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, step, write

NOW = 1_763_000_000_000_000_000
SECOND = 1_000_000  # us, between cycles
COMM = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def all_reduce(at: float, length: float, correlation: int) -> Event:
    """Of the whole job, without its number: such are matched by their order."""
    event = kernel(COMM, at, length, correlation, 20)
    event["args"] |= {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float",
                      "Out msg nelems": 1000, "Group size": 3, "Process Group Name": "0",
                      "Process Group Ranks": "[0, 1, 2]"}  # fmt: skip
    return event


def _cycle(number: int, first_step: int, late: float, rank: int, clock_us: float) -> list[Event]:
    """Two steps, an all-reduce in each, which rank 2 comes to 30 us late."""
    events: list[Event] = []
    for k in (0, 1):
        at = clock_us + number * SECOND + 1000 * k
        mine = late if rank == 2 else 0.0
        correlation = 10 * number + k + 1
        events += [
            step(first_step + k, at, 1000),
            launch(correlation, at + 10 + mine),
            kernel("gemm", at + 20, 100 + mine, 100 + correlation),
            all_reduce(at + 200 + mine, 100 - mine, correlation),
        ]
    return events


def _opened(
    folder: Path, missed: dict[int, int], steps: tuple[int, ...], clocks: dict[int, float]
) -> Trace:
    """Three ranks of three cycles; some ranks missed one."""
    folder.mkdir()
    for rank in range(3):
        for number in range(3):
            if missed.get(rank) != number:
                events = _cycle(number, steps[number], 30.0, rank, clocks.get(rank, 0.0))
                write(folder / f"r{rank}_c{number}.json", *events, **of_rank(rank, 3, NOW))
    return htk.open(folder)


@pytest.mark.parametrize("missed", [{1: 0}, {1: 1}, {1: 2}, {0: 0, 2: 1}])
@pytest.mark.parametrize(
    ("steps", "clocks"),
    [((0, 10, 20), {}), ((0, 10, 20), {1: 5e12, 2: -9e10})],
    ids=["one clock", "far clocks"],
)
def test_a_cycle_has_one_number_on_all_ranks(
    tmp_path: Path, missed: dict[int, int], steps: tuple[int, ...], clocks: dict[int, float]
) -> None:
    trace = _opened(tmp_path / "job", missed, steps, clocks)
    expected = {(r, c) for r in range(3) for c in range(3) if missed.get(r) != c}
    assert {(file.rank, file.cycle) for file in trace.files} == expected
    for row in trace.step_times().to_pylist():
        assert row["step"] in range(steps[row["cycle"]], steps[row["cycle"]] + 2), row


def test_collectives_of_a_missed_cycle_match_nobody(tmp_path: Path) -> None:
    """Rank 1 missed the first cycle: by its own count its second would have met the first."""
    trace = _opened(tmp_path / "job", {1: 0}, (0, 10, 20), {})
    rows = trace.tables["collectives"].to_pylist()
    matches = trace.tables["collective_matches"].to_pylist()
    ranks: dict[tuple[int, int], set[int]] = defaultdict(set)
    waits: dict[int, set[int]] = defaultdict(set)
    for row, match in zip(rows, matches, strict=True):
        ranks[row["cycle"], match["match"]].add(row["rank"])
        waits[row["rank"]].add(match["wait_ns"])
    assert sorted((cycle, sorted(members)) for (cycle, _), members in ranks.items()) == [
        *[(0, [0, 2])] * 2, *[(1, [0, 1, 2])] * 2, *[(2, [0, 1, 2])] * 2,
    ]  # fmt: skip
    assert waits == {0: {30_000}, 1: {30_000}, 2: {0}}


def test_the_step_numbers_of_two_processes_tell_nothing_apart(tmp_path: Path) -> None:
    """Step numbers begin anew in each cycle of a file, so time tells which one was missed."""
    folder = tmp_path / "job"
    folder.mkdir()
    for rank, cycles in ((0, (0, 1)), (1, (1,))):
        events = [e for number in cycles for e in _cycle(number, 5, 0.0, rank, 0.0)]
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2, NOW))
    files = htk.open(folder).files
    assert {(file.rank, file.cycle) for file in files} == {(0, 0), (0, 1), (1, 1)}
