"""Matching by partition: calls of some groups at a time, never those of all ranks in one table.

Two rows can only be one collective, or bear on each other's wait, if they are of one group, or
share a Comms Id; groups that are not recorded are all one. A survey of each file lists its groups;
what belongs together goes to one partition; each is matched by itself, and the matches of all are
numbered as those of one table would be: by first start and first row. So the answer is the same,
bit for bit, however the groups are dealt out.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    NUMPY_OF,
    build_booleans,
    build_numbers,
    codes_of,
    decode_texts,
    mark_valid,
    read_booleans,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints
from htk.base.schema import BOOL, INT64, TEXT
from htk.base.schema.comm import COLLECTIVE_MATCHES
from htk.quantities.derived.clock_ends import CertainEnds, common_end_rows
from htk.quantities.derived.clock_fit import Ends
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.match import BY, first_starts, matches_of
from htk.quantities.derived.match_reasons import REASONS

_GROUP = ("source", "group", "group_ranks", "group_size", "comm_hash")
READ = (
    "rank", "comm_rank", "cycle", "step", "start_ns", "end_ns", "enqueue_ns", "timing", *_GROUP,
    "root", "peer", "seq", "seq_kind", "comms_id", "type", "messages", "library", "stream",
    "in_bytes", "out_bytes", "in_split",
)  # fmt: skip
_TEXTS = {"matched_by": BY, "reason": REASONS}
_NUMBERED_BY = ("begun", "first_row")


@dataclass(frozen=True)
class Survey:
    """The groups of one file's calls."""

    calls: pa.Table  # a call of each
    count: Ints  # calls of each
    comms: tuple[Ints, ...]  # a number for each Comms Id of each, distinct, in order
    ranks: Ints  # all of them


def survey_groups(collectives: pa.Table) -> Survey:
    groups = groups_in_file(collectives)
    ids, listed = codes_of(collectives["comms_id"])
    number_of = np.array([_hash_name(name) for name in listed.to_pylist()], np.int64)
    pairs = Groups.by_keys([groups.group_ids, ids]).keys  # a row for each Comms Id of a group
    pairs = pairs[pairs[:, 1] >= 0]
    comms = [
        np.sort(number_of[pairs[slice(*np.searchsorted(pairs[:, 0], (k, k + 1))), 1]])
        for k in range(len(groups))
    ]
    rank = read_numbers(collectives["rank"], NONE)
    rank = np.unique(np.where(rank >= 0, rank, read_numbers(collectives["comm_rank"], NONE)))
    calls = collectives.select(READ).take(pa.array(groups.first_row))
    return Survey(calls, groups.count, tuple(comms), rank[rank >= 0].astype(np.int64))


def groups_in_file(collectives: pa.Table) -> Groups:
    """Return which of the file's groups each call is of, as far as its record tells."""
    source, name, ranks = (codes_of(collectives[c])[0] for c in _GROUP[:3])
    hashed = collectives["comm_hash"]
    codes = np.unique(read_numbers(hashed, 0), return_inverse=True)[1].ravel()
    size = read_numbers(collectives["group_size"], NONE)
    return Groups.by_keys([source, name, ranks, size, np.where(mark_valid(hashed), codes, NONE)])


