"""Matching: which collectives of different ranks are one, and each rank's wait in it.

Matched by Comms Id; else by group and sequence number; else by order within the group, checked by
type and size. Messages are matched by their order between two ranks. A rank that misses calls at
either end of its recording, lacks one in the middle or has one too many is aligned by what the
calls are; what has no counterpart stays unmatched and says why. Everything is linear in the number
of collectives; Python loops run over groups and ranks, not over collectives.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    codes_of,
    decode_texts,
    mark_valid,
    match_texts,
    number_or_null,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.schema import INT32, INT64
from htk.base.schema.comm import COLLECTIVE_MATCHES
from htk.quantities.derived.clock_ends import (
    CertainEnds,
    certain_ends,
    mark_contradicted,
    mark_impossible,
)
from htk.quantities.derived.collective_rows import MESSAGES, SILENT, CollectiveRows, number_by_order
from htk.quantities.derived.lateness import before_window, compute_lateness, window_starts
from htk.quantities.derived.match_reasons import FoundMatches, list_reasons
from htk.quantities.derived.recorded import recorded_hosts
from htk.quantities.derived.unrecorded import depends_on_all, short_of_members, with_undetermined
from htk.quantities.derived.waits import Waits, measure_waits

BY = ("comms_id", "sequence", "order")


def collective_matches(collectives: pa.Table, rank_windows: pa.Table, ranks: pa.Table) -> pa.Table:
    """Return the match of each collective, row by row, and its waits on the ranks' own clocks."""
    return matches_of(CollectiveRows(collectives), rank_windows, ranks)


def matches_of(
    rows: CollectiveRows,
    rank_windows: pa.Table,
    ranks: pa.Table,
    certain: CertainEnds | None = None,
) -> pa.Table:
    """Return the matches of rows that hold all calls of their groups, numbered among themselves;
    `certain`: the ends of all groups of the job by which guesses are judged."""
    rows.host_of = recorded_hosts(ranks)
    by, slot = _find_slots(rows)
    matched = _number_matches(rows, slot)
    guessed = (by == 2) & rows.unknown_group
    if guessed.any():
        certain = certain or certain_ends(rows, np.where(guessed, NONE, matched.match))
        slot[mark_contradicted(rows, matched.match, guessed, certain)] = NONE
        matched = _number_matches(rows, slot)
    apart = mark_impossible(rows, matched.match, rows.group, rows.host)
    if apart.any():
        slot[apart] = NONE
        matched = replace(_number_matches(rows, slot), apart=apart)
    waited = measure_waits(rows, matched.match, rows.start, rows.end)
    short = short_of_members(rows, matched.present, ranks)
    lacking = waited.has_wait & short & depends_on_all(rows)
    waited = with_undetermined(rows, waited, lacking, short, ranks)
    began = window_starts(rows, rank_windows)
    before = before_window(rows, matched.match, rows.start, began)
    has_match = matched.match != NONE
    columns = {
        "match": build_numbers(matched.match, INT64, has_match),
        "matched_by": decode_texts(np.where(has_match, by, NONE), pa.array(BY)),
        "guessed": build_booleans(has_match & guessed),
        "reason": list_reasons(rows, matched, waited, lacking),
        "members_expected": number_or_null(rows.expected, INT32),
        "members_present": build_numbers(matched.present, INT32, has_match | waited.has_wait),
        "before_window": build_booleans(before),
        **timed_columns(rows, matched.match, waited, before, rows.start, rows.end),
    }
    return build_table(COLLECTIVE_MATCHES, columns, rows.length)


def timed_columns(
    rows: CollectiveRows, match: Ints, waited: Waits, before: Mask, start: Ints, end: Ints
) -> dict[str, pa.Array]:
    """Return what depends on the clocks: waits, and who is late."""
    late = compute_lateness(rows, match, waited, before, start, end)
    return {
        "common_start_ns": build_numbers(waited.last_dependency_start, INT64, waited.has_wait),
        "wait_ns": build_numbers(waited.wait, INT64, waited.has_wait),
        "transfer_ns": build_numbers(waited.transfer, INT64, waited.has_wait),
        "undetermined_ns": build_numbers(*_build_determined(rows, waited, end - start)),
        "span_ns": build_numbers(waited.span, INT64, waited.has_wait & (waited.span != NONE)),
        "last_rank": number_or_null(waited.last_rank, INT32),
        "lateness_ns": number_or_null(late.late, INT64),
        "blamed": build_booleans(late.is_straggler),
        "cost_ns": build_numbers(late.cost, INT64),
    }


