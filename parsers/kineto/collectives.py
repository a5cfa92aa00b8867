"""Collectives of a PyTorch profile: one row for each communication kernel, and what it carried.

What was communicated stands on the kernel itself (since April 2024), else on the operator that
launched it (record_param_comms, since October 2023), else in the shapes of the c10d call round the
launch. What did not come from the first is named in `inferred`. On the CPU (gloo, MPI) the c10d
range is the collective; a call without any kernel is kept without times.
"""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    build_table,
    build_texts,
    codes_of,
    decode_texts,
    drop_fields,
    map_texts,
    mark_valid,
    read_booleans,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Mask, fill_none, take_or
from htk.base.names.collectives import collective_type, comm_rule, dtype_bytes, parse_c10d_range
from htk.base.schema import INT32, INT64, TABLES
from htk.parsers.common.log_records import compact_json
from htk.parsers.kineto.coalesced import Messages, first_members, messages_of
from htk.parsers.kineto.metadata import Metadata, take_either, take_values, texts_at
from htk.parsers.kineto.pairing import (
    CPU_LIBRARIES,
    PairedCalls,
    PairedRows,
    Seen,
    pair_collectives,
)
from htk.parsers.kineto.process_groups import (
    groups_of_calls,
    parse_split_sizes,
    seq_of,
    value_at,
)
from htk.parsers.kineto.shapes import from_shapes

Rows = NDArray[np.int64]
_MESSAGES = ("send", "recv", "send_recv")
# Where c10d's operators name the root or the peer, among their values.
_PLACE = {"send": 2, "recv": 2, "broadcast": 2, "reduce": 3, "gather": 3, "scatter": 3}
_COLUMNS = drop_fields(TABLES["collectives"], "rank", "cycle")


def join_collectives(
    kernels: pa.Table,
    cpu_ops: pa.Table,
    annotations: pa.Table,
    launches: pa.Table,
    metadata: pa.Table,
    groups: pa.Table,
) -> pa.Table:
    """Every collective of one file; `metadata` holds the collective arguments of its events."""
    seen = Seen.from_tables(kernels, cpu_ops, annotations, metadata)
    if not seen:
        return _COLUMNS.empty_table()
    pairs = pair_collectives(seen, launches)
    steps = _find_steps(annotations, pairs.enqueue)
    return _build_table(pairs, seen, groups, steps)


def _find_steps(annotations: pa.Table, enqueued: Rows) -> pa.Array:
    """Return the step of the host in which each call was launched."""
    marks = annotations.filter(
        pa.array(mark_valid(annotations["step"]) & ~read_booleans(annotations["on_gpu"]))
    )
    start, end = read_times(marks)
    order = order_by(start)
    if not len(order):
        return pa.nulls(len(enqueued), INT32)
    nth = order[np.maximum(np.searchsorted(start[order], enqueued, "right") - 1, 0)]
    inside = (enqueued >= start[nth]) & (enqueued < end[nth])
    return build_numbers(read_numbers(marks["step"])[nth], INT32, inside)


