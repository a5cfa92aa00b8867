"""Collectives of a PyTorch profile: one row for each communication kernel, and what it carried.

What was communicated stands on the kernel itself (since April 2024), else on the operator that
launched it (record_param_comms, since October 2023), else in the shapes of the c10d call round the
launch. What did not come from the first is named in `inferred`. On the CPU (gloo, MPI) the c10d
range is the collective; a call without any kernel is kept without times.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from htk.arrow import (
    boolean,
    build,
    codes_of,
    mapped,
    matching,
    number,
    numbers,
    text,
    texts,
    valid,
    without,
)
from htk.collective_names import annotated, collective_type, comm_rule, dtype_bytes
from htk.links import NONE, Nested, Threads
from htk.parsers.kineto.process_groups import compact, listed_ranks, seq_of, split, value_at
from htk.parsers.kineto.shapes import from_shapes
from htk.schema import TABLES

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
RECORD = "record_param_comms"
_INT64 = pa.int64()
_MOST_RANKS = 1_000_000  # more is damage
# Operators whose shapes tell what the collective they launch carries.
OPERATOR = re.compile(
    r"c10d::|c10d_functional|_c10d_functional|symm_mem::|(?i:.*(?:all_?reduce|all_?gather"
    r"|reduce_?scatter|all_?to_?all|one_shot|two_shot|custom_ar))"
)
_CPU_LIBRARIES = ("gloo", "mpi", "ucc")
_MESSAGES = ("send", "recv", "send_recv")
# Where c10d's operators name the root or the peer, among their values.
_PLACE = {"send": 2, "recv": 2, "broadcast": 2, "reduce": 3, "gather": 3, "scatter": 3}
_SILENT = ("wait", "split", "new_window")  # recorded like collectives, and move nothing


def collectives(
    kernels: pa.Table,
    cpu_ops: pa.Table,
    annotations: pa.Table,
    launches: pa.Table,
    metadata: pa.Table,
    groups: pa.Table,
) -> pa.Table:
    """Every collective of one file; `metadata` holds the collective arguments of its events."""
    gpu = kernels.filter(pa.array(matching(kernels["kind"], "comm".__eq__)))
    threads = Threads()
    records = _calls(cpu_ops, threads, lambda name: name == RECORD)
    ops = _calls(cpu_ops, threads, lambda name: OPERATOR.match(name) is not None)
    cpu_ranges = annotations.filter(pc.invert(annotations["on_gpu"]))
    ranges = _calls(cpu_ranges, threads, lambda name: annotated(name) is not None)
    facts = _Metadata(metadata)
    rows = [_on_gpu(gpu, launches, threads, records, ops, ranges, facts)]
    rows.append(_on_cpu(ranges, records, ops, rows[0], facts))
    return _table(_Found.joined(rows), gpu, records, ops, ranges, facts, groups)


@dataclass(frozen=True)
class _Calls:
    """CPU spans of one sort."""

    table: pa.Table
    nested: Nested

    @property
    def event(self) -> Rows:
        return numbers(self.table["event"])


@dataclass(frozen=True)
class _Found:
    """For each collective: rows of what is known about it (NONE: nothing)."""

    gpu: Rows  # its kernel
    own: Rows  # metadata of the kernel
    record: Rows
    op: Rows
    range: Rows
    enqueue: Rows  # when it was launched (-1: unknown)
    members: tuple[tuple[int, Rows], ...] = ()  # collective, and the records that it coalesces

    @classmethod
    def joined(cls, parts: list["_Found"]) -> "_Found":
        names = ("gpu", "own", "record", "op", "range", "enqueue")
        columns = {n: np.concatenate([getattr(p, n) for p in parts]) for n in names}
        return cls(**columns, members=parts[0].members)


class _Metadata:
    """The collective arguments of events, found by event."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._event = numbers(table["event"])
        self.type = mapped(table["coll"], collective_type)
        codes, names = codes_of(self.type)
        self._type_codes, self._types = codes, names.to_pylist()

    def rows(self, events: Rows) -> Rows:
        """Row of each event (NONE: it has no collective arguments)."""
        if not len(self._event):
            return np.full(len(events), NONE, np.int64)
        place = np.minimum(np.searchsorted(self._event, events), len(self._event) - 1)
        return np.where(self._event[place] == events, place, NONE)

    def named(self, rows: Rows) -> Mask:
        """Which rows name a collective."""
        named: Mask = (rows != NONE) & (np.append(self._type_codes, -1)[rows] != -1)
        return named

    def is_type(self, rows: Rows, *wanted: str) -> Mask:
        chosen = [k for k, name in enumerate(self._types) if name in wanted]
        mine: Mask = (rows != NONE) & np.isin(np.append(self._type_codes, -1)[rows], chosen)
        return mine


