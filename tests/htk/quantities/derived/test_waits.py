"""Waits against a twin that asks, call by call, whom a rank depends on.

Several groups whose members are listed in any order, roots that are neither the group's first nor
rank 0, calls that not all members recorded.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.types import NONE, Ints, Mask
from htk.quantities.derived.messages import Meetings
from htk.quantities.derived.waits import global_root, measure_waits

TYPES = ("all_reduce", "all_to_all", "broadcast", "scatter", "reduce", "gather", "send", "recv")
GROUPS = ((0, 1, 2, 3, 4, 5), (4, 1, 5), (3, 0), (2, 5, 3, 1))


@dataclass(frozen=True)
class Call:
    match: int
    type: str
    group: int | None  # in GROUPS; None: its ranks are not recorded
    group_size: int
    root: int  # a rank of the group
    rank: int
    start: int
    length: int
    timed: bool = True


@dataclass(frozen=True)
class Rows:
    """Calls as columns."""

    calls: list[Call]
    listed: list[tuple[int, ...]] = field(default_factory=lambda: list(GROUPS))

    def _column(self, name: str) -> Ints:
        return np.array([getattr(call, name) for call in self.calls], np.int64)

    @property
    def rank(self) -> Ints:
        return self._column("rank")

    @property
    def highest_rank(self) -> int:
        return max(call.rank for call in self.calls)

    @property
    def root(self) -> Ints:
        return self._column("root")

    @property
    def group_size(self) -> Ints:
        return self._column("group_size")

    @property
    def timed(self) -> Mask:
        return self._column("timed") > 0

    @property
    def group_ranks(self) -> tuple[Ints, list[tuple[int, ...]]]:
        codes = [NONE if call.group is None else call.group for call in self.calls]
        return np.array(codes, np.int64), self.listed

    @property
    def meetings(self) -> Meetings:
        return Meetings(np.empty(0, np.int64), np.empty(0, np.int64))

    def is_type(self, *wanted: str) -> Mask:
        return np.array([call.type in wanted for call in self.calls], bool)


@st.composite
def jobs(draw: st.DrawFn) -> list[Call]:
    calls = []
    for match in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(TYPES))
        group = draw(st.integers(0, len(GROUPS) - 1))
        members = GROUPS[group][:2] if kind in ("send", "recv") else GROUPS[group]
        present = draw(st.lists(st.sampled_from(members), min_size=1, unique=True))
        root = draw(st.integers(-1, len(members)))  # one beyond: damage
        unlisted = draw(st.integers(0, 4)) == 0
        for rank in present:
            calls.append(
                Call(
                    match,
                    kind,
                    None if unlisted else group,
                    len(GROUPS[group]),
                    root,
                    rank,
                    start=draw(st.integers(-50, 50)),
                    length=draw(st.integers(0, 60)),
                    timed=draw(st.integers(0, 9)) > 0,
                )
            )
    return draw(st.permutations(calls))


def root_of(call: Call, ranks: int) -> int:
    """The global rank of a root; -1: unknown."""
    if call.root < 0:
        return -1
    if call.group is None:  # a group of everyone counts as the ranks do
        return call.root if call.group_size >= ranks else -1
    members = GROUPS[call.group]
    return members[call.root] if call.root < len(members) else -1


def dependency(call: Call, calls: list[Call], ranks: int) -> int | None:
    """The latest start of those that a call depends on; None: they are unrecorded."""
    if len(calls) < 2:
        return None
    latest = max(other.start for other in calls)
    root = root_of(call, ranks)
    of_root = [c.start for c in calls if c.rank == root_of(c, ranks)]
    if call.type in ("broadcast", "scatter"):
        if call.rank == root:
            return call.start
        return max(of_root) if of_root else None
    if call.type in ("reduce", "gather"):
        if root < 0:
            return None
        return latest if call.rank == root else call.start
    if call.type in ("send", "recv"):
        (other,) = [c for c in calls if c is not call]
        return other.start
    return latest


@given(jobs())
def test_as_call_by_call(calls: list[Call]) -> None:
    start, end = (np.array([c.start + k * c.length for c in calls]) for k in (0, 1))
    match = np.array([c.match for c in calls])
    ranks = max(call.rank for call in calls) + 1
    together = defaultdict(list)
    for call in calls:
        if call.timed:
            together[call.match].append(call)
    result = measure_waits(Rows(calls), match, start, end)
    for row, call in enumerate(calls):
        others = together[call.match]
        common = dependency(call, others, ranks) if call.timed else None
        assert bool(result.has_wait[row]) == (common is not None)
        if call.timed:
            latest = max(c.start for c in others)
            assert result.span[row] == max(c.start + c.length for c in others) - latest
            assert result.last_rank[row] == min(c.rank for c in others if c.start == latest)
        else:
            assert result.span[row] == result.last_rank[row] == NONE
        if common is None:
            assert result.wait[row] == result.transfer[row] == 0
            continue
        wait = min(max(common - call.start, 0), call.length)
        assert result.last_dependency_start[row] == common
        assert result.wait[row] == wait
        assert result.transfer[row] == call.length - wait
        assert result.undetermined[row] == 0


@pytest.mark.parametrize(
    ("group", "size", "root", "expected"),
    [
        (1, 3, 0, 4),  # (4, 1, 5)
        (1, 3, 1, 1),
        (1, 3, 2, 5),
        (1, 3, 3, NONE),  # no member
        (1, 3, -1, NONE),
        (2, 2, 0, 3),
        (None, 6, 4, 4),  # all six ranks
        (None, 3, 2, NONE),
    ],
)
def test_a_root_is_a_rank_of_its_group(
    group: int | None, size: int, root: int, expected: int
) -> None:
    """Beside a call of another group, whose root stays what it is."""
    other = Call(0, "broadcast", 0, 6, 2, 5, 0, 1)
    call = Call(1, "broadcast", group, size, root, 0, 0, 1)
    assert global_root(Rows([other, call, other])).tolist() == [2, expected, 2]
