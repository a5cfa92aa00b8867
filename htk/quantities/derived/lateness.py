"""The straggler of each collective, and what its lateness costs the others.

Lateness of a rank at a collective: its own time since the previous collective of the group, less
the smallest of the group. The wait of the others is charged to the rank that is latest in that
sense; at the first collective of a group, where there is no own time yet, to the rank that started
last. What some rank began before the recording of another is blamed on nobody.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.names.collectives import SYNCHRONISING
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.waits import NEVER, Waits


@dataclass(frozen=True)
class Lateness:
    """For each row of `collectives`."""

    late: Ints  # lateness (NONE: unknown)
    cost: Ints  # what others waited because of it
    is_straggler: Mask  # it is the one that the others waited for


def compute_lateness(
    rows: CollectiveRows,
    match: Ints,
    waited: Waits,
    started_before_window: Mask,
    start: Ints,
    end: Ints,
) -> Lateness:
    """Return the lateness of matched synchronising collectives and what it costs the others.

    Calls that started before the recording of another rank did (`started_before_window`) blame
    nobody.
    """
    late = fill_none(len(match))
    cost = np.zeros(len(match), np.int64)
    is_straggler = np.zeros(len(match), bool)
    chosen = np.flatnonzero(waited.has_wait & rows.is_type(*SYNCHRONISING))
    if not len(chosen):
        return Lateness(late, cost, is_straggler)
    own = _own_time(rows, chosen, start[chosen], end[chosen])
    members = Groups.by_keys(match[chosen])
    least = members.min(own)[members.group_ids]
    behind = np.where(least != NONE, own - least, NONE)
    late[chosen] = behind
    measure = np.where(least != NONE, behind, start[chosen])
    latest = _mark_latest(rows.rank[chosen], members, measure)
    others = members.sum(waited.wait[chosen])[members.group_ids] - waited.wait[chosen]
    latest &= ~started_before_window[chosen] & (others > 0)
    latest &= behind != 0  # no later than anyone by its own time
    is_straggler[chosen] = latest
    cost[chosen] = np.where(latest, others, 0)
    return Lateness(late, cost, is_straggler)


def _own_time(rows: CollectiveRows, chosen: Ints, start: Ints, end: Ints) -> Ints:
    """Return the time from the end of the group's previous collective on a rank to the start of
    this one, in ns."""
    who = np.column_stack([rows.rank[chosen], rows.cycle[chosen], rows.group[chosen]])
    lane = Groups.by_keys(who).group_ids
    order = order_by(lane, start)
    same = np.append(False, lane[order][1:] == lane[order][:-1])
    gap = np.maximum(start[order] - np.append(NONE, end[order][:-1]), 0)
    own_time = np.empty(len(order), np.int64)
    own_time[order] = np.where(same, gap, NONE)
    return own_time


def _mark_latest(rank: Ints, members: Groups, measure: Ints) -> Mask:
    """Return one row of each collective: the largest measure; of several the lowest rank."""
    order = order_by(members.group_ids, measure, -rank)
    latest = np.zeros(len(rank), bool)
    latest[order[np.cumsum(members.count) - 1]] = True
    return latest


def before_window(rows: CollectiveRows, match: Ints, start: Ints, began: Ints) -> Mask:
    """Return which collectives some rank began before another's recording, on the given clocks."""
    before = np.zeros(rows.length, bool)
    chosen = np.flatnonzero((match != NONE) & rows.timed)
    if not len(chosen):
        return before
    groups = Groups.by_keys(match[chosen])
    before[chosen] = (groups.min(start[chosen]) < groups.max(began[chosen]))[groups.group_ids]
    return before


def window_starts(rows: CollectiveRows, windows: pa.Table) -> Ints:
    """Return when the recording of each row's rank and cycle began, in ns (`NEVER`: unknown)."""
    rank = read_numbers(windows["rank"], NONE)
    cycle = read_numbers(windows["cycle"], 0)
    start = read_numbers(windows["start_ns"])
    both = np.concatenate(
        [np.stack([rows.rank, rows.cycle], axis=1), np.stack([rank, cycle], axis=1)]
    )
    groups = Groups.by_keys(both)
    first = np.full(len(groups), np.iinfo(np.int64).max)
    np.minimum.at(first, groups.group_ids[rows.length :], start)
    began = first[groups.group_ids[: rows.length]]
    return np.where(began == np.iinfo(np.int64).max, NEVER, began)