def _calls(table: pa.Table, threads: Threads, wanted: Any) -> _Calls:
    mine = table.filter(pa.array(matching(table["name"], wanted)))
    start, end = numbers(mine["start_ns"]), numbers(mine["end_ns"])
    return _Calls(mine, Nested(threads.of(mine), start, end))


def _on_gpu(
    gpu: pa.Table,
    launches: pa.Table,
    threads: Threads,
    records: _Calls,
    ops: _Calls,
    ranges: _Calls,
    facts: _Metadata,
) -> _Found:
    launch = _look_up(launches["correlation"], gpu["correlation"])
    thread = np.append(threads.of(launches), np.int32(-1))[launch]
    moment = np.append(numbers(launches["start_ns"]), -1)[launch]
    around = [
        np.where(launch == NONE, NONE, calls.nested.around(thread, moment))
        for calls in (records, ops, ranges)
    ]
    by_id = _look_up(records.table["external_id"], gpu["external_id"])
    record = np.where(around[0] == NONE, by_id, around[0])
    own = facts.rows(numbers(gpu["event"]))
    own = np.where(facts.named(own), own, NONE)
    found = _Found(np.arange(len(own)), own, record, around[1], around[2], moment)
    return _Found(
        *(found.gpu, found.own, found.record, found.op, found.range, found.enqueue),
        members=_coalesced(found, records, ranges, facts),
    )


def _look_up(keys: pa.ChunkedArray, wanted: pa.ChunkedArray) -> Rows:
    """Row of each wanted key among the keys (NONE: absent); of several the last."""
    known = np.flatnonzero(valid(keys))
    if not len(known):
        return np.full(len(wanted), NONE, np.int64)
    have = numbers(keys)[known]
    order = np.argsort(have, kind="stable")
    values = numbers(wanted)
    place = np.maximum(np.searchsorted(have[order], values, side="right") - 1, 0)
    row = order[place]
    hit = valid(wanted) & (have[row] == values)
    return np.where(hit, known[row], NONE)


def _coalesced(
    found: _Found, records: _Calls, ranges: _Calls, facts: _Metadata
) -> tuple[tuple[int, Rows], ...]:
    """Which records a kernel launched at the end of a coalesced call stands for.

    Its launch lies in a range `nccl:coalesced` (or `…_coalesced`) that closes the call. The
    members are the records before it, on its thread, that launched nothing themselves.
    """
    is_closing = matching(ranges.table["name"], lambda n: n.endswith("coalesced"))
    closing = (found.range != NONE) & np.append(is_closing, False)[found.range]
    closing &= found.own == NONE
    if not closing.any():
        return ()
    moves = facts.rows(records.event)
    idle = facts.named(moves) & ~facts.is_type(moves, *_SILENT, "coalesced")
    idle[found.record[(found.record != NONE) & ~closing]] = False
    start, end = ranges.nested.start, ranges.nested.end
    members = []
    for row in np.flatnonzero(closing).tolist():  # one coalesced call after the other
        mine = found.range[row]
        thread = ranges.nested.thread[mine]
        before = end[is_closing & (ranges.nested.thread == thread) & (end <= start[mine])]
        inside = idle & (records.nested.thread == thread)
        inside &= records.nested.start >= before.max(initial=0)
        inside &= records.nested.start < end[mine]
        if inside.any():
            members.append((row, np.flatnonzero(inside)))
    return tuple(members)


