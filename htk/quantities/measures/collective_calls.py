"""Collectives as the analyses of communication see them: matched, timed, and what they moved."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    match_texts,
    read_booleans,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none
from htk.base.core.humanize import pluralize_count
from htk.base.errors import MissingTable
from htk.base.names.collectives import dtype_bytes
from htk.base.schema import FLOAT64, STRING, TEXT
from htk.physics.bandwidth import compute_traffic
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.match_reasons import LACKING
from htk.quantities.derived.sources import counted_rows
from htk.quantities.derived.waits import Waits
from htk.quantities.measures.hosts import Hosts


@dataclass(frozen=True)
class CollectiveCalls:
    """All rows of `collectives`, and their matches (aligned or not)."""

    rows: CollectiveRows
    table: pa.Table
    matches: pa.Table
    ranks: pa.Table
    among: Mask | None = None  # of a longer table: the rows that these are

    @classmethod
    def from_tables(
        cls, collectives: pa.Table, matches: pa.Table, ranks: pa.Table
    ) -> "CollectiveCalls":
        return cls(CollectiveRows(collectives), collectives, matches, ranks)

    @classmethod
    def of_one_source(
        cls, collectives: pa.Table, matches: pa.Table, ranks: pa.Table
    ) -> "CollectiveCalls":
        """Return the calls of one source, the profiler's if any: several count twice."""
        among = counted_rows(collectives)
        if among.all():
            return cls.from_tables(collectives, matches, ranks)
        own = collectives.filter(pa.array(among))
        matched = matches.filter(pa.array(among))
        return cls(CollectiveRows(own), own, matched, ranks, among)

    def rows_of(self, table: pa.Table) -> pa.Table:
        """Return the rows of a table, a row for each of `collectives`, that are of these calls."""
        return table if self.among is None else table.filter(pa.array(self.among))

    @cached_property
    def match(self) -> Ints:
        return read_numbers(self.matches["match"], NONE)

    @cached_property
    def waits(self) -> Waits:
        """Return the waits as matched over all ranks, whichever ranks are selected."""
        column = {n: read_numbers(self.matches[n], NONE) for n in _TIMED}
        has_wait = column["wait_ns"] != NONE
        return Waits(
            has_wait,
            column["common_start_ns"],
            np.where(has_wait, column["wait_ns"], 0),
            np.where(has_wait, column["transfer_ns"], 0),
            np.where(has_wait, column["undetermined_ns"], 0),
            column["span_ns"],
            column["last_rank"].astype(np.int64),
        )

    @cached_property
    def hosts(self) -> Hosts:
        """Return the host of each rank, recorded or inferred."""
        return Hosts.from_tables(self.ranks, self.table)

    @cached_property
    def correction(self) -> Ints:
        """Return the clock correction of each row, in ns."""
        return read_numbers(self.matches["clock_offset_ns"], 0)

    @cached_property
    def undetermined(self) -> Ints:
        """The time in ns that is wait or transfer, which cannot be told apart; all of it for calls
        without a match."""
        return read_numbers(self.matches["undetermined_ns"], 0)

    @cached_property
    def lacking(self) -> Mask:
        """Whether each call is matched, but of a collective in which unrecorded ranks took part."""
        return match_texts(self.matches["reason"], LACKING.__eq__)

    @cached_property
    def duration(self) -> Ints:
        """Return the duration of each call, in ns (NONE: unknown)."""
        between = np.where(self.rows.timed, self.rows.end - self.rows.start, NONE)
        return np.where(self._recorded_duration != NONE, self._recorded_duration, between)

    @cached_property
    def _recorded_duration(self) -> Ints:
        """The duration in ns from a source that times calls on the GPU (`NONE`: there is none).
        Times that it writes beside that are those that the host observed."""
        return read_numbers(self.table["duration_ns"], NONE)

    @cached_property
    def span(self) -> Ints:
        """The time that bandwidth counts: from the last start to the last end; else how long a
        source says that it ran, where it tells no times (NONE: unknown)."""
        return np.where(self.over_all_ranks, self.waits.span, self._recorded_duration)

    @cached_property
    def over_all_ranks(self) -> Mask:
        """Whether bandwidth counts each call's time over all ranks, not one rank's duration."""
        return np.asarray((self.waits.span > 0) & self.has_partner)

    @cached_property
    def has_partner(self) -> Mask:
        """Whether a call is matched, or messages of it with calls of others."""
        return np.asarray((self.match != NONE) | self.waits.has_wait)

    @cached_property
    def size(self) -> Ints:
        """The number of ranks in the group (`NONE`: unknown). It need not be recorded where all
        ranks of the job take part."""
        world = max((n for n in self.ranks["world_size"].to_pylist() if n), default=NONE)
        present = read_numbers(self.matches["members_present"], NONE)
        recorded = self.rows.group_size
        return np.where((recorded == NONE) & (present == world), present, recorded)

    @cached_property
    def has_size(self) -> Mask:
        """Whether each call's size was recorded, in or out."""
        return np.asarray((self._in_bytes != NONE) | (self._out_bytes != NONE))

    @cached_property
    def _in_bytes(self) -> Ints:
        return read_numbers(self.table["in_bytes"], NONE)

    @cached_property
    def _out_bytes(self) -> Ints:
        return read_numbers(self.table["out_bytes"], NONE)

    @cached_property
    def traffic(self) -> tuple[Floats, Floats]:
        """The bytes that algorithm bandwidth counts, and the factor to bus bandwidth."""
        sizes = self._in_bytes, self._out_bytes
        return compute_traffic(self.rows.type, self.rows.types, *sizes, self.size, self.kept)

    @cached_property
    def moved(self) -> tuple[Floats, Floats]:
        """Return the same for the whole collective: of the rank that moves most, if they differ."""
        size, factor = self.traffic
        moved = np.nan_to_num(size * factor)
        chosen = np.flatnonzero((self.match != NONE) & ~np.isnan(size))
        if not len(chosen):
            return size, factor
        members = Groups.by_keys(self.match[chosen])
        in_order = chosen[order_by(members.group_ids, moved[chosen], size[chosen])]
        most = in_order[np.cumsum(members.count) - 1][members.group_ids]
        size = size.copy()
        factor = factor.copy()
        size[chosen] = size[most]
        factor[chosen] = factor[most]
        return size, factor

    @cached_property
    def kept(self) -> Ints:
        """Return the bytes of an all-to-all-v that stay on their rank (NONE: unknown)."""
        kept = fill_none(self.rows.length)
        for first, rows in self.with_splits():
            sent = self.sent(first)
            own = _find_place(self, first)
            if sent is not None and 0 <= own < len(sent):
                kept[rows] = sent[own]
        return kept

    def with_splits(self) -> Iterator[tuple[int, Ints]]:
        """Yield all-to-alls with splits: the first of those alike on a rank, and all rows."""
        split, _ = codes_of(self.table["in_split"])
        rows = np.flatnonzero(split >= 0)
        size = read_numbers(self.table["in_bytes"], NONE)
        key = np.column_stack([split, size, self.rows.rank, self.rows.group])[rows]
        alike = Groups.by_keys(key.astype(np.int64))
        order = order_by(alike.group_ids)
        ends = np.cumsum(alike.count)
        for k, first in enumerate(rows[alike.first_row].tolist()):
            yield first, rows[order[ends[k] - alike.count[k] : ends[k]]]

    def members(self, row: int) -> tuple[int, ...] | None:
        """Return the global ranks of a row's group."""
        code, groups = self.rows.group_ranks
        return groups[code[row]] if code[row] != NONE else None

    def sent(self, row: int) -> list[int] | None:
        """Return the bytes from a rank to each of its group, in an all-to-all."""
        return self._per_peer(row, "in_split", "in_bytes")

    def received(self, row: int) -> list[int] | None:
        """Return the bytes to a rank from each of its group, in an all-to-all."""
        return self._per_peer(row, "out_split", "out_bytes")

    def _per_peer(self, row: int, split: str, total: str) -> list[int] | None:
        listed = self.table[split][row].as_py()
        dtype = self.table["dtype"][row].as_py()
        message = self.table[total][row].as_py()
        if listed:
            elements = _parse_elements(listed)
            count = sum(elements)
            width = message // count if message is not None and count else dtype_bytes(dtype or "")
            return None if width is None else [n * width for n in elements]
        size = int(self.size[row])
        even = self.table["in_bytes"][row].as_py() == self.table["out_bytes"][row].as_py()
        return [message // size] * size if message is not None and size > 0 and even else None


_TIMED = (
    "common_start_ns",
    "wait_ns",
    "transfer_ns",
    "undetermined_ns",
    "span_ns",
    "last_rank",
)


def _find_place(calls: CollectiveCalls, row: int) -> int:
    """Return a rank's place in its group (NONE: unknown)."""
    comm_rank = calls.table["comm_rank"][row].as_py()
    if comm_rank is not None:
        return int(comm_rank)
    members = calls.members(row) or ()
    rank = int(calls.rows.rank[row])
    return members.index(rank) if rank in members else NONE


@lru_cache(maxsize=10_000)
def _parse_elements(listed: str) -> tuple[int, ...]:
    return tuple(json.loads(listed))


def build_bandwidth(bytes_: Floats, time_ns: Ints) -> pa.Array:
    """Return the bandwidth in GB/s (bytes a nanosecond); null where either is unknown."""
    defined = ~np.isnan(bytes_) & (time_ns > 0)
    rate = np.divide(bytes_, time_ns, out=np.zeros(len(bytes_)), where=defined)
    return build_numbers(rate, FLOAT64, defined)


def find_group_scopes(calls: CollectiveCalls) -> pa.Array:
    """Return whether each call's group is within a node or spans several; null: hosts unknown."""
    hosts = calls.hosts.of_rank
    codes, groups = calls.rows.group_ranks
    scope = []
    for members in groups:  # a few groups
        seen = [hosts.get(r) for r in members]
        several = len({h for h in seen if h}) > 1
        scope.append(1 if several else 0 if seen and None not in seen else NONE)
    return decode_texts(np.array([*scope, NONE])[codes], pa.array(["node", "across nodes"]))


_WITHOUT_DATA = ("barrier", "synchronise", "wait", "split", "new_window")


def size_facts(
    calls: CollectiveCalls, among: Mask | Ints | None = None, *, required: bool = True
) -> dict[str, object]:
    """Return how many calls (among some) that move data have no recorded size.

    MissingTable is raised where none has one and the answer requires sizes.
    """
    has_size = calls.has_size if among is None else calls.has_size[among]
    lacks_size = ~calls.has_size & ~calls.rows.is_type(*_WITHOUT_DATA)
    without = int((lacks_size if among is None else lacks_size[among]).sum())
    if required and without and not has_size.any():
        raise MissingTable(
            f"no sizes were recorded ({pluralize_count(without, 'collective call')} without a size)"
        )
    return {"calls_without_size": without} if without else {}


def only_source(
    table: pa.Table, matches: pa.Table, source: str | None
) -> tuple[pa.Table, pa.Table]:
    """Return the rows that one source wrote."""
    if source is None:
        return table, matches
    of_source = match_texts(table["source"], source.__eq__)
    if of_source.all():
        return table, matches
    return table.filter(pa.array(of_source)), matches.filter(pa.array(of_source))


def with_nccl_facts(collectives: pa.Table, facts: pa.Table) -> pa.Table:
    """Return collectives with algorithm and protocol also from other sources that saw the call."""
    for name in ("algorithm", "protocol"):
        index = collectives.schema.get_field_index(name)
        both = pc.coalesce(*(t[name].cast(STRING) for t in (collectives, facts)))
        encoded = both.dictionary_encode().cast(TEXT)
        collectives = collectives.set_column(index, collectives.schema.field(index), encoded)
    return collectives


def match_facts(calls: CollectiveCalls, align: bool) -> dict[str, object]:
    """Return an answer's coverage: collectives, matched ones, why others are not, the clocks."""
    codes, names = codes_of(calls.matches["reason"])
    reasons = {name: int((codes == k).sum()) for k, name in enumerate(names.to_pylist())}
    inferred = calls.table["inferred_columns"]
    expected = read_numbers(calls.matches["members_expected"], NONE)
    present = read_numbers(calls.matches["members_present"], NONE)
    short = np.unique(calls.match[(calls.match != NONE) & (present < expected)])
    return {
        "sources": [s for s in calls.table["source"].unique().to_pylist() if s],
        "collectives": calls.rows.length,
        "matched": int(calls.has_partner.sum()),
        "matches_lacking_members": len(short),
        **_count_guessed(calls),
        "without_wait_because": {k: n for k, n in reasons.items() if k and n},
        **size_facts(calls, required=False),
        "partly_inferred": calls.rows.length - inferred.null_count,
        **_describe_undetermined(calls),
        **calls.hosts.facts(),
        **clock_facts(align),
    }


def _count_guessed(calls: CollectiveCalls) -> dict[str, object]:
    """Return how many matches are guesses."""
    guessed = np.unique(
        calls.match[read_booleans(calls.matches["guessed"]) & (calls.match != NONE)]
    )
    return {"guessed_matches": len(guessed)} if len(guessed) else {}


def _describe_undetermined(calls: CollectiveCalls) -> dict[str, object]:
    """Return what cannot be told because ranks were not recorded."""
    if not calls.lacking.any():
        return {}
    return {
        "undetermined_calls": int((calls.undetermined > 0).sum()),
        "undetermined_ns": int(calls.undetermined.sum()),
    }


def clock_facts(align: bool) -> dict[str, object]:
    """Return the coverage fact that alignment is off, if it is."""
    return {} if align else {"clock_alignment": "off"}
