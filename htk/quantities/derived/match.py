"""Matching: which collectives of different ranks are one, and each rank's wait in it.

Matched by Comms Id; else by group and sequence number; else by order within the group, checked by
type and size. Messages are matched by their order between two ranks. A rank that misses calls at
either end of its recording, lacks one in the middle or has one too many is aligned by what the
calls are; what has no counterpart stays unmatched and says why. Everything is linear in the number
of collectives; Python loops run over groups and ranks, not over collectives.
"""

import json
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.align import aligned_positions
from htk.base.columns.arrow import (
    alphabetical,
    boolean,
    build,
    codes_of,
    matching,
    number,
    numbers,
    text,
    valid,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import ordered
from htk.base.columns.segments import equal_runs
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask
from htk.base.schema.comm import COLLECTIVE_MATCHES
from htk.quantities.derived.clock_ends import (
    CertainEnds,
    certain_ends,
    contradicted,
    impossible,
)
from htk.quantities.derived.lateness import before_window, lateness, window_starts
from htk.quantities.derived.match_reasons import SILENT, reasons
from htk.quantities.derived.messages import Meetings, meetings, peers_of_calls
from htk.quantities.derived.unnamed_groups import stream_ordinals, unnamed_groups
from htk.quantities.derived.unrecorded import (
    depends_on_all,
    recorded_hosts,
    short_of_members,
    with_undetermined,
)
from htk.quantities.derived.waits import Waits, waits

_MESSAGES = ("send", "recv")
_SIZED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", *_MESSAGES)
_ANYTHING = ("unknown", "send_recv", "coalesced")  # a kernel's name may say no more
BY = ("comms_id", "sequence", "order")


def collective_matches(collectives: pa.Table, rank_windows: pa.Table, ranks: pa.Table) -> pa.Table:
    """Return the match of each collective, row by row, and its waits on the ranks' own clocks."""
    return matches_of(CollectiveRows(collectives), rank_windows, ranks)


def matches_of(
    rows: "CollectiveRows",
    rank_windows: pa.Table,
    ranks: pa.Table,
    certain: CertainEnds | None = None,
) -> pa.Table:
    """Return the matches of rows that hold all calls of their groups, numbered among themselves;
    `certain`: the ends of all groups of the job by which guesses are judged."""
    rows.host_of = recorded_hosts(ranks)
    by, slot = _slots(rows)
    matched = _matched(rows, slot)
    guessed = (by == 2) & rows.unknown_group
    if guessed.any():
        certain = certain or certain_ends(rows, np.where(guessed, NONE, matched.match))  # pyright: ignore[reportArgumentType]
        slot[contradicted(rows, matched.match, guessed, certain)] = NONE  # pyright: ignore[reportArgumentType]
        matched = _matched(rows, slot)
    apart = impossible(rows, matched.match, rows.group, rows.host)  # pyright: ignore[reportArgumentType]
    if apart.any():
        slot[apart] = NONE
        matched = replace(_matched(rows, slot), apart=apart)
    waited = waits(rows, matched.match, rows.start, rows.end)  # pyright: ignore[reportArgumentType]
    short = short_of_members(rows, matched.present, ranks)  # pyright: ignore[reportArgumentType]
    lacking = waited.has_wait & short & depends_on_all(rows)  # pyright: ignore[reportArgumentType]
    waited = with_undetermined(rows, waited, lacking, short, ranks)  # pyright: ignore[reportArgumentType]
    began = window_starts(rows, rank_windows)  # pyright: ignore[reportArgumentType]
    before = before_window(rows, matched.match, rows.start, began)  # pyright: ignore[reportArgumentType]
    has_match = matched.match != NONE
    columns = {
        "match": number(matched.match, pa.int64(), has_match),
        "matched_by": text(np.where(has_match, by, NONE), pa.array(BY)),
        "guessed": boolean(has_match & guessed),
        "reason": reasons(rows, matched, waited, lacking),  # pyright: ignore[reportArgumentType]
        "members_expected": number(rows.expected, pa.int32(), rows.expected >= 0),
        "members_present": number(matched.present, pa.int32(), has_match | waited.has_wait),
        "before_window": boolean(before),
        **timed_columns(rows, matched.match, waited, before, rows.start, rows.end),
    }
    return build(COLLECTIVE_MATCHES, columns, rows.length)


def timed_columns(
    rows: "CollectiveRows", match: Ints, waited: Waits, before: Mask, start: Ints, end: Ints
) -> dict[str, pa.Array]:
    """Return what depends on the clocks: waits, and who is late."""
    late = lateness(rows, match, waited, before, start, end)  # pyright: ignore[reportArgumentType]
    return {
        "common_start_ns": number(waited.last_dependency_start, pa.int64(), waited.has_wait),
        "wait_ns": number(waited.wait, pa.int64(), waited.has_wait),
        "transfer_ns": number(waited.transfer, pa.int64(), waited.has_wait),
        "undetermined_ns": number(*_undetermined(rows, waited, end - start)),
        "span_ns": number(waited.span, pa.int64(), waited.has_wait & (waited.span != NONE)),
        "last_rank": number(waited.last_rank, pa.int32(), waited.last_rank >= 0),
        "lateness_ns": number(late.late, pa.int64(), late.late >= 0),
        "blamed": boolean(late.is_straggler),
        "cost_ns": number(late.cost, pa.int64()),
    }


def _undetermined(
    rows: "CollectiveRows", waited: Waits, duration: Ints
) -> tuple[Ints, pa.DataType, Mask]:
    """Return time of wait or transfer, in ns; all of a call unmatched or unrecorded by others."""
    several = rows.timed & (rows.group_size != 1) & ~rows.is_type(*SILENT)
    undetermined = np.where(waited.has_wait, waited.undetermined, duration)
    return undetermined, pa.int64(), several


class CollectiveRows:
    """The columns of `collectives` that matching reads, as NumPy."""

    def __init__(self, table: pa.Table, highest_rank: int | None = None) -> None:
        self.table = table
        self.length = table.num_rows
        rank, comm_rank = numbers(table["rank"], NONE), numbers(table["comm_rank"], NONE)
        self.rank = np.where(rank >= 0, rank, comm_rank).astype(np.int64)
        own_highest = int(self.rank.max(initial=-1))
        self.highest_rank = own_highest if highest_rank is None else highest_rank  # of all groups
        self.cycle = numbers(table["cycle"], 0).astype(np.int64)
        self.start, self.end = (
            numbers(table["start_ns"], NO_TIME),
            numbers(table["end_ns"], NO_TIME),
        )
        real = matching(table["timing"], lambda t: t in ("gpu", "cpu"))
        self.timed: Mask = real & (self.start > NO_TIME) & (self.end >= self.start)
        self.group_size = numbers(table["group_size"], NONE).astype(np.int64)
        self.root = numbers(table["root"], NONE).astype(np.int64)
        self.peer = numbers(table["peer"], NONE).astype(np.int64)
        self.seq = numbers(table["seq"], NONE)
        codes, names = codes_of(table["type"])
        self.type, self.types = alphabetical(codes, names), sorted(names.to_pylist())
        self.host_of: dict[int, str] = {}  # where matching is told them

    def share_host(self, rank: int, other: int) -> bool:
        """Return whether two ranks are known to run on one host."""
        return rank in self.host_of and self.host_of[rank] == self.host_of.get(other)

    @property
    def host(self) -> Ints:
        """Return a number for the host of each row's rank (`NONE`: unknown)."""
        numbers_of = {name: k for k, name in enumerate(dict.fromkeys(self.host_of.values()))}
        ranks, row = np.unique(self.rank, return_inverse=True)
        hosts = [numbers_of.get(self.host_of.get(rank, ""), NONE) for rank in ranks.tolist()]
        return np.array(hosts, np.int64)[row.ravel()]

    def is_type(self, *wanted: str) -> Mask:
        return np.isin(self.type, [k for k, t in enumerate(self.types) if t in wanted])

    @cached_property
    def order(self) -> Ints:
        """Return the times that order a rank's calls: the true start, else the enqueue time."""
        enqueue = numbers(self.table["enqueue_ns"], NO_TIME)
        return np.where(self.timed | (enqueue == NO_TIME), self.start, enqueue)

    @cached_property
    def size(self) -> Ints:
        """The bytes, of types whose members all give the same (`NONE`: unknown, or no check)."""
        return np.where(self.is_type(*_SIZED), numbers(self.table["in_bytes"], NONE), NONE)

    @cached_property
    def step(self) -> Ints:
        """The step that each call was launched in (`NONE`: not recorded)."""
        return numbers(self.table["step"], NONE).astype(np.int64)

    @cached_property
    def meetings(self) -> Meetings:
        """Which calls exchange messages, where some exchange several."""
        if not valid(self.table["messages"]).any():
            return Meetings(np.empty(0, np.int64), np.empty(0, np.int64))
        return meetings(self.table, _ends_of_messages)

    @cached_property
    def expected(self) -> Ints:
        """How many ranks take part (`NONE`: unknown): two in a message, whatever its group."""
        peers = peers_of_calls(self.table["messages"])
        members = np.where(self.is_type(*_MESSAGES), 2, self.group_size)
        return np.where(peers > 0, peers + 1, members)

    @cached_property
    def group_ranks(self) -> tuple[Ints, list[tuple[int, ...]]]:
        """The global ranks of each row's group, as a number into the list (`NONE`: unknown)."""
        codes, listed = codes_of(self.table["group_ranks"])
        return codes.astype(np.int64), [tuple(json.loads(x or "[]")) for x in listed.to_pylist()]

    @cached_property
    def group(self) -> Ints:
        """One number for each process group (or communicator) of each source."""
        source, _ = codes_of(self.table["source"])
        name, _ = codes_of(self.table["group"])
        ranks = self._filled_ranks(source, name)
        comm = self.table["comm_hash"]
        hashed = np.unique(numbers(comm, 0), return_inverse=True)[1].ravel()
        hashed = np.where(valid(comm), hashed, NONE)
        return Groups.by_keys([source, name, ranks, self.group_size, hashed]).group_ids

    def _filled_ranks(self, source: NDArray[np.int32], name: NDArray[np.int32]) -> Ints:
        """Return a group's ranks, also where one record has them cut short and others have not."""
        ranks, _ = self.group_ranks
        named = Groups.by_keys(np.stack([source, name, self.group_size], axis=1).astype(np.int64))
        most = named.max(ranks)
        least = named.min(np.where(ranks >= 0, ranks, np.iinfo(np.int64).max))
        only = np.where((most >= 0) & (most == least), most, NONE)[named.group_ids]
        return np.where((ranks == NONE) & (name >= 0), only, ranks)

    @cached_property
    def unknown_group(self) -> Mask:
        named = valid(self.table["group"]) | valid(self.table["comm_hash"])
        return ~(named | valid(self.table["group_ranks"]))

    @cached_property
    def unnamed_group(self) -> Ints:
        """A number for the ranks of each row whose group is unknown; NONE: it cannot be told."""
        number = np.zeros(self.length, np.int64)
        part = ~self.is_type(*SILENT, *_MESSAGES, *_ANYTHING) & (self.rank >= 0)
        chosen = np.flatnonzero(part & self.unknown_group)
        if len(chosen):
            lane = _lanes(self, chosen, number)
            number[chosen] = unnamed_groups(self, chosen, lane)  # pyright: ignore[reportArgumentType]
        return number


def _slots(rows: CollectiveRows) -> tuple[Ints, Ints]:
    """Return how each row is matched (a number into BY) and its slot (NONE: it takes no part). Rows
    of different ranks that share a slot are one collective."""
    by = np.full(rows.length, NONE, np.int64)
    batch = valid(rows.table["messages"])
    part = ~rows.is_type(*SILENT) & (rows.rank >= 0) & ~batch
    message = rows.is_type(*_MESSAGES)
    comms, _ = codes_of(rows.table["comms_id"])
    by[part] = 2
    countable = matching(rows.table["seq_kind"], "plan".__ne__)
    by[part & ~message & countable & (rows.seq >= 0)] = 1
    by[part & ~message & (comms >= 0)] = 0
    of_function = matching(rows.table["seq_kind"], "function".__eq__)
    function = np.where(of_function, rows.type, NONE)
    slot = np.full(rows.length, NONE, np.int64)
    unnamed = rows.unnamed_group
    _number(slot, by == 0, rows, np.stack([comms.astype(np.int64)], axis=1))
    numbered = np.stack([rows.group, unnamed, function, rows.seq], axis=1)
    _number(slot, (by == 1) & (unnamed != NONE), rows, numbered)
    _by_order(slot, (by == 2) & (unnamed != NONE), rows)
    met = rows.meetings
    if len(met.call):
        calls = np.unique(met.call)
        linked = met.components(rows.length)[calls]
        of_rank = Groups.by_keys([linked, rows.rank[calls]])
        repeated = np.unique(of_rank.keys[of_rank.count > 1, 0])  # one goes over into the next
        by[calls] = 2
        slot[calls] = np.where(np.isin(linked, repeated), NONE, linked + slot.max() + 1)
    return by, slot


def _ends_of_messages(messages: pa.Table) -> Ints:
    rows, end = CollectiveRows(messages), np.full(messages.num_rows, NONE, np.int64)
    _by_order(end, rows.is_type(*_MESSAGES) & (rows.rank >= 0) & (rows.peer >= 0), rows)
    return end


def _number(slot: Ints, eligible: Mask, rows: CollectiveRows, key: Ints) -> None:
    """Assign slots by a key alike on all ranks; the k-th call of a rank with a key is the k-th."""
    chosen = np.flatnonzero(eligible)
    if not len(chosen):
        return
    same = Groups.by_keys([key[chosen], rows.rank[chosen]])
    occurrence = same.rank_within(rows.order[chosen])
    slots = Groups.by_keys([key[chosen], occurrence]).group_ids
    slot[chosen] = slots + slot.max() + 1


def _by_order(slot: Ints, eligible: Mask, rows: CollectiveRows) -> None:
    """Assign slots by the order within a lane: a group, or two ranks that exchange messages."""
    chosen = np.flatnonzero(eligible)
    if not len(chosen):
        return
    lane = _lanes(rows, chosen, rows.unnamed_group)
    order = ordered(lane, rows.rank[chosen], rows.order[chosen])
    chosen, lane = chosen[order], lane[order]
    rank = rows.rank[chosen]
    kind = np.where(rows.is_type(*_ANYTHING), NONE, rows.type)[chosen]
    kind = np.where(rows.is_type(*_MESSAGES)[chosen], len(rows.types), kind)
    size, step = rows.size[chosen], rows.step[chosen]
    time = np.where(rows.end[chosen] >= 0, rows.end[chosen], rows.order[chosen])
    change = np.append(True, (lane[1:] != lane[:-1]) | (rank[1:] != rank[:-1]))
    starts = np.append(np.flatnonzero(change), len(chosen))
    lane_of = lane[starts[:-1]]
    free = int(slot.max()) + 1
    for first, last in equal_runs(lane_of):  # a lane: one group of ranks
        pieces = [slice(starts[k], starts[k + 1]) for k in range(first, last)]
        base = max(pieces, key=lambda p: p.stop - p.start)  # the rank that saw most
        next_free = free + (base.stop - base.start)
        for piece in pieces:
            places = aligned_positions(
                (kind[base], size[base], time[base]),
                (kind[piece], size[piece], time[piece]),
                (step[base], step[piece]),
                one_clock=rows.share_host(*rank[[base.start, piece.start]].tolist()),
            )
            extra = places == NONE
            alone = next_free + np.cumsum(extra) - 1
            slot[chosen[piece]] = np.where(extra, alone, free + places)
            next_free += int(extra.sum())
        free = next_free


def _lanes(rows: CollectiveRows, chosen: Ints, unnamed: Ints) -> Ints:
    """Return each call's lane; calls of one lane have one order on all ranks. A group without a
    name is told by library and stream."""
    library, _ = codes_of(rows.table["library"])
    unknown = rows.unknown_group[chosen]
    stream = np.full(len(chosen), NONE, np.int64)
    if unknown.any():  # streams of named groups tell nothing of the others
        stream[unknown] = stream_ordinals(rows, chosen[unknown])  # pyright: ignore[reportArgumentType]
    library = np.where(unknown, library[chosen], NONE)
    message = rows.is_type(*_MESSAGES)[chosen]
    rank, peer = rows.rank[chosen], rows.peer[chosen]
    sends = rows.is_type("send")[chosen]
    source = np.where(message, np.where(sends, rank, peer), NONE)
    target = np.where(message, np.where(sends, peer, rank), NONE)
    group, cycle = rows.group[chosen], rows.cycle[chosen]
    return Groups.by_keys(
        [group, unnamed[chosen], cycle, library, stream, source, target]
    ).group_ids


@dataclass(frozen=True)
class FoundMatches:
    """The match of each row, and how many ranks it was found on."""

    match: Ints  # NONE: unmatched
    present: Ints  # ranks that took part
    too_many: Mask  # more ranks share a slot than their group has: they are no one call
    apart: Mask  # those of a slot did not run at one time


def _matched(rows: CollectiveRows, slot: Ints) -> FoundMatches:
    """Return the slots that two or more ranks share, numbered by their first start; of those that
    start at once, by their first row."""
    match = np.full(rows.length, NONE, np.int64)
    present, met = np.zeros(rows.length, np.int64), rows.meetings.call
    too_many = np.zeros(rows.length, bool)
    matches = FoundMatches(match, present, too_many, np.zeros(rows.length, bool))
    chosen = np.flatnonzero(slot >= 0)
    if not len(chosen):
        return matches
    shared = Groups.by_keys(slot[chosen])
    most = np.where(rows.group_size > 0, rows.group_size, shared.count.max())[chosen]
    beyond = shared.count > shared.max(most)
    several = (shared.count > 1) & ~beyond  # a rank is in a slot once
    numbered = np.full(len(shared), NONE, np.int64)
    wanted = np.flatnonzero(several)
    begun, row = _first_start(rows, chosen, shared)
    numbered[wanted[ordered(begun[wanted], row[wanted])]] = np.arange(len(wanted))
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