def _on_cpu(ranges: _Calls, records: _Calls, ops: _Calls, gpu: _Found, facts: _Metadata) -> _Found:
    """Collectives of CPU libraries, and calls whose kernel was not recorded."""
    start, thread = ranges.nested.start, ranges.nested.thread
    within = records.nested.around(thread, start)
    free = ~np.isin(np.arange(len(start)), gpu.range)
    free &= ~np.isin(within, gpu.record) | (within == NONE)
    free &= ~matching(ranges.table["name"], lambda n: n.endswith("coalesced"))
    lone = np.flatnonzero(free)
    named = facts.rows(records.event)
    left = facts.named(named) & ~facts.is_type(named, *_SILENT, "coalesced")
    left[gpu.record[gpu.record != NONE]] = False
    left[within[lone][within[lone] != NONE]] = False
    for _, rows in gpu.members:
        left[rows] = False
    rest = np.flatnonzero(left)
    none = np.full(len(lone) + len(rest), NONE, np.int64)
    at = np.concatenate([start[lone], records.nested.start[rest]])
    threads = np.concatenate([thread[lone], records.nested.thread[rest]]).astype(np.int32)
    around = ops.nested.around(threads, at)
    around[: len(lone)] = _by_order(around[: len(lone)], lone, ranges, ops)
    return _Found(
        none,
        none,
        np.concatenate([within[lone], rest]),
        around,
        np.concatenate([lone, np.full(len(rest), NONE, np.int64)]),
        at,
    )


def _by_order(around: Rows, lone: Rows, ranges: _Calls, ops: _Calls) -> Rows:
    """Gloo works on threads of its own: its k-th range of a type is c10d's k-th call of it.

    It reduces and scatters by an all-reduce, and calls it that (torch 2.13).
    """
    around = around.copy()
    lost = np.flatnonzero(around == NONE)
    called = ranges.table["name"].take(pa.array(lone[lost])).to_pylist()
    made = [collective_type(name) for name in ops.table["name"].to_pylist()]
    taken = set(around[around != NONE].tolist())
    kinds = {rule.collective for n in called if (rule := annotated(n))}
    for kind in kinds:
        sorts = {kind, "reduce_scatter"} if kind == "all_reduce" else {kind}
        sorts -= kinds - {kind}
        mine = [k for k, n in zip(lost.tolist(), called, strict=True) if _is(n, kind)]
        theirs = [k for k, m in enumerate(made) if m in sorts and k not in taken]
        if len(mine) == len(theirs):
            mine.sort(key=lambda k: int(ranges.nested.start[lone[k]]))
            theirs.sort(key=lambda k: int(ops.nested.start[k]))
            around[mine] = theirs
    return around


def _is(name: str, kind: str) -> bool:
    rule = annotated(name)
    return rule is not None and rule.collective == kind and rule.library in _CPU_LIBRARIES


def _table(
    found: _Found,
    gpu: pa.Table,
    records: _Calls,
    ops: _Calls,
    ranges: _Calls,
    facts: _Metadata,
    groups: pa.Table,
) -> pa.Table:
    length = len(found.gpu)
    of_record = facts.rows(np.append(records.event, NONE)[found.record])
    source = np.where(found.own != NONE, found.own, of_record)
    source = np.where(facts.named(source), source, NONE)
    names = _Names.of(found, source, gpu, ranges, ops, facts)
    sizes = _Sizes.of(found, source, names.type, records, ops, ranges, facts)
    sizes.add_up(found, records, facts, names.type)
    inferred = _inferred(found, source, sizes)
    who = _groups(found, source, of_record, facts, groups, inferred)
    made = {
        "source": texts(["kineto"] * length),
        "event": number(_event(found, gpu, records, ranges), pa.int64()),
        "op_event": _optional(np.append(records.event, NONE)[found.record]),
        "device": _taken(gpu["device"], found.gpu),
        "stream": _taken(gpu["stream"], found.gpu),
        **who,
        **_sequence(source, of_record, names.type, facts),
        **_special_ranks(found, source, of_record, names.type, ops, facts, who["group_ranks"]),
        "type": texts(names.type),
        "raw_name": texts(names.raw),
        "library": texts(names.library),
        **sizes.columns(),
        "in_split": mapped(_taken(facts.table["in_split"], source), split),
        "out_split": mapped(_taken(facts.table["out_split"], source), split),
        "is_async": _flags(_taken(facts.table["is_async"], of_record)),
        "coalesced": _coalesced_name(found, ranges),
        "enqueue_ns": _optional(found.enqueue),
        **_times(found, gpu, ranges, names.library),
        "inferred": texts([",".join(i) or None for i in inferred]),
    }
    return build(without(TABLES["collectives"], "rank", "cycle"), made, length)