def _build_table(pairs: PairedRows, seen: Seen, groups: pa.Table, steps: pa.Array) -> pa.Table:
    length = len(pairs.gpu)
    gpu, ranges, facts = seen.gpu, seen.ranges, seen.facts
    record_event = take_or(seen.records.event, pairs.record)
    of_record = facts.rows(record_event)
    source = np.where(pairs.own != NONE, pairs.own, of_record)
    source = np.where(facts.named(source), source, NONE)
    names = _Names.from_pairs(pairs, source, seen)
    sizes = _Sizes.from_pairs(pairs, source, names.type, seen)
    sizes.add_up(pairs, seen, names.type)
    inferred = _list_inferred(pairs, source, sizes)
    messages = messages_of(pairs, seen)
    member = first_members(pairs, seen, len(source))
    for row in np.flatnonzero((member != NONE) & (source == NONE)).tolist():
        inferred[row].append("group")
    stated = np.where(source == NONE, member, source)  # of coalesced calls by the first of them
    recorded = np.where(of_record == NONE, member, of_record)
    who = groups_of_calls(stated, recorded, facts, groups, names.raw, inferred)
    values = {
        "source": build_texts(["kineto"] * length),
        "event": build_numbers(_find_events(pairs, seen), INT64),
        "op_event": _build_optional_column(record_event),
        "device": take_values(gpu["device"], pairs.gpu),
        "stream": take_values(gpu["stream"], pairs.gpu),
        "step": steps,
        **who,
        **_build_sequence(stated, recorded, names.type, facts),
        **_special_ranks(pairs, source, of_record, names.type, seen, who["group_ranks"], messages),
        "type": build_texts(names.type),
        "raw_name": build_texts(names.raw),
        "library": build_texts(names.library),
        **sizes.columns(),
        "in_split": map_texts(take_values(facts.table["in_split"], source), parse_split_sizes),
        "out_split": map_texts(take_values(facts.table["out_split"], source), parse_split_sizes),
        "is_async": _read_flags(take_values(facts.table["is_async"], of_record)),
        "coalesced": _coalesced_name(pairs, ranges),
        "messages": build_texts([compact_json(m) if m else None for m in messages]),
        "enqueue_ns": _build_optional_column(pairs.enqueue),
        **_build_times(pairs, gpu, ranges, names.library),
        "inferred_columns": build_texts([",".join(i) or None for i in inferred]),
    }
    return build_table(_COLUMNS, values, length)


@dataclass(frozen=True)
class _Names:
    """What each collective is called, by row: there are few of them beside the events."""

    type: list[str]
    raw: list[str | None]
    library: list[str]

    @classmethod
    def from_pairs(cls, pairs: PairedRows, source: Rows, seen: Seen) -> "_Names":
        kernel = texts_at(seen.gpu["name"], pairs.gpu)
        ranged = texts_at(seen.ranges.table["name"], pairs.range)
        stated = texts_at(seen.facts.type, source)
        coll = texts_at(seen.facts.table["coll"], source)
        calling = map_texts(
            take_values(seen.ops.table["name"], pairs.op), collective_type
        ).to_pylist()
        types = []
        raws = []
        libraries = []
        for name, call, kind, record, op in zip(kernel, ranged, stated, coll, calling, strict=True):
            rule = comm_rule(name) if name else None
            by_range = parse_c10d_range(call) if call else None
            on_cpu = by_range is not None and by_range.library in CPU_LIBRARIES
            by_op = op if on_cpu else None  # gloo's own word may be of what it is made of
            candidates = (kind, by_op, by_range and by_range.collective, rule and rule.collective)
            named = [c for c in candidates if c and c != "unknown"]
            named.sort(key="coalesced".__eq__)  # says least
            types.append(named[0] if named else "unknown")
            raws.append(name or record or call)
            library = rule.library if rule else by_range.library if by_range else "nccl"
            libraries.append(library)
        return cls(types, raws, libraries)