def _build_determined(
    rows: CollectiveRows, waited: Waits, duration: Ints
) -> tuple[Ints, pa.DataType, Mask]:
    """Return time of wait or transfer, in ns; all of a call unmatched or unrecorded by others."""
    several = rows.timed & (rows.group_size != 1) & ~rows.is_type(*SILENT)
    undetermined = np.where(waited.has_wait, waited.undetermined, duration)
    return undetermined, INT64, several


def _find_slots(rows: CollectiveRows) -> tuple[Ints, Ints]:
    """Return how each row is matched (a number into BY) and its slot (NONE: it takes no part). Rows
    of different ranks that share a slot are one collective."""
    by = fill_none(rows.length)
    batch = mark_valid(rows.table["messages"])
    part = ~rows.is_type(*SILENT) & (rows.rank >= 0) & ~batch
    message = rows.is_type(*MESSAGES)
    comms, _ = codes_of(rows.table["comms_id"])
    by[part] = 2
    countable = match_texts(rows.table["seq_kind"], "plan".__ne__)
    by[part & ~message & countable & (rows.seq >= 0)] = 1
    by[part & ~message & (comms >= 0)] = 0
    of_function = match_texts(rows.table["seq_kind"], "function".__eq__)
    function = np.where(of_function, rows.type, NONE)
    slot = fill_none(rows.length)
    unnamed = rows.unnamed_group
    _number_slots(slot, by == 0, rows, np.stack([comms.astype(np.int64)], axis=1))
    numbered = np.stack([rows.group, unnamed, function, rows.seq], axis=1)
    _number_slots(slot, (by == 1) & (unnamed != NONE), rows, numbered)
    number_by_order(slot, (by == 2) & (unnamed != NONE), rows)
    met = rows.meetings
    if len(met.call):
        calls = np.unique(met.call)
        linked = met.components(rows.length)[calls]
        of_rank = Groups.by_keys([linked, rows.rank[calls]])
        repeated = np.unique(of_rank.keys[of_rank.count > 1, 0])  # one goes over into the next
        by[calls] = 2
        slot[calls] = np.where(np.isin(linked, repeated), NONE, linked + slot.max() + 1)
    return by, slot


def _number_slots(slot: Ints, eligible: Mask, rows: CollectiveRows, key: Ints) -> None:
    """Assign slots by a key alike on all ranks; the k-th call of a rank with a key is the k-th."""
    chosen = np.flatnonzero(eligible)
    if not len(chosen):
        return
    same = Groups.by_keys([key[chosen], rows.rank[chosen]])
    occurrence = same.rank_within(rows.order[chosen])
    slots = Groups.by_keys([key[chosen], occurrence]).group_ids
    slot[chosen] = slots + slot.max() + 1


def _number_matches(rows: CollectiveRows, slot: Ints) -> FoundMatches:
    """Return the slots that two or more ranks share, numbered by their first start; of those that
    start at once, by their first row."""
    match = fill_none(rows.length)
    present = np.zeros(rows.length, np.int64)
    met = rows.meetings.call
    too_many = np.zeros(rows.length, bool)
    matches = FoundMatches(match, present, too_many, np.zeros(rows.length, bool))
    chosen = np.flatnonzero(slot >= 0)
    if not len(chosen):
        return matches
    shared = Groups.by_keys(slot[chosen])
    most = np.where(rows.group_size > 0, rows.group_size, shared.count.max())[chosen]
    beyond = shared.count > shared.max(most)
    several = (shared.count > 1) & ~beyond  # a rank is in a slot once
    numbered = fill_none(len(shared))
    wanted = np.flatnonzero(several)
    begun, row = _first_start(rows, chosen, shared)
    numbered[wanted[order_by(begun[wanted], row[wanted])]] = np.arange(len(wanted))
    match[chosen] = numbered[shared.group_ids]
    present[chosen] = shared.count[shared.group_ids]
    too_many[chosen] = beyond[shared.group_ids]
    present[np.unique(met)] = 1 + np.bincount(met)[np.unique(met)]
    return matches


def _first_start(rows: CollectiveRows, chosen: Ints, members: Groups) -> tuple[Ints, Ints]:
    """Return the first start and the first row of each group of chosen rows."""
    starts = np.where(rows.order[chosen] >= 0, rows.order[chosen], 2**62)
    return members.min(starts), chosen[members.first_row]


def first_starts(rows: CollectiveRows, match: Ints) -> tuple[Ints, Ints]:
    """Return what matches are numbered by: the first start and the first row of each."""
    chosen = np.flatnonzero(match != NONE)
    return _first_start(rows, chosen, Groups.by_keys(match[chosen]))