@dataclass(frozen=True)
class _Names:
    """What each collective is called, by row: there are few of them beside the events."""

    type: list[str]
    raw: list[str | None]
    library: list[str]

    @classmethod
    def of(
        cls,
        found: _Found,
        source: Rows,
        gpu: pa.Table,
        ranges: _Calls,
        ops: _Calls,
        facts: _Metadata,
    ) -> "_Names":
        kernel = _taken(gpu["name"], found.gpu).to_pylist()
        ranged = _taken(ranges.table["name"], found.range).to_pylist()
        said = _taken(facts.type, source).to_pylist()
        coll = _taken(facts.table["coll"], source).to_pylist()
        calling = mapped(_taken(ops.table["name"], found.op), collective_type).to_pylist()
        types, raws, libraries = [], [], []
        for name, call, kind, record, op in zip(kernel, ranged, said, coll, calling, strict=True):
            rule = comm_rule(name) if name else None
            by_range = annotated(call) if call else None
            on_cpu = by_range is not None and by_range.library in _CPU_LIBRARIES
            by_op = op if on_cpu else None  # gloo's own word may be of what it is made of
            candidates = (kind, by_op, by_range and by_range.collective, rule and rule.collective)
            types.append(next((c for c in candidates if c and c != "unknown"), "unknown"))
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
    def of(
        cls,
        found: _Found,
        source: Rows,
        types: list[str],
        records: _Calls,
        ops: _Calls,
        ranges: _Calls,
        facts: _Metadata,
    ) -> "_Sizes":
        into = _either(facts, source, "in_nelems", "in_size_old")
        out = _either(facts, source, "out_nelems", "out_size_old")
        dtype = _taken(facts.table["dtype"], source).to_pylist()
        lacking = np.flatnonzero((into < 0) | (out < 0))
        guessed = np.zeros(len(source), bool)
        shaped = [
            facts.rows(np.append(calls.event, NONE)[rows])
            for calls, rows in ((ranges, found.range), (records, found.record), (ops, found.op))
        ]
        dims = [_taken(facts.table["in_dims"], rows).to_pylist() for rows in shaped]
        kinds = [_taken(facts.table["in_type"], rows).to_pylist() for rows in shaped]
        called = _taken(ops.table["name"], found.op).to_pylist()
        for row in lacking.tolist():  # only what the arguments do not tell
            if source[row] != NONE and into[row] >= 0:
                continue
            known = [(dims[k][row], kinds[k][row]) for k in range(3)]
            shape = from_shapes(types[row], called[row], known)
            into[row], out[row] = shape.into, shape.out
            guessed[row] = shape.into >= 0 or shape.out >= 0
            dtype[row] = dtype[row] or shape.dtype
        return cls(into, out, dtype, guessed)

    def add_up(self, found: _Found, records: _Calls, facts: _Metadata, types: list[str]) -> None:
        """A coalesced launch carries what its members carry."""
        rows = facts.rows(records.event)
        into = _either(facts, rows, "in_nelems", "in_size_old")
        out = _either(facts, rows, "out_nelems", "out_size_old")
        dtype = _taken(facts.table["dtype"], rows).to_pylist()
        kinds = _taken(facts.type, rows).to_pylist()
        for row, members in found.members:
            distinct = {dtype[m] for m in members.tolist()}
            called = {kinds[m] for m in members.tolist()}
            self.guessed[row] = True
            if len(distinct) == 1:
                self.into[row] = int(np.maximum(into[members], 0).sum())
                self.out[row] = int(np.maximum(out[members], 0).sum())
                self.dtype[row] = distinct.pop()
            if called <= {"send", "recv"}:
                types[row] = "send_recv"
            elif len(called) == 1:
                types[row] = str(called.pop())

    def columns(self) -> dict[str, pa.Array]:
        width = np.array([dtype_bytes(d) or 0 if d else 0 for d in self.dtype], np.int64)
        made = {"dtype": texts(self.dtype)}
        for name, values in (("in", self.into), ("out", self.out)):
            made[f"{name}_elements"] = _optional(values)
            made[f"{name}_bytes"] = number(values * width, pa.int64(), (values >= 0) & (width > 0))
        return made


