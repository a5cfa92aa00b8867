"""A few ranks that stand for all of a job, and when the others arrived at their collectives.

Ranks have the same role if they take part in the same kinds of collectives (type, size of the
group, bytes; of all-to-alls, which carry more where experts are busier, without the bytes) and run
about as many GPU activities. Of each role the rank is chosen that waits for others as long as the
median one of its role; and of all ranks those that the others wait for most, in the step that the
graph is made of and in the one that it is tested with. Then, until nothing is missing: whoever
exchanges messages with a chosen rank (the stages of its pipeline), and for each collective of a
chosen rank a rank of each role that takes part in it. A rank that is left out follows the chosen
one of its role in the same collective that waits about as long as it does
(`htk.quantities.graph.left_out`).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, match_texts, read_keys, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none
from htk.base.core.humanize import format_int_ranges, pluralize_count
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.graph.build import steps_at_hand
from htk.quantities.graph.held_out import held_out
from htk.quantities.graph.left_out import LeftOut, RepresentedTables
from htk.traces.trace.trace import Trace

_UNEVEN = ("all_to_all", "all_to_all_v", "unknown")
_MESSAGES = ("send", "recv", "send_recv", "coalesced")
_AS_MANY = 0.05  # activities that ranks of a role may have more, relative
_OF_WAITING = 0.8  # that is for the late ranks which are chosen
_LATE = 4  # of them at most, for a step
_WINDOWS = ("step_windows", "rank_windows", "rank_clocks")


@dataclass(frozen=True)
class Representatives:
    """Some ranks of a job, and for whom they stand."""

    ranks: list[int]
    roles: list[list[int]]  # all ranks, role by role
    tables: RepresentedTables

    def __str__(self) -> str:
        total = sum(len(role) for role in self.roles)
        each = [
            f"{format_int_ranges([r for r in self.ranks if r in set(role)])} for "
            f"{format_int_ranges(role)}"
            for role in self.roles
        ]
        return (
            f"{len(self.ranks)} of {pluralize_count(total, 'rank')}, of "
            f"{pluralize_count(len(each), 'role')}: " + "; ".join(each)
        )


def choose_representatives(trace: Trace) -> Representatives:
    """Return the chosen ranks of a recording, with the latest arrivals of all."""
    calls = _Calls.from_trace(trace)
    of_rank = np.array(trace.ranks, np.int64)
    role = _number_roles(calls, of_rank, trace.tables["gpu_work"])
    chosen = _choose_ranks(calls, of_rank, role)
    match, leader, arrived = _find_followers(calls, chosen, role)
    windows = {name: trace.tables[name] for name in _WINDOWS}
    left_out = LeftOut(match, of_rank[leader], arrived, len(of_rank), windows)
    ranks = of_rank[chosen].tolist()
    roles = [of_rank[role == k].tolist() for k in range(int(role.max()) + 1)]
    return Representatives(ranks, roles, RepresentedTables(trace.sel(ranks=ranks).tables, left_out))


@dataclass(frozen=True)
class _Calls:
    """The matched collectives of all ranks that ran on a GPU, one row for each member."""

    rank: Ints  # position in the ranks of the recording
    match: Ints  # its number in `collective_matches`
    arrived: Ints  # on aligned clocks
    kind: Ints
    is_message: Mask
    in_steps: list[Mask]  # in which of the steps that a graph is made of and tested with
    ranks: int

    @classmethod
    def from_trace(cls, trace: Trace) -> "_Calls":
        calls = trace.tables["collectives"]
        clocks = trace.tables["rank_clocks"]
        match = read_numbers(trace.tables["collective_matches"]["match"], NONE)
        rank = read_keys(calls["rank"])
        start = read_numbers(calls["start_ns"])
        used = (
            (match >= 0) & (rank >= 0) & mark_valid(calls["event"]) & mark_valid(calls["start_ns"])
        )
        rows = np.flatnonzero(used & match_texts(calls["timing"], "gpu".__eq__))
        arrived = (start + compute_corrections(clocks, rank, start))[rows]
        uneven = match_texts(calls["type"], _UNEVEN.__contains__)
        message = match_texts(calls["type"], _MESSAGES.__contains__)
        sizes = [
            np.where(uneven, -1, read_numbers(calls[c], NONE)) for c in ("in_bytes", "out_bytes")
        ]
        alike = [codes_of(calls["type"])[0], read_numbers(calls["group_size"], NONE), *sizes]
        kind = Groups.by_keys([column[rows].astype(np.int64) for column in alike]).group_ids
        return cls(
            np.searchsorted(np.array(trace.ranks, np.int64), rank[rows]),
            match[rows].astype(np.int64),
            arrived,
            kind,
            (message | mark_valid(calls["messages"]))[rows],
            _in_step(trace, arrived),
            len(trace.ranks),
        )

    @cached_property
    def matches(self) -> Groups:
        return Groups.by_keys(self.match)

    @cached_property
    def latest(self) -> Ints:
        """The last arrival at the collective of each call."""
        return self.matches.max(self.arrived)[self.matches.group_ids]

    @cached_property
    def wait(self) -> Floats:
        """How long each rank waits for the last one of a collective, in the mean."""
        waited = self.latest - self.arrived
        count = np.bincount(self.rank, minlength=self.ranks)
        return np.bincount(self.rank, waited, self.ranks) / np.maximum(count, 1)

    def waited_for(self, in_step: Mask) -> Floats:
        """Return how long the others waited for each rank in a step, each for the last of a
        collective: from when the median member arrived."""
        last = np.flatnonzero((self.arrived == self.latest) & in_step)
        last = last[order_by(self.match[last], self.rank[last])]
        last = last[np.unique(self.match[last], return_index=True)[1]]
        middle = self.matches.quantiles(self.arrived - self.latest, [0.5])[0]
        late = -middle[self.matches.group_ids[last]]
        return np.bincount(self.rank[last], late, self.ranks).astype(np.float64)


def _in_step(trace: Trace, arrived: Ints) -> list[Mask]:
    """Return which calls began in the step that graphs are made of, and in that held out to test
    them."""
    steps = steps_at_hand(trace.tables)
    chosen = steps.steadiest if steps.numbers else None
    both = [chosen, held_out(steps, chosen)]
    windows = [
        steps.window(k, 0) for k in dict.fromkeys(both) if k is not None or not steps.numbers
    ]
    return [np.asarray((arrived >= low) & (arrived < high)) for low, high in windows]


def _number_roles(calls: _Calls, of_rank: Ints, work: pa.Table) -> Ints:
    """Return the role of each rank, numbered in the order of their lowest ranks."""
    takes_part = np.zeros((calls.ranks, int(calls.kind.max(initial=0)) + 1), bool)
    takes_part[calls.rank, calls.kind] = True
    alike = np.unique(takes_part, axis=0, return_inverse=True)[1].reshape(-1)
    each = np.searchsorted(of_rank, read_numbers(work["rank"], NONE))
    activities = np.bincount(each, read_numbers(work["gpu_activities"]), calls.ranks)
    order = order_by(activities)
    more = activities[order][1:] > (1 + _AS_MANY) * activities[order][:-1]
    size = np.empty(calls.ranks, np.int64)
    size[order] = np.append(0, np.cumsum(more))
    roles = Groups.by_keys([alike, size])
    number = np.empty(len(roles), np.int64)
    number[np.argsort(roles.first_row)] = np.arange(len(roles))
    return number[roles.group_ids]


def _choose_ranks(calls: _Calls, of_rank: Ints, role: Ints) -> Mask:
    """Return which ranks stand for all."""
    chosen = np.zeros(len(of_rank), bool)
    for number in range(int(role.max()) + 1):
        if not chosen[role == number].any():
            _add_rank(chosen, calls, role, _find_median_rank(calls, np.flatnonzero(role == number)))
    for in_step in calls.in_steps:
        for rank in _list_late(calls.waited_for(in_step)):
            if not chosen[rank]:
                _add_rank(chosen, calls, role, rank)
    return chosen


def _list_late(waited_for: Floats) -> list[int]:
    """Return the ranks that most of the waiting is for, the latest first."""
    order = order_by(-waited_for)
    before = np.cumsum(waited_for[order]) - waited_for[order]
    late: list[int] = order[before < _OF_WAITING * waited_for.sum()][:_LATE].tolist()
    return late


def _find_median_rank(calls: _Calls, ranks: Ints) -> int:
    """Return the rank of these that waits as long as the median one."""
    in_order = ranks[order_by(calls.wait[ranks])]
    return int(in_order[(len(in_order) - 1) // 2])


def _add_rank(chosen: Mask, calls: _Calls, role: Ints, rank: int) -> None:
    """Choose a rank, and whoever its collectives cannot do without."""
    chosen[rank] = True
    of_role = Groups.by_keys([calls.match, role[calls.rank]])
    while True:  # as often as ranks are chosen
        is_chosen = chosen[calls.rank]
        beside = np.bincount(calls.match, is_chosen)[calls.match] > 0
        stands_for = np.bincount(of_role.group_ids, is_chosen)[of_role.group_ids] > 0
        missing = np.flatnonzero(beside & ~is_chosen & (calls.is_message | ~stands_for))
        if not len(missing):
            return
        first = of_role.group_ids[missing] == of_role.group_ids[missing[0]]
        chosen[_find_median_rank(calls, np.unique(calls.rank[missing[first]]))] = True


def _find_followers(calls: _Calls, chosen: Mask, role: Ints) -> tuple[Ints, Ints, Ints]:
    """Return match, leader and latest arrival of those that follow it; leaders by position."""
    leader = fill_none(len(calls.rank))
    apart = np.full(len(calls.rank), np.inf)
    for rank in np.flatnonzero(chosen).tolist():  # some tens
        with_it = np.bincount(calls.match, calls.rank == rank)[calls.match] > 0
        away = np.abs(calls.wait[calls.rank] - calls.wait[rank])
        near = with_it & (role[calls.rank] == role[rank]) & (away < apart)
        leader[near], apart[near] = rank, away[near]
    rows = np.flatnonzero((leader >= 0) & ~chosen[calls.rank])
    led = Groups.by_keys([calls.match[rows], leader[rows]])
    return led.keys[:, 0], led.keys[:, 1], led.max(calls.arrived[rows])