@dataclass
class _Sizes:
    """Elements and their type, from the arguments or from shapes."""

    into: Rows
    out: Rows
    dtype: list[str | None]
    guessed: Mask  # from shapes

    @classmethod
    def from_pairs(cls, pairs: PairedRows, source: Rows, types: list[str], seen: Seen) -> "_Sizes":
        facts = seen.facts
        into = take_either(facts, source, "in_nelems", "in_size_old")
        out = take_either(facts, source, "out_nelems", "out_size_old")
        dtype = texts_at(facts.table["dtype"], source)
        sizes = cls(into, out, dtype, np.zeros(len(source), bool))
        is_stated = (source != NONE) & (into >= 0)
        lacking = np.flatnonzero(((into < 0) | (out < 0)) & ~is_stated)
        if len(lacking):
            sizes._guess(lacking, pairs, types, seen)
        return sizes

    def _guess(self, lacking: Rows, pairs: PairedRows, types: list[str], seen: Seen) -> None:
        """Fill in what the shapes tell of rows whose arguments do not tell it."""
        facts = seen.facts
        shaped = [
            facts.rows(take_or(calls.event, rows))
            for calls, rows in (
                (seen.ranges, pairs.range),
                (seen.records, pairs.record),
                (seen.ops, pairs.op),
            )
        ]
        dims = [texts_at(facts.table["in_dims"], rows) for rows in shaped]
        kinds = [texts_at(facts.table["in_type"], rows) for rows in shaped]
        called = texts_at(seen.ops.table["name"], pairs.op)
        for row in lacking.tolist():
            shapes = [(dims[k][row], kinds[k][row]) for k in range(3)]
            shape = from_shapes(types[row], called[row], shapes)
            self.into[row], self.out[row] = shape.into, shape.out
            self.guessed[row] = shape.into >= 0 or shape.out >= 0
            self.dtype[row] = self.dtype[row] or shape.dtype

    def add_up(self, pairs: PairedRows, seen: Seen, types: list[str]) -> None:
        """A coalesced launch carries what its members carry."""
        launch, record = pairs.coalesced
        if not len(launch):
            return
        facts = seen.facts
        rows = facts.rows(seen.records.event[record])
        calls = Groups.by_keys(launch)
        first = calls.first_row
        is_send = facts.is_type(rows, "send")
        is_message = is_send | facts.is_type(rows, "recv")
        are_messages = calls.min(is_message.astype(np.int64)) == 1
        is_one_dtype = _are_alike(calls, facts.table["dtype"], rows)
        is_one_kind = _are_alike(calls, facts.type, rows)
        # Both sizes of a message are of the same bytes: only a send goes, only a receive comes.
        of_message = are_messages[calls.group_ids]
        into = np.maximum(take_either(facts, rows, "in_nelems", "in_size_old"), 0)
        out = np.maximum(take_either(facts, rows, "out_nelems", "out_size_old"), 0)
        sent = calls.sum(np.where(of_message & ~is_send, 0, into))
        received = calls.sum(np.where(of_message & is_send, 0, out))
        self.guessed[launch[first]] = True
        self.into[launch[first[is_one_dtype]]] = sent[is_one_dtype]
        self.out[launch[first[is_one_dtype]]] = received[is_one_dtype]
        dtypes = texts_at(facts.table["dtype"], rows[first])
        kinds = texts_at(facts.type, rows[first])
        for call, row in enumerate(launch[first].tolist()):
            if is_one_dtype[call]:
                self.dtype[row] = dtypes[call]
            if are_messages[call]:
                types[row] = "send_recv"
            elif is_one_kind[call]:
                types[row] = str(kinds[call])

    def columns(self) -> dict[str, pa.Array]:
        width = np.array([dtype_bytes(d) or 0 if d else 0 for d in self.dtype], np.int64)
        columns = {"dtype": build_texts(self.dtype)}
        for name, values in (("in", self.into), ("out", self.out)):
            columns[f"{name}_elements"] = _build_optional_column(values)
            columns[f"{name}_bytes"] = build_numbers(
                values * width, INT64, (values >= 0) & (width > 0)
            )
        return columns


def _are_alike(calls: Groups, column: pa.ChunkedArray, rows: Rows) -> Mask:
    """Return which groups of rows have one text in a column."""
    codes = take_or(codes_of(column)[0], rows).astype(np.int64)
    is_alike: Mask = calls.min(codes) == calls.max(codes)
    return is_alike


def _list_inferred(pairs: PairedRows, source: Rows, sizes: _Sizes) -> list[list[str]]:
    """Return what each row owes to something else than its own event."""
    on_gpu = pairs.gpu != NONE
    by_record = on_gpu & (pairs.own == NONE) & (source != NONE)
    facts: list[list[str]] = [[] for _ in source]
    for mask, name in ((by_record, "operator"), (sizes.guessed, "sizes")):
        for row in np.flatnonzero(mask).tolist():
            facts[row].append(name)
    return facts


def _build_sequence(
    source: Rows, of_record: Rows, types: list[str], facts: Metadata
) -> dict[str, pa.Array]:
    """Sequence number, Comms Id, and the rank that stands out: root or peer."""
    seq = take_either(facts, source, "seq")
    concrete = texts_at(facts.table["concrete"], of_record)
    for row in np.flatnonzero(seq < 0).tolist():
        seq[row] = seq_of(concrete[row]) if concrete[row] else -1
    kinds = ["p2p" if t in _MESSAGES else "collective" for t in types]
    return {
        "seq": _build_optional_column(seq),
        "seq_kind": build_texts([k if s >= 0 else None for k, s in zip(kinds, seq, strict=True)]),
        "comms_id": take_values(facts.table["comms_id"], source),
    }


