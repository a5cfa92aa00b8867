"""Who is late, against a twin that follows each group call by call."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.types import NONE, Ints, Mask
from htk.quantities.derived.lateness import compute_lateness
from htk.quantities.derived.waits import Waits


@dataclass(frozen=True)
class Call:
    match: int
    type: str
    group: int
    cycle: int
    rank: int
    start: int
    length: int
    wait: int
    has_wait: bool
    before: bool

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class Rows:
    calls: list[Call]

    def column(self, name: str) -> Ints:
        return np.array([int(getattr(call, name)) for call in self.calls], np.int64)

    @property
    def rank(self) -> Ints:
        return self.column("rank")

    @property
    def cycle(self) -> Ints:
        return self.column("cycle")

    @property
    def group(self) -> Ints:
        return self.column("group")

    def is_type(self, *wanted: str) -> Mask:
        return np.array([call.type in wanted for call in self.calls], bool)


@st.composite
def jobs(draw: st.DrawFn) -> list[Call]:
    """Two cycles of two groups that share ranks; each rank's calls of a group come in order."""
    calls: list[Call] = []
    clock: dict[tuple[int, int, int], int] = defaultdict(int)
    for match in range(draw(st.integers(1, 8))):
        group, cycle = draw(st.integers(0, 1)), draw(st.integers(0, 1))
        kind = draw(st.sampled_from(["all_reduce", "all_reduce", "all_gather", "broadcast"]))
        has_wait = draw(st.integers(0, 5)) > 0
        before = draw(st.integers(0, 5)) == 0
        for rank in draw(st.lists(st.sampled_from([1, 2, 4, 7]), min_size=2, unique=True)):
            lane = (rank, cycle, group)
            start = clock[lane] + draw(st.integers(1, 30))
            length, wait = draw(st.integers(1, 40)), draw(st.integers(0, 20))
            clock[lane] = start + length
            calls.append(
                Call(match, kind, group, cycle, rank, start, length, wait, has_wait, before)
            )
    return draw(st.permutations(calls))


def asked(calls: list[Call]) -> tuple[list[int], list[int], list[bool]]:
    rows = Rows(calls)
    none = np.zeros(len(calls), np.int64)
    has_wait = rows.column("has_wait") > 0
    waited = Waits(has_wait, none, rows.column("wait"), none, none, none, none)
    before = rows.column("before") > 0
    start, end = rows.column("start"), rows.column("end")
    found = compute_lateness(rows, rows.column("match"), waited, before, start, end)
    return found.late.tolist(), found.cost.tolist(), found.is_straggler.tolist()


def own_time(call: Call, calls: list[Call]) -> int | None:
    """Since the previous collective of the group on the rank, in the same recording."""
    earlier = [
        c.end
        for c in calls
        if (c.rank, c.cycle, c.group) == (call.rank, call.cycle, call.group)
        and c.start < call.start
    ]
    return max(call.start - max(earlier), 0) if earlier else None


@given(jobs())
def test_as_call_by_call(calls: list[Call]) -> None:
    used = [c for c in calls if c.has_wait and c.type != "broadcast"]
    late, cost, blamed = asked(calls)
    for row, call in enumerate(calls):
        if call not in used:
            assert (late[row], cost[row], blamed[row]) == (NONE, 0, False)
            continue
        members = [c for c in used if c.match == call.match]
        own = {c.rank: own_time(c, used) for c in members}
        times = [time for time in own.values() if time is not None]
        if len(times) == len(members):
            measure = {rank: time - min(times) for rank, time in own.items() if time is not None}
            assert late[row] == measure[call.rank]
        else:  # for one of them it is the first collective of the group
            measure = {c.rank: c.start for c in members}
            assert late[row] == NONE
        others = sum(c.wait for c in members if c.rank != call.rank)
        guilty = min(r for r, m in measure.items() if m == max(measure.values()))
        is_late = late[row] != 0  # by its own time, or not known at the first collective
        is_straggler = call.rank == guilty and others > 0 and not call.before and is_late
        assert blamed[row] == is_straggler
        assert cost[row] == (others if is_straggler else 0)


def test_who_is_no_later_than_the_others_is_not_blamed() -> None:
    """Both begin the second collective as soon as the first has ended for them, on rank 4 later."""
    first = Call(0, "all_reduce", 0, 0, 1, start=0, length=10, wait=0, has_wait=True, before=False)
    calls = [
        replace(first, rank=1),
        replace(first, rank=4, length=30),
        replace(first, match=1, rank=1, start=10, length=30, wait=20),
        replace(first, match=1, rank=4, start=30, length=10),
    ]
    late, cost, blamed = asked(calls)
    assert (late, cost, blamed) == ([NONE, NONE, 0, 0], [0] * 4, [False] * 4)


def test_the_cost_is_what_all_others_waited() -> None:
    """Rank 4 comes last to the second of two collectives; ranks 1 and 2 wait 25 and 20."""
    first = Call(0, "all_reduce", 0, 0, 1, start=0, length=10, wait=0, has_wait=True, before=False)
    calls = [
        *(replace(first, rank=rank) for rank in (1, 2, 4)),
        replace(first, match=1, rank=1, start=15, length=40, wait=25),
        replace(first, match=1, rank=2, start=20, length=35, wait=20),
        replace(first, match=1, rank=4, start=40, length=15, wait=0),
    ]
    late, cost, blamed = asked(calls)
    assert late == [NONE, NONE, NONE, 0, 5, 25]
    assert cost == [0, 0, 0, 0, 0, 45]
    assert blamed == [False] * 5 + [True]