def _hash_name(name: str) -> int:
    """Return 64 bits of a Comms Id, the same in all processes: equal by chance, groups are only
    matched together."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True)
class Partition:
    """The groups that one partition holds, and what it needs to know of the others."""

    number: int
    rows: int
    highest_rank: int
    judges_guesses: bool  # it holds calls of unknown groups, and there are others


@dataclass(frozen=True)
class DealtGroups:
    partitions: tuple[Partition, ...]
    of_file: tuple[Ints, ...]  # the partition of each group that a file's survey lists
    ranks: Ints


@dataclass
class Planner:
    """Collects the surveys of all files; a group that several files have is held once."""

    _entry: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _calls: list[pa.Table] = field(default_factory=list)
    _count: list[int] = field(default_factory=list)
    _comms: list[Ints] = field(default_factory=list)
    _of_file: list[Ints] = field(default_factory=list)
    _ranks: set[int] = field(default_factory=set)

    def add(self, of_file: Survey) -> None:
        keys = zip(*(of_file.calls[name].to_pylist() for name in _GROUP), strict=True)
        entries = []
        for k, key in enumerate(keys):  # the groups of a rank: a few
            entry = self._entry.setdefault(key, len(self._entry))
            if entry == len(self._calls):
                self._calls.append(of_file.calls.slice(k, 1))
                self._count.append(0)
                self._comms.append(np.empty(0, np.int64))
            self._count[entry] += int(of_file.count[k])
            self._comms[entry] = np.union1d(self._comms[entry], of_file.comms[k])
            entries.append(entry)
        self._of_file.append(np.array(entries, np.int64))
        self._ranks.update(of_file.ranks.tolist())

    def groups(self) -> tuple[Ints, ...]:
        """Return the number of each group that a file's survey lists: one has one in all files."""
        if not self._calls:
            return tuple(self._of_file)
        calls = CollectiveRows(pa.concat_tables(self._calls).unify_dictionaries())
        return tuple(calls.group[file] for file in self._of_file)

    def plan(self, rows_at_once: int) -> DealtGroups:
        """Deal what belongs together out to partitions of so many calls, or of one group that has
        more."""
        ranks = np.array(sorted(self._ranks), np.int64)
        if not self._calls:
            return DealtGroups((), tuple(self._of_file), ranks)
        calls = CollectiveRows(pa.concat_tables(self._calls).unify_dictionaries())
        bound = _bound_together(calls, self._comms)
        counts = np.bincount(bound, self._count).astype(np.int64)
        part_of, sizes = _deal_partitions(counts, rows_at_once)
        unknown = np.unique(part_of[bound[calls.unknown_group]]).tolist()
        highest = int(ranks.max(initial=-1))
        partitions = tuple(
            Partition(k, size, highest, k in unknown and len(sizes) > 1)
            for k, size in enumerate(sizes)
        )
        return DealtGroups(partitions, tuple(part_of[bound[file]] for file in self._of_file), ranks)


def _deal_partitions(counts: Ints, rows_at_once: int) -> tuple[Ints, list[int]]:
    """Return a partition for each of what is bound together, and how many calls each then has."""
    part_of = np.empty(len(counts), np.int64)
    sizes = [0]
    for k, count in enumerate(counts.tolist()):
        if sizes[-1] and sizes[-1] + count > rows_at_once:
            sizes.append(0)
        part_of[k] = len(sizes) - 1
        sizes[-1] += count
    return part_of, sizes


def _bound_together(calls: CollectiveRows, comms: Sequence[Ints]) -> Ints:
    """Return a number for each group, equal where they have to be matched together."""
    source = codes_of(calls.table["source"])[0].astype(np.int64)
    name = codes_of(calls.table["group"])[0].astype(np.int64)
    alike = Groups.by_keys([source, name, calls.group_size])  # one may lack its list of ranks
    lacking = np.bincount(alike.group_ids, calls.group_ranks[0] == NONE)[alike.group_ids] > 0
    everyone = np.arange(calls.length)
    with_comms = np.repeat(everyone, [len(own) for own in comms])
    ids = np.unique(np.concatenate(comms), return_inverse=True)[1].ravel()
    related = [
        (everyone, calls.group),
        (everyone[calls.unknown_group], np.zeros(int(calls.unknown_group.sum()), np.int64)),
        (everyone[lacking & (name >= 0)], alike.group_ids[lacking & (name >= 0)]),
        (with_comms, ids),
    ]
    label = everyone.copy()
    before = np.empty(0, np.int64)
    while not np.array_equal(label, before):
        before = label.copy()
        for members, key in related:
            least = np.full(int(key.max(initial=-1)) + 1, calls.length)
            np.minimum.at(least, key, label[members])
            np.minimum.at(label, members, least[key])
    return np.unique(label, return_inverse=True)[1].ravel()


def split_calls(collectives: pa.Table, part_of_group: Ints, first_row: int) -> dict[int, pa.Table]:
    """Return a file's calls of each partition, what matching reads of them and the row of each in
    the table of all files, of which the file's first is `first_row`."""
    part = part_of_group[groups_in_file(collectives).group_ids]
    order = order_by(part)
    row = build_numbers(order + first_row, INT64)
    table = collectives.select(READ).take(pa.array(order)).append_column("row", row)
    table = table.combine_chunks()  # so that a partition's calls are one batch
    present, starts = np.unique(part[order], return_index=True)
    bounds = [*starts.tolist(), len(order)]
    return {
        partition: table.slice(bounds[k], bounds[k + 1] - bounds[k])
        for k, partition in enumerate(present.tolist())
    }


@dataclass(frozen=True)
class MatchedPart:
    """The matches of one partition, numbered among themselves."""

    row: Ints  # of each call, in the table of all files
    table: pa.Table
    begun: Ints  # of each match: its first start
    first_row: Ints  # and its first row