def _inferred(found: _Found, source: Rows, sizes: _Sizes) -> list[list[str]]:
    """What each row owes to something else than its own event."""
    on_gpu = found.gpu != NONE
    by_record = on_gpu & (found.own == NONE) & (source != NONE)
    facts: list[list[str]] = [[] for _ in source]
    for mask, name in ((by_record, "operator"), (sizes.guessed, "sizes")):
        for row in np.flatnonzero(mask).tolist():
            facts[row].append(name)
    return facts


def _groups(
    found: _Found,
    source: Rows,
    of_record: Rows,
    facts: _Metadata,
    groups: pa.Table,
    inferred: list[list[str]],
) -> dict[str, pa.Array]:
    """The process group of each collective. Where a file knows one group only, it is that one."""
    name = _first_of(
        _taken(facts.table["pg_name"], source), _taken(facts.table["pg_id_old"], source)
    )
    size = _either(facts, source, "group_size")
    ranks = _taken(facts.table["pg_ranks"], source).to_pylist()
    start, stride = (_either(facts, of_record, f"rank_{n}") for n in ("start", "stride"))
    members: list[str | None] = []
    for row, listed in enumerate(ranks):  # a few distinct lists, cached
        found_ranks = listed_ranks(listed) if listed else None
        regular = 0 < size[row] <= _MOST_RANKS and start[row] >= 0 and stride[row] > 0
        if found_ranks is None and regular:
            last = int(start[row] + stride[row] * size[row])
            found_ranks = compact(list(range(int(start[row]), last, int(stride[row]))))
            inferred[row].append("group_ranks")
        members.append(found_ranks)
    if groups.num_rows == 1:
        only = groups.to_pylist()[0]
        for row in np.flatnonzero(source == NONE).tolist():
            name[row], members[row] = only["group"], only["group_ranks"]
            size[row] = only["group_size"] or -1
            inferred[row].append("group")
    return {
        "group": texts(name),
        "group_desc": _taken(facts.table["pg_desc"], source),
        "group_ranks": texts(members),
        "group_size": _optional(size, pa.int32()),
    }


def _first_of(first: pa.Array, second: pa.Array) -> list[str | None]:
    pairs = zip(first.to_pylist(), second.to_pylist(), strict=True)
    return [a if a is not None else None if b is None else str(b) for a, b in pairs]


def _sequence(
    source: Rows, of_record: Rows, types: list[str], facts: _Metadata
) -> dict[str, pa.Array]:
    """Sequence number, Comms Id, and the rank that stands out: root or peer."""
    seq = _either(facts, source, "seq")
    concrete = _taken(facts.table["concrete"], of_record).to_pylist()
    for row in np.flatnonzero(seq < 0).tolist():
        seq[row] = seq_of(concrete[row]) if concrete[row] else -1
    kinds = ["p2p" if t in _MESSAGES else "collective" for t in types]
    return {
        "seq": _optional(seq),
        "seq_kind": texts([k if s >= 0 else None for k, s in zip(kinds, seq, strict=True)]),
        "comms_id": _taken(facts.table["comms_id"], source),
    }