def _special_ranks(
    pairs: PairedRows,
    source: Rows,
    of_record: Rows,
    types: list[str],
    seen: Seen,
    group_ranks: pa.Array,
    messages: list[Messages],
) -> dict[str, pa.Array]:
    """Return one's own rank in the group, the root, the peer (of several messages the only one).

    `Rank` of the record is the root of a rooted call, and the peer of a message within the group.
    What neither it nor the kernel tells is the third or fourth value of the c10d operator.
    """
    facts = seen.facts
    own = take_either(facts, of_record, "rank")
    peer = take_either(facts, source, "dst_rank", "src_rank")
    of_op = facts.rows(take_or(seen.ops.event, pairs.op))
    concrete = texts_at(facts.table["concrete"], of_op)
    members = group_ranks.to_pylist()
    root = fill_none(len(types))
    for row, kind in enumerate(types):
        position = _PLACE.get(kind)
        if position is None:
            continue
        stated = int(own[row]) if own[row] >= 0 else value_at(concrete[row], position)
        if kind not in _MESSAGES:
            root[row] = stated
        elif peer[row] < 0 <= stated and members[row]:
            listed = json.loads(members[row])
            peer[row] = listed[stated] if stated < len(listed) else -1
    for row, several in enumerate(messages):
        peers = {p for _, p, _ in several}
        if len(peers) == 1 and (only := peers.pop()) is not None:
            peer[row] = only
    special = np.array([kind in _PLACE or kind in _MESSAGES for kind in types], bool)
    is_p2p = np.array([kind in _MESSAGES for kind in types], bool)
    return {
        "comm_rank": _build_optional_column(np.where(special, -1, own), INT32),
        "root": _build_optional_column(root, INT32),
        "peer": _build_optional_column(np.where(is_p2p, peer, -1), INT32),
    }


def _build_times(
    pairs: PairedRows, gpu: pa.Table, ranges: PairedCalls, library: list[str]
) -> dict[str, pa.Array]:
    on_gpu = pairs.gpu != NONE
    on_cpu = ~on_gpu & (pairs.range != NONE)
    on_cpu &= np.array([x in CPU_LIBRARIES for x in library], bool)
    columns = {}
    for name, of_ranges in (("start_ns", ranges.nested.start), ("end_ns", ranges.nested.end)):
        times = np.where(on_gpu, take_or(read_numbers(gpu[name]), pairs.gpu), -1)
        times = np.where(on_cpu, take_or(of_ranges, pairs.range), times)
        columns[name] = _build_optional_column(times)
    kind = np.where(on_gpu, 0, np.where(on_cpu, 1, 2))
    columns["timing"] = decode_texts(kind, pa.array(["gpu", "cpu", "none"]))
    return columns


def _find_events(pairs: PairedRows, seen: Seen) -> Rows:
    event = take_or(read_numbers(seen.gpu["event"]), pairs.gpu)
    event = np.where(event == NONE, take_or(seen.ranges.event, pairs.range), event)
    return np.where(event == NONE, take_or(seen.records.event, pairs.record), event)


def _coalesced_name(pairs: PairedRows, ranges: PairedCalls) -> pa.Array:
    names: list[str | None] = [None] * len(pairs.gpu)
    called = texts_at(ranges.table["name"], pairs.range)
    for row in np.unique(pairs.coalesced.launch).tolist():
        names[row] = called[row]
    return build_texts(names)


def _build_optional_column(values: Rows, kind: pa.DataType = INT64) -> pa.Array:
    limit = 2**31 if kind == INT32 else 2**62
    has_value = (values >= 0) & (values < limit)
    return build_numbers(np.where(has_value, values, 0), kind, has_value)


def _read_flags(column: pa.Array) -> pa.Array:
    has_value = mark_valid(column)
    yes = [value in ("true", "True", "1") for value in column.to_pylist()]
    return build_booleans(np.array(yes, bool), has_value)
