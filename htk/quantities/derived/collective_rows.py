"""The columns of collectives that matching reads, and their order within a group.

Calls of one lane (a group, or two ranks that exchange messages) have one order on all ranks. A rank
that misses calls at either end of its recording, lacks one in the middle or has one too many is
aligned by what the calls are. Python loops run over groups and ranks, not over collectives.
"""

import json
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.align import aligned_positions
from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    match_texts,
    rank_alphabetically,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import equal_runs
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask, fill_none
from htk.base.core.stated_counts import RANK
from htk.quantities.derived.messages import Meetings, find_meetings, peers_of_calls
from htk.quantities.derived.unnamed_groups import stream_ordinals, unnamed_groups

SILENT = ("wait", "split", "new_window")  # they move nothing
MESSAGES = ("send", "recv")
_SIZED = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", *MESSAGES)
_ANYTHING = ("unknown", "send_recv", "coalesced")  # a kernel's name may say no more


class CollectiveRows:
    """The columns of `collectives` that matching reads, as NumPy."""

    def __init__(self, table: pa.Table, highest_rank: int | None = None) -> None:
        self.table = table
        self.length = table.num_rows
        rank = read_numbers(table["rank"], NONE)
        comm_rank = read_numbers(table["comm_rank"], NONE)
        self.rank = np.where(rank >= 0, rank, comm_rank).astype(np.int64)
        own_highest = int(self.rank.max(initial=-1))
        self.highest_rank = own_highest if highest_rank is None else highest_rank  # of all groups
        self.cycle = read_numbers(table["cycle"], 0).astype(np.int64)
        self.start = read_numbers(table["start_ns"], NO_TIME)
        self.end = read_numbers(table["end_ns"], NO_TIME)
        real = match_texts(table["timing"], lambda t: t in ("gpu", "cpu"))
        self.timed: Mask = real & (self.start > NO_TIME) & (self.end >= self.start)
        self.group_size = read_keys(table["group_size"])
        self.root = read_keys(table["root"])
        self.peer = read_keys(table["peer"])
        self.seq = read_numbers(table["seq"], NONE)
        codes, names = codes_of(table["type"])
        self.type = rank_alphabetically(codes, names)
        self.types = sorted(names.to_pylist())
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
        enqueue = read_numbers(self.table["enqueue_ns"], NO_TIME)
        return np.where(self.timed | (enqueue == NO_TIME), self.start, enqueue)

    @cached_property
    def size(self) -> Ints:
        """The bytes, of types whose members all give the same (`NONE`: unknown, or no check)."""
        return np.where(self.is_type(*_SIZED), read_numbers(self.table["in_bytes"], NONE), NONE)

    @cached_property
    def step(self) -> Ints:
        """The step that each call was launched in (`NONE`: not recorded)."""
        return read_keys(self.table["step"])

    @cached_property
    def meetings(self) -> Meetings:
        """Which calls exchange messages, where some exchange several."""
        if not mark_valid(self.table["messages"]).any():
            return Meetings(np.empty(0, np.int64), np.empty(0, np.int64))
        return find_meetings(self.table, _ends_of_messages)

    @cached_property
    def expected(self) -> Ints:
        """How many ranks take part (`NONE`: unknown): two in a message, whatever its group."""
        peers = peers_of_calls(self.table["messages"])
        members = np.where(self.is_type(*MESSAGES), 2, self.group_size)
        return np.where(peers > 0, peers + 1, members)

    @cached_property
    def group_ranks(self) -> tuple[Ints, list[tuple[int, ...]]]:
        """The global ranks of each row's group, as a number into the list (`NONE`: unknown)."""
        codes, listed = codes_of(self.table["group_ranks"])
        return codes.astype(np.int64), [_listed_ranks(text) for text in listed.to_pylist()]

    @cached_property
    def group(self) -> Ints:
        """One number for each process group (or communicator) of each source."""
        source, _ = codes_of(self.table["source"])
        name, _ = codes_of(self.table["group"])
        ranks = self._filled_ranks(source, name)
        comm = self.table["comm_hash"]
        hashed = np.unique(read_numbers(comm, 0), return_inverse=True)[1].ravel()
        hashed = np.where(mark_valid(comm), hashed, NONE)
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
        named = mark_valid(self.table["group"]) | mark_valid(self.table["comm_hash"])
        return ~(named | mark_valid(self.table["group_ranks"]))

    @cached_property
    def unnamed_group(self) -> Ints:
        """A number for the ranks of each row whose group is unknown; NONE: it cannot be told."""
        number = np.zeros(self.length, np.int64)
        part = ~self.is_type(*SILENT, *MESSAGES, *_ANYTHING) & (self.rank >= 0)
        chosen = np.flatnonzero(part & self.unknown_group)
        if len(chosen):
            lane = _number_lanes(self, chosen, number)
            number[chosen] = unnamed_groups(self, chosen, lane)  # pyright: ignore[reportArgumentType]
        return number


def _ends_of_messages(messages: pa.Table) -> Ints:
    rows = CollectiveRows(messages)
    end = fill_none(messages.num_rows)
    number_by_order(end, rows.is_type(*MESSAGES) & (rows.rank >= 0) & (rows.peer >= 0), rows)
    return end


def number_by_order(slot: Ints, eligible: Mask, rows: CollectiveRows) -> None:
    """Assign slots by the order within a lane: a group, or two ranks that exchange messages."""
    chosen = np.flatnonzero(eligible)
    if not len(chosen):
        return
    lane = _number_lanes(rows, chosen, rows.unnamed_group)
    order = order_by(lane, rows.rank[chosen], rows.order[chosen])
    chosen = chosen[order]
    lane = lane[order]
    rank = rows.rank[chosen]
    kind = np.where(rows.is_type(*_ANYTHING), NONE, rows.type)[chosen]
    kind = np.where(rows.is_type(*MESSAGES)[chosen], len(rows.types), kind)
    size = rows.size[chosen]
    step = rows.step[chosen]
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


def _number_lanes(rows: CollectiveRows, chosen: Ints, unnamed: Ints) -> Ints:
    """Return each call's lane; calls of one lane have one order on all ranks. A group without a
    name is told by library and stream."""
    library, _ = codes_of(rows.table["library"])
    unknown = rows.unknown_group[chosen]
    stream = fill_none(len(chosen))
    if unknown.any():  # streams of named groups tell nothing of the others
        stream[unknown] = stream_ordinals(rows, chosen[unknown])  # pyright: ignore[reportArgumentType]
    library = np.where(unknown, library[chosen], NONE)
    message = rows.is_type(*MESSAGES)[chosen]
    rank = rows.rank[chosen]
    peer = rows.peer[chosen]
    sends = rows.is_type("send")[chosen]
    source = np.where(message, np.where(sends, rank, peer), NONE)
    target = np.where(message, np.where(sends, peer, rank), NONE)
    group = rows.group[chosen]
    cycle = rows.cycle[chosen]
    return Groups.by_keys(
        [group, unnamed[chosen], cycle, library, stream, source, target]
    ).group_ids


def _listed_ranks(text: str | None) -> tuple[int, ...]:
    """Return the ranks that a list names; none where no job has such ranks."""
    ranks: list[int] = json.loads(text or "[]")
    return tuple(ranks) if all(RANK.believes(abs(rank)) for rank in ranks) else ()