def _special_ranks(
    found: _Found,
    source: Rows,
    of_record: Rows,
    types: list[str],
    ops: _Calls,
    facts: _Metadata,
    group_ranks: pa.Array,
) -> dict[str, pa.Array]:
    """One's own rank in the group, the root, the peer.

    `Rank` of the record is the root of a rooted call, and the peer of a message within the group.
    What neither it nor the kernel tells is the third or fourth value of the c10d operator.
    """
    own = _either(facts, of_record, "rank")
    peer = _either(facts, source, "dst_rank", "src_rank")
    called = _taken(facts.table["concrete"], facts.rows(np.append(ops.event, NONE)[found.op]))
    concrete, members = called.to_pylist(), group_ranks.to_pylist()
    root = np.full(len(types), -1, np.int64)
    for row, kind in enumerate(types):
        place = _PLACE.get(kind)
        if place is None:
            continue
        told = int(own[row]) if own[row] >= 0 else value_at(concrete[row], place)
        if kind not in _MESSAGES:
            root[row] = told
        elif peer[row] < 0 <= told and members[row]:
            listed = json.loads(members[row])
            peer[row] = listed[told] if told < len(listed) else -1
    special = np.array([kind in _PLACE or kind in _MESSAGES for kind in types], bool)
    is_p2p = np.array([kind in _MESSAGES for kind in types], bool)
    return {
        "comm_rank": _optional(np.where(special, -1, own), pa.int32()),
        "root": _optional(root, pa.int32()),
        "peer": _optional(np.where(is_p2p, peer, -1), pa.int32()),
    }


def _times(found: _Found, gpu: pa.Table, ranges: _Calls, library: list[str]) -> dict[str, pa.Array]:
    on_gpu = found.gpu != NONE
    on_cpu = ~on_gpu & (found.range != NONE)
    on_cpu &= np.array([x in _CPU_LIBRARIES for x in library], bool)
    made = {}
    for name, of_ranges in (("start_ns", ranges.nested.start), ("end_ns", ranges.nested.end)):
        times = np.where(on_gpu, np.append(numbers(gpu[name]), -1)[found.gpu], -1)
        times = np.where(on_cpu, np.append(of_ranges, -1)[found.range], times)
        made[name] = _optional(times)
    kind = np.where(on_gpu, 0, np.where(on_cpu, 1, 2))
    made["timing"] = text(kind, pa.array(["gpu", "cpu", "none"]))
    return made


def _event(found: _Found, gpu: pa.Table, records: _Calls, ranges: _Calls) -> Rows:
    event = np.append(numbers(gpu["event"]), NONE)[found.gpu]
    event = np.where(event == NONE, np.append(ranges.event, NONE)[found.range], event)
    return np.where(event == NONE, np.append(records.event, NONE)[found.record], event)


def _coalesced_name(found: _Found, ranges: _Calls) -> pa.Array:
    names: list[str | None] = [None] * len(found.gpu)
    called = _taken(ranges.table["name"], found.range).to_pylist()
    for row, _ in found.members:
        names[row] = called[row]
    return texts(names)


def _either(facts: _Metadata, rows: Rows, *names: str) -> Rows:
    """The first of several numbers that an event has; -1: none."""
    out = np.full(len(rows), -1, np.int64)
    for name in names:
        column = facts.table[name]
        values = np.where(valid(column), numbers(column), -1)
        values = np.append(values, -1)[rows]
        out = np.where(out < 0, values, out)
    return out


def _taken(column: pa.Array | pa.ChunkedArray, rows: Rows) -> pa.Array:
    """Values of rows; null for NONE."""
    indices = number(np.maximum(rows, 0), pa.int64(), rows != NONE)
    if not len(column):
        return pa.nulls(len(rows), column.type)
    taken = column.take(indices)
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _optional(values: Rows, kind: pa.DataType = _INT64) -> pa.Array:
    limit = 2**31 if kind == pa.int32() else 2**62
    known = (values >= 0) & (values < limit)
    return number(np.where(known, values, 0), kind, known)


def _flags(column: pa.Array) -> pa.Array:
    known = valid(column)
    yes = [value in ("true", "True", "1") for value in column.to_pylist()]
    return boolean(np.array(yes, bool), known)
