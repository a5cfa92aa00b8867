"""Groups whose name and members were not recorded: which ranks make them up.

Ranks of one group end each of their collectives together: the difference of their ends is that of
their clocks, whatever that is, call after call. Other ranks drift apart by what they compute. Ranks
are put into groups of the recorded size where that tells them apart, and left alone elsewhere.
"""

from typing import Protocol

import numpy as np
import pyarrow as pa

from htk.base.columns.align import fitting_shifts
from htk.base.columns.arrow import read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none

APART = 2.0  # times the scatter within groups: what other ranks must at least differ by
_MOST_RANKS = 256  # every pair is compared
_LEAST_CALLS = 3  # that two ranks have in common
_FLOOR_NS = 1000.0
_MOST_SHIFTS = 16

Calls = tuple[Ints, Ints, Ints]  # kind, size, end; in order


class GuessedRows(Protocol):
    """The columns of collectives that are read here, row by row."""

    table: pa.Table
    rank: Ints
    cycle: Ints
    type: Ints
    start: Ints
    end: Ints
    group_size: Ints
    timed: Mask

    @property
    def size(self) -> Ints: ...

    @property
    def order(self) -> Ints: ...


def unnamed_groups(rows: GuessedRows, chosen: Ints, lane: Ints) -> Ints:
    """Return a number for the group of each chosen row: 0 where all ranks of its lane may be one
    group, NONE where which ranks are one group cannot be told."""
    group = np.zeros(len(chosen), np.int64)
    lanes = Groups.by_keys(lane)
    order = order_by(lane, rows.rank[chosen], rows.order[chosen])
    ends = np.cumsum(lanes.count)
    for k in range(len(lanes)):  # a few streams of the job
        of_lane = order[ends[k] - lanes.count[k] : ends[k]]
        size = int(rows.group_size[chosen[of_lane[0]]])
        ranks = np.unique(rows.rank[chosen[of_lane]])
        if size < 1 or len(ranks) <= size:
            continue
        number = _number_members(rows, chosen[of_lane], ranks, size)
        rank_number = np.searchsorted(ranks, rows.rank[chosen[of_lane]])
        group[of_lane] = number[rank_number]
    return group


def _number_members(rows: GuessedRows, lane: Ints, ranks: Ints, size: int) -> Ints:
    """Return a number for each rank's group; NONE: cannot be told."""
    nothing = fill_none(len(ranks))
    if size < 2 or len(ranks) > _MOST_RANKS or not rows.timed[lane].all():
        return nothing
    starts = np.append(np.searchsorted(rows.rank[lane], ranks), len(lane))
    calls = [_take_calls(rows, lane[starts[k] : starts[k + 1]]) for k in range(len(ranks))]
    apart = np.zeros((len(ranks), len(ranks)))
    for a in range(len(ranks)):  # every pair of ranks: at most _MOST_RANKS² / 2
        for b in range(a):
            apart[a, b] = apart[b, a] = _measure_scatter(calls[a], calls[b])
    return _number_clusters(apart, size)


def _take_calls(rows: GuessedRows, chosen: Ints) -> Calls:
    return rows.type[chosen], rows.size[chosen], rows.end[chosen]


def _measure_scatter(first_rank: Calls, second_rank: Calls) -> float:
    """Return how much the ends of two ranks vary against each other, as a median deviation in ns,
    by the shift that fits best."""
    base = first_rank
    shorter = second_rank
    if len(base[0]) < len(shorter[0]):
        base, shorter = shorter, base
    scatters = [np.inf]
    for shift in _find_shifts(base, shorter):
        first = max(0, -shift)
        last = min(len(shorter[0]), len(base[0]) - shift)
        if last - first >= _LEAST_CALLS:
            gap = base[2][first + shift : last + shift] - shorter[2][first:last]
            scatters.append(float(np.median(np.abs(gap - np.median(gap)))))
    return max(min(scatters), _FLOOR_NS)


def _find_shifts(base: Calls, other: Calls) -> list[int]:
    """Return the shifts under which the calls agree; recordings begin and end apart."""
    inside = fitting_shifts(base, other)
    if inside:
        return inside[:_MOST_SHIFTS]
    most = min(len(other[0]) // 2, _MOST_SHIFTS)
    slack = len(base[0]) - len(other[0])
    outside = [*range(-most, 0), *range(slack + 1, slack + 1 + most)]
    return [s for s in outside if _is_same_sequence(base, other, s)]


def _is_same_sequence(base: Calls, other: Calls, shift: int) -> bool:
    first = max(0, -shift)
    last = min(len(other[0]), len(base[0]) - shift)
    return last > first and all(
        np.array_equal(base[k][first + shift : last + shift], other[k][first:last])
        for k in range(2)
    )


def _number_clusters(apart: Floats, size: int) -> Ints:
    """Number ranks whose nearest ranks are each other, far from all others (`NONE`: the rest)."""
    number = fill_none(len(apart))
    nearest = np.argsort(apart + np.diag(np.full(len(apart), -1.0)), axis=1, kind="stable")
    for k in range(len(apart)):
        members = np.sort(nearest[k, :size])
        if number[k] != NONE or k != members[0]:
            continue
        mutual = all(np.array_equal(np.sort(nearest[m, :size]), members) for m in members)
        others = np.setdiff1d(np.arange(len(apart)), members)
        within = apart[np.ix_(members, members)].max()
        if mutual and apart[np.ix_(members, others)].min() > APART * within:
            number[members] = k + 1
    return number


def stream_ordinals(rows: GuessedRows, chosen: Ints) -> Ints:
    """Return each call's stream, by order of first collective if numbers differ between ranks.

    A recording that begins later may see them in another order.
    """
    stream = read_numbers(rows.table["stream"], NONE)[chosen]
    pairs = Groups.by_keys([rows.rank[chosen], stream])
    used = Groups.by_keys(pairs.keys[:, 1])
    if (used.count == len(np.unique(rows.rank[chosen]))).all():
        return np.asarray(stream, np.int64)
    owner = np.column_stack([rows.rank[chosen], rows.cycle[chosen], stream])
    streams = Groups.by_keys(owner)
    first = streams.min(rows.order[chosen])
    ordinal = Groups.by_keys(streams.keys[:, :2]).rank_within(first)
    return ordinal[streams.group_ids]