@dataclass(frozen=True)
class EndsOfPart:
    """Ends that clocks are compared by, and what their collective is numbered by in the job."""

    begun: Ints
    first_row: Ints
    rank: Ints
    start: Ints
    end: Ints


def match_part(
    part: pa.Table,
    partition: Partition,
    rank_windows: pa.Table,
    ranks: pa.Table,
    certain: CertainEnds | None = None,
) -> MatchedPart:
    """Match the calls of a partition, in the order of their rows."""
    rows = CollectiveRows(part, partition.highest_rank)
    row = read_numbers(part["row"])
    table = matches_of(rows, rank_windows, ranks, certain)
    begun, first = first_starts(rows, read_numbers(table["match"], NONE))
    return MatchedPart(row, table, begun, row[first])


def ends_of_part(part: pa.Table, matched: MatchedPart) -> EndsOfPart:
    """Return the ends of a partition's matches that are certain, to judge guesses of others by."""
    rows = CollectiveRows(part)
    match = read_numbers(matched.table["match"], NONE)
    chosen = common_end_rows(rows, np.where(read_booleans(matched.table["guessed"]), NONE, match))
    own = match[chosen]
    return EndsOfPart(
        matched.begun[own], matched.first_row[own],
        rows.rank[chosen], rows.start[chosen], rows.end[chosen],
    )  # fmt: skip


def ends_of_all(parts: Sequence[EndsOfPart], ranks: Ints) -> CertainEnds:
    """Return the ends of all partitions, in the order that those of one table would have."""
    nothing = np.empty(0, np.int64)
    begun, first, rank, start, end = (
        np.concatenate([nothing, *(getattr(part, f.name) for part in parts)])
        for f in fields(EndsOfPart)
    )
    process = np.searchsorted(ranks, rank)
    order = order_by(begun, first, process)
    begun = begun[order]
    first = first[order]
    another = (begun[1:] != begun[:-1]) | (first[1:] != first[:-1])
    collective = np.cumsum(np.append(np.zeros(min(len(order), 1), np.int64), another))
    ends = Ends(collective, process[order], start[order], end[order], len(ranks))
    return CertainEnds(ends, ranks)


class Numbered(Protocol):
    """Matches of a partition, by what they are numbered by."""

    @property
    def begun(self) -> Ints: ...

    @property
    def first_row(self) -> Ints: ...


def numbers_in_all(parts: Sequence[Numbered]) -> list[Ints]:
    """Return the number of each partition's matches among those of all."""
    if not parts:
        return []
    order = order_by(*(np.concatenate([getattr(p, c) for p in parts]) for c in _NUMBERED_BY))
    number_of = np.empty(len(order), np.int64)
    number_of[order] = np.arange(len(order))
    return np.split(number_of, np.cumsum([len(part.begun) for part in parts])[:-1])


def put_together(parts: Iterable[tuple[MatchedPart, Ints]], length: int) -> pa.Table:
    """Return the rows of all partitions in the order of the table of all files; each comes with
    the numbers that its matches have in all."""
    columns = {field.name: _Column(field, length) for field in COLLECTIVE_MATCHES}
    for part, number_of in parts:
        for name, column in columns.items():
            column.put(part.row, part.table[name], number_of if name == "match" else None)
    return pa.table([c.array() for c in columns.values()], schema=COLLECTIVE_MATCHES)


class _Column:
    """A column that is filled in pieces; under `arrays_in_files` it lies in files."""

    def __init__(self, field: pa.Field, length: int) -> None:
        self.field = field
        self.has_value = np.zeros(length, bool)
        self.values = np.zeros(length, NUMPY_OF.get(field.type, np.int32))

    def put(self, row: Ints, column: pa.ChunkedArray, number_of: Ints | None) -> None:
        has_value = mark_valid(column)
        self.has_value[row] = has_value
        if self.field.type == TEXT:
            codes, listed = codes_of(column)
            code_in_all = [_TEXTS[self.field.name].index(reason) for reason in listed.to_pylist()]
            self.values[row] = np.array([*code_in_all, 0])[codes]
        elif self.field.type == BOOL:
            self.values[row] = read_booleans(column)
        elif number_of is None:
            self.values[row] = read_numbers(column)
        else:
            self.values[row[has_value]] = number_of[read_numbers(column)[has_value]]

    def array(self) -> pa.Array:
        if self.field.type == TEXT and self.field.name in _TEXTS:
            codes = np.where(self.has_value, self.values, NONE)
            return decode_texts(codes, pa.array(_TEXTS[self.field.name]))
        if self.field.type == BOOL:
            return build_booleans(self.values.astype(bool), self.has_value)
        return build_numbers(self.values, self.field.type, self.has_value)
