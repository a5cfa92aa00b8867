"""Which ranks others wait for on their own account, collective by collective: the one answer that
every table, blame chain and recommendation gives.

What the others wait in a collective is attributed to its late member, if that was late by its own
time. If collectives of other groups held it up, and it waited in them for most of that time, it is
attributed to whoever was late to the one that it waited in longest, and so on to the first cause:
of each wait as much as the shortest wait on the way, for nobody waits longer because of it.
What exceeds that, and what cannot be followed to a rank (slow transfers, a collective that some
rank's recording lacks, the beginning of a recording), is nobody's.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from htk.base.columns.arrow import mark_valid, read_booleans, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes, repeat_rows
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.core.analysis import Later
from htk.base.errors import MissingTable
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.own_time import (
    KINDS,
    OwnTime,
    fastest_member,
    own_time,
    subtract_fastest,
)
from htk.quantities.measures.collective_calls import CollectiveCalls

_ROUNDS = 64  # each goes twice as far back
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Blame:
    """A row for each call."""

    late: Mask  # the others waited for it, by its own doing or not
    held_up: Mask  # they did, but collectives of other groups took most of that time
    on_all_ranks: Mask  # every recorded rank of the group holds it
    cause: Ints  # of a late row: the row of the rank that this is attributed to (NONE: nobody)
    lateness: Ints
    excess: Ints  # its own time beyond the fastest member's, a column for each kind of it
    waited: Ints  # of a late row: what the others waited in this collective because of its cause
    limit: Ints  # of a late row: what each of the others can have waited because of its cause

    @cached_property
    def blamed(self) -> Mask:
        """Rows that are late by their own time."""
        return np.asarray(self.late & (self.cause == np.arange(len(self.cause))))

    @cached_property
    def cost(self) -> Ints:
        """Return how long all others waited because of a row, in its collective and in those that
        it held up, in ns."""
        return self._sum_attributed(self.waited)

    def beyond_limit(self, match: Ints, waited: Ints) -> Ints:
        """Return of a late row what the others waited in its collective, of `waited` by each row,
        beyond what its cause can have held them up for."""
        limit = np.full(int(match.max(initial=NONE)) + 2, _NO_LIMIT, np.int64)
        rows = np.flatnonzero(self.late)
        limit[match[rows]] = self.limit[rows]
        surplus = np.maximum(waited - limit[match], 0)
        surplus[rows] = 0
        total = np.zeros(len(limit), np.int64)
        np.add.at(total, match, surplus)
        return np.where(self.late, total[match], 0)

    @cached_property
    def collectives(self) -> Ints:
        """The number of collectives that this was in."""
        return self._sum_attributed(self.late.astype(np.int64))

    def _sum_attributed(self, values: Ints) -> Ints:
        rows = np.flatnonzero(self.cause != NONE)
        total = np.zeros(len(self.cause), np.int64)
        np.add.at(total, self.cause[rows], values[rows])
        return total


def blame_ranks(calls: CollectiveCalls, own_times: Later) -> Blame:
    """Return who is late by its own doing: not for links that are slow or peers that are late in
    its other groups, nor in what the recording of some rank does not hold, as of a cut file."""
    rows = calls.rows
    matches = calls.matches
    own = own_time(rows, calls.table)
    has_lateness = mark_valid(matches["lateness_ns"])
    lateness = read_numbers(matches["lateness_ns"], 0)
    common = _on_all_ranks(rows.group, read_numbers(matches["members_present"], 0))
    late = read_booleans(matches["blamed"]) & (calls.match != NONE)
    excess = np.zeros((rows.length, len(KINDS) + 1), np.int64)
    if late.any():
        fastest = fastest_member(own, calls.match, calls.waits.has_wait)
        excess = subtract_fastest(parts_of(calls, own_times), fastest)
    held_up = late & (2 * excess[:, KINDS.index("comm")] > lateness)
    peers = _held_up_in(own, rows, calls.waits.wait, lateness, np.flatnonzero(held_up))
    wait = calls.waits.wait
    cause, limit = _first_causes(calls.match, late & common, held_up, peers, has_lateness, wait)
    waited = np.where(late, read_numbers(matches["cost_ns"], 0), 0)
    blames = Blame(late, held_up, common, cause, lateness, excess, waited, limit)
    return replace(blames, waited=waited - blames.beyond_limit(calls.match, wait))


def parts_of(calls: CollectiveCalls, own_times: Later) -> Ints:
    """Return the own time before each call by kind, a column for each."""
    kept = calls.rows_of(own_times())
    return np.stack([read_numbers(kept[name]) for name in kept.column_names], axis=1)


def need_waits(calls: CollectiveCalls) -> None:
    """Raise MissingTable where no collective tells who waited."""
    if calls.waits.has_wait.any():
        return
    untimed = int(((calls.match != NONE) & ~calls.rows.timed).sum())
    if untimed:
        raise MissingTable(
            f"{untimed} calls of collectives were recorded without their "
            "times, so nobody is seen to wait",
            "kernels",
        )
    raise MissingTable(
        "no collective was found on two ranks; stragglers need the traces of all ranks of the "
        "job, opened together"
    )


def _first_causes(
    match: Ints, late: Mask, held_up: Mask, held_up_in: Ints, has_lateness: Mask, wait: Ints
) -> tuple[Ints, Ints]:
    """Return for each late row the row that this is attributed to: itself; of one that is held up
    the late row of the collective that it waited in, or, where that one was held up itself, of the
    one before (NONE: nobody's); and the shortest wait on the way. Who was last in a group's first
    collective has no own time there that would make it the cause of more."""
    late_row = fill_none(int(match.max(initial=NONE)) + 2)  # the last: no match
    rows = np.flatnonzero(late)
    late_row[match[rows]] = rows
    cause = np.where(late, np.arange(len(match)), NONE)
    waits = np.flatnonzero(late & held_up)
    peers = late_row[take_or(match, held_up_in[waits])]
    cause[waits] = np.where(take_or(has_lateness, peers, False), peers, NONE)
    limit = np.full(len(match) + 1, _NO_LIMIT, np.int64)
    limit[waits] = take_or(wait, held_up_in[waits], 0)
    cause = np.append(cause, NONE)
    open_ended = np.append(late & held_up, False)
    for _ in range(_ROUNDS):
        onward = (cause != NONE) & open_ended[cause]
        if not onward.any():
            break
        limit[onward] = np.minimum(limit[onward], limit[cause[onward]])
        cause[onward] = cause[cause[onward]]
    cause[(cause != NONE) & open_ended[cause]] = NONE  # they wait for each other
    return np.asarray(cause[:-1]), np.asarray(limit[:-1])


def _held_up_in(
    own: OwnTime, rows: CollectiveRows, wait: Ints, lateness: Ints, wanted: Ints
) -> Ints:
    """Return the row of the longest wait in other groups' collectives within the own time of each
    wanted row, on its lane, where such waits are most of its lateness (NONE: transfers are)."""
    longest = fill_none(len(wait))
    waits = np.flatnonzero((wait > 0) & rows.timed)
    segment = Groups.by_keys([own.lane, rows.cycle]).group_ids
    ends = SegmentTimes(segment[waits], rows.end[waits])
    _, low = ends.count_until(segment[wanted], own.start[wanted])
    _, high = ends.count_until(segment[wanted], own.end[wanted])
    count = np.maximum(high - low, 0)
    asker, within = repeat_rows(count)
    candidate = waits[ends.order[low[asker] + within]]
    other = rows.group[candidate] != rows.group[wanted[asker]]
    asker = asker[other]
    candidate = candidate[other]
    order = order_by(asker, wait[candidate])
    longest[wanted[asker[order]]] = candidate[order]  # the last one written is the longest
    waited = np.zeros(len(wait), np.int64)
    np.add.at(waited, wanted[asker], wait[candidate])
    longest[2 * waited <= lateness] = NONE
    return longest


def _on_all_ranks(group: Ints, present: Ints) -> Mask:
    """Return the collectives that every recorded rank of their group holds.

    A rank whose file was cut is late to fewer of them, and makes others look later than itself.
    """
    groups = Groups.by_keys(group)
    return np.asarray(present == groups.max(present.astype(np.int64))[groups.group_ids])
