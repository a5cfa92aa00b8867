"""Which ranks others wait for on their own account, collective by collective."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers, truths, valid
from htk.columns.groups import Groups
from htk.columns.segments import SegmentTimes
from htk.columns.types import NONE, Ints, Mask
from htk.core.recording_hints import hint
from htk.derived.match import CollectiveRows
from htk.errors import MissingTable
from htk.measures.own_time import KINDS, OwnTime, beyond, fastest_member, own_time


@dataclass(frozen=True)
class Blame:
    """A row for each of `collectives`."""

    rows: CollectiveRows
    matched: Mask
    blamed: Mask  # the others waited for its own time, and every rank's recording holds it
    held_up: Mask  # they did, but collectives of other groups took most of that time
    on_all_ranks: Mask  # every recorded rank of the group holds it
    held_up_in: Ints  # where it is held up: the row of its longest wait in those (NONE: in none)
    lateness: Ints
    cost: Ints  # what others waited for it
    excess: Ints  # its own time beyond the fastest member's, a column for each kind of it


def blame(collectives: pa.Table, matches: pa.Table, activities: pa.Table) -> Blame:
    """Return who is late by its own doing: not for links that are slow or peers that are late in
    its other groups, nor in what the recording of some rank does not hold, as of a cut file."""
    rows = CollectiveRows(collectives)
    matched = valid(matches["wait_ns"])
    if not matched.any():
        if (matches_of_several := valid(matches["match"]) & ~rows.timed).any():
            raise MissingTable(
                f"{int(matches_of_several.sum())} calls of collectives were recorded without their "
                f"times, so nobody is seen to wait; times need {hint('kernels')}"
            )
        raise MissingTable(
            "no collective was found on two ranks; stragglers need the traces of all ranks of the "
            "job, opened together"
        )
    own = own_time(rows, collectives)
    fastest = fastest_member(own, numbers(matches["match"], NONE), matched)
    excess = beyond(own.parts(activities), fastest)
    lateness = numbers(matches["lateness_ns"], 0)
    late = truths(matches["blamed"])
    held_up = late & (2 * excess[:, KINDS.index("comm")] > lateness)
    common = matched & _on_all_ranks(rows.group, numbers(matches["members_present"], 0))
    blamed = late & ~held_up & common
    cost = np.where(blamed, numbers(matches["cost_ns"], 0), 0)
    held_up_in = _longest_waits(own, rows, numbers(matches["wait_ns"], 0), np.flatnonzero(held_up))
    return Blame(rows, matched, blamed, held_up, common, held_up_in, lateness, cost, excess)


def first_causes(blames: Blame, matches: pa.Table) -> Ints:
    """Return for each row that is held up the row that is blamed for it: that of the collective it
    waited in, or, where that one was held up itself, of the one before (NONE: nobody's)."""
    match = numbers(matches["match"], NONE).astype(np.int64)
    late_row = np.full(int(match.max(initial=NONE)) + 2, NONE, np.int64)  # the last: no match
    rows = np.flatnonzero((blames.blamed | blames.held_up) & (match != NONE))
    late_row[match[rows]] = rows
    cause = np.where(blames.held_up, late_row[np.append(match, NONE)[blames.held_up_in]], NONE)
    cause = np.append(cause, NONE)
    held_up = np.append(blames.held_up, False)
    for _ in range(64):  # each round goes twice as far back
        onward = (cause != NONE) & held_up[cause]
        if not onward.any():
            break
        cause[onward] = cause[cause[onward]]
    return np.asarray(cause[:-1])


def _longest_waits(own: OwnTime, rows: CollectiveRows, wait: Ints, wanted: Ints) -> Ints:
    """Return the row of the longest wait within the own time of each wanted row, on its lane."""
    longest = np.full(len(wait), NONE, np.int64)
    waits = np.flatnonzero((wait > 0) & rows.timed)
    segment = Groups.by_keys(np.column_stack([own.lane, rows.cycle])).group_ids
    ends = SegmentTimes(segment[waits], rows.end[waits])
    _, low = ends.count_until(segment[wanted], own.start[wanted])
    _, high = ends.count_until(segment[wanted], own.end[wanted])
    count = np.maximum(high - low, 0)
    asker = np.repeat(np.arange(len(wanted)), count)
    within = np.arange(len(asker)) - np.repeat(np.cumsum(count) - count, count)
    candidate = waits[ends.order[low[asker] + within]]
    other = rows.group[candidate] != rows.group[wanted[asker]]
    asker, candidate = asker[other], candidate[other]
    order = np.lexsort((wait[candidate], asker))
    longest[wanted[asker[order]]] = candidate[order]  # the last one written is the longest
    return longest


def _on_all_ranks(group: Ints, present: Ints) -> Mask:
    """Return the collectives that every recorded rank of their group holds.

    A rank whose file was cut is late to fewer of them, and makes others look later than itself.
    """
    groups = Groups.by_keys(group)
    return np.asarray(present == groups.max(present.astype(np.int64))[groups.group_ids])
