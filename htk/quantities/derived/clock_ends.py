"""Ends of matched collectives that all ranks leave at once: what clocks are compared by."""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.names.collectives import SYNCHRONISING
from htk.quantities.derived.clock_fit import FLOOR_NS, Ends, fit_clocks
from htk.quantities.derived.collective_rows import CollectiveRows

_MESSAGES = ("send", "recv", "send_recv")
_NEAREST = 0.25  # of the messages between two ranks
_APART_NS = 20_000  # ends of one collective lie no farther apart
_APART = 5.0  # times the scatter of the others
_UNSURE_NS = 100_000  # of two processes' times on one clock
_UNSURE = 1e-4  # the same, of the time between them
_OFTEN = 0.1  # of a group's matches that cannot be: then none of them is one


def common_ends(rows: CollectiveRows, match: Ints, ranks: Ints) -> Ends:
    """Return the ends of synchronising collectives that several ranks recorded."""
    return _collect_ends(rows, match, ranks, common_end_rows(rows, match))


def with_ends_of_messages(
    rows: CollectiveRows, match: Ints, ranks: Ints, ends: Ends, clock: Ints
) -> Ends | None:
    """Return the ends, and those of messages between clocks that no collective compares; None:
    there are no such messages.

    A sender that need not wait for the receiver ends before it: of each two ranks those messages
    count whose ends are nearest to that.
    """
    lead = ends.components(clock)[clock]
    messages = np.flatnonzero((match != NONE) & rows.timed & rows.is_type(*_MESSAGES))
    both = Groups.by_keys(match[messages])
    first = both.min(messages)[both.count == 2]
    second = both.max(messages)[both.count == 2]
    first_set = lead[np.searchsorted(ranks, rows.rank[first])]
    second_set = lead[np.searchsorted(ranks, rows.rank[second])]
    first = first[first_set != second_set]
    second = second[first_set != second_set]
    if not len(first):
        return None
    swapped = rows.is_type("recv")[first]
    sender = np.where(swapped, second, first)
    receiver = np.where(swapped, first, second)
    after = rows.end[receiver] - rows.end[sender]
    ways = Groups.by_keys([rows.rank[sender], rows.rank[receiver]])
    near = after <= ways.quantiles(after, [_NEAREST])[0][ways.group_ids] + FLOOR_NS
    chosen = [common_end_rows(rows, match), sender[near], receiver[near]]
    return _collect_ends(rows, match, ranks, np.concatenate(chosen))


def _collect_ends(rows: CollectiveRows, match: Ints, ranks: Ints, chosen: Ints) -> Ends:
    """Return the ends of some rows, by their match."""
    process = np.searchsorted(ranks, rows.rank[chosen])
    collective = Groups.by_keys(match[chosen]).group_ids
    order = order_by(collective, process)
    chosen = chosen[order]
    return Ends(collective[order], process[order], rows.start[chosen], rows.end[chosen], len(ranks))


def common_end_rows(rows: CollectiveRows, match: Ints) -> Ints:
    """Return the rows of synchronising collectives that several ranks recorded."""
    use = (match != NONE) & rows.timed & (rows.rank >= 0) & rows.is_type(*SYNCHRONISING)
    chosen = np.flatnonzero(use)
    several = Groups.by_keys(match[chosen])
    return chosen[(several.count > 1)[several.group_ids]]


@dataclass(frozen=True)
class CertainEnds:
    """Ends of collectives whose match is no guess, and the ranks whose clocks they compare."""

    ends: Ends
    ranks: Ints


def certain_ends(rows: CollectiveRows, certain_match: Ints) -> CertainEnds:
    """Return the ends of the matches that are certain, of all ranks that have any call."""
    ranks = np.unique(rows.rank[rows.rank >= 0])
    return CertainEnds(common_ends(rows, certain_match, ranks), ranks)


def mark_contradicted(
    rows: CollectiveRows, match: Ints, guessed: Mask, certain: CertainEnds
) -> Mask:
    """Return the guessed matches that end at different times on the clocks of the certain ones."""
    nothing = np.zeros(len(match), bool)
    chosen = np.flatnonzero(guessed & (match != NONE) & rows.timed)
    if not len(certain.ends.count) or not len(chosen):
        return nothing
    fitted = fit_clocks(certain.ends, np.arange(len(certain.ranks)))
    shift, reference, drift = fitted.shifts()
    process = np.searchsorted(certain.ranks, rows.rank[chosen])
    end = rows.end[chosen]
    turn = np.rint(drift[process] * (end - reference[process])).astype(np.int64)
    end = end + shift[process] + turn
    members = Groups.by_keys(match[chosen])
    lead = fitted.lead[process]
    comparable = members.min(lead) == members.max(lead)
    far = members.max(end) - members.min(end) > max(_APART_NS, _APART * fitted.scatter)
    nothing[chosen] = (comparable & far)[members.group_ids]
    return nothing


def mark_impossible(rows: CollectiveRows, match: Ints, group: Ints, host: Ints) -> Mask:
    """Return the matches in which one ends before another has begun, on the clock of their host.

    `group`, `host`: a number for each row (`NONE`: unknown). What a process is off all the time is
    left out. Of a group with many such matches none is believed: some overlap by chance.
    """
    nothing = np.zeros(len(match), bool)
    checked = (match != NONE) & rows.timed & (host != NONE)
    checked &= rows.is_type(*SYNCHRONISING, "send", "recv")
    chosen = np.flatnonzero(checked)
    late = _measure_apart(rows, match, host, chosen, np.zeros(len(chosen), np.int64)) > _UNSURE_NS
    if not late.any():
        return nothing
    chosen = chosen[np.isin(group[chosen], group[chosen[late]])]
    lanes = Groups.by_keys([group[chosen], rows.rank[chosen]])
    ends = Groups.by_keys([match[chosen], host[chosen]])
    after = rows.end[chosen] - ends.min(rows.end[chosen])[ends.group_ids]
    usual = lanes.lower_medians(after)[lanes.group_ids].astype(np.int64)
    groups = Groups.by_keys(group[chosen])
    lasted = groups.max(rows.end[chosen]) - groups.min(rows.start[chosen])
    unsure = _UNSURE_NS + _UNSURE * lasted[groups.group_ids]
    wrong = _measure_apart(rows, match, host, chosen, usual) > unsure
    often = groups.sum(wrong.astype(np.int64)) > _OFTEN * groups.count
    refused = np.unique(match[chosen[wrong | often[groups.group_ids]]])
    return np.isin(match, refused)


def _measure_apart(
    rows: CollectiveRows, match: Ints, host: Ints, chosen: Ints, ahead: Ints
) -> Ints:
    """Return how long before the last of its match has begun one has ended, row by row; a message
    can be received no earlier, and be sent before anybody waits for it."""
    start = rows.start[chosen] - ahead
    end = rows.end[chosen] - ahead
    start = np.where(rows.is_type("recv")[chosen], np.iinfo(np.int64).min // 4, start)
    end = np.where(rows.is_type("send")[chosen], np.iinfo(np.int64).max // 4, end)
    members = Groups.by_keys([match[chosen], host[chosen]])
    return np.asarray((members.max(start) - members.min(end))[members.group_ids])
