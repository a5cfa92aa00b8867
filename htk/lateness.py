"""Who is late to a collective, and what that costs the others.

Lateness of a rank at a collective: its own time since the previous collective of the group, less
the smallest of the group. The wait of the others is laid at the door of the rank that is latest in
that sense; at the first collective of a group, where there is no own time yet, of the rank that
started last. What some rank began before the recording of another is blamed on nobody.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htk.arrow import truths
from htk.calls import Calls
from htk.collective_names import SYNCHRONISING
from htk.groups import Groups

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
NONE = -1


@dataclass(frozen=True)
class Lateness:
    """For each row of `collectives`."""

    own: Ints  # own time since the previous collective of its group (NONE: unknown)
    late: Ints  # lateness (NONE: unknown)
    cost: Ints  # what others waited because of it
    blamed: Mask  # it is the one that the others waited for


def lateness(calls: Calls) -> Lateness:
    length = calls.rows.length
    own, late = np.full(length, NONE, np.int64), np.full(length, NONE, np.int64)
    cost, blamed = np.zeros(length, np.int64), np.zeros(length, bool)
    judged = calls.waits.known & calls.rows.is_type(*SYNCHRONISING)
    chosen = np.flatnonzero(judged)
    if not len(chosen):
        return Lateness(own, late, cost, blamed)
    own[chosen] = _own_time(calls, chosen)
    members = Groups.of(calls.match[chosen])
    all_known = members.min(own[chosen]) != NONE
    least = members.min(own[chosen])[members.which]
    late[chosen] = np.where(all_known[members.which], own[chosen] - least, NONE)
    guilty = _guilty(calls, chosen, members, late)
    fair = ~truths(calls.matches["before_window"])[chosen]
    waited = members.sum(calls.waits.wait[chosen])[members.which] - calls.waits.wait[chosen]
    mine = guilty & fair & (waited > 0)
    blamed[chosen] = mine
    cost[chosen] = np.where(mine, waited, 0)
    return Lateness(own, late, cost, blamed)


def _own_time(calls: Calls, chosen: Ints) -> Ints:
    """From the end of the group's previous collective on a rank to the start of this one."""
    rank, group = calls.rows.rank[chosen], calls.rows.group[chosen]
    start, end = calls.start[chosen], calls.end[chosen]
    cycle = calls.rows.cycle[chosen]
    order = np.lexsort((start, group, cycle, rank))
    before = np.append(NONE, order[:-1])
    same = np.zeros(len(order), bool)
    same[1:] = (
        (rank[order[1:]] == rank[order[:-1]])
        & (group[order[1:]] == group[order[:-1]])
        & (cycle[order[1:]] == cycle[order[:-1]])
    )
    found = np.full(len(order), NONE, np.int64)
    gap = np.maximum(start[order] - end[before], 0)
    found[order] = np.where(same, gap, NONE)
    return found


def _guilty(calls: Calls, chosen: Ints, members: Groups, late: Ints) -> Mask:
    """One row of each collective: the latest by lateness, else by start; of several the first."""
    known = members.min(late[chosen]) != NONE
    measure = np.where(known[members.which], late[chosen], calls.start[chosen])
    order = np.lexsort((-calls.rows.rank[chosen], measure, members.which))
    ends = np.cumsum(members.count) - 1
    guilty = np.zeros(len(chosen), bool)
    guilty[order[ends]] = True
    return guilty
