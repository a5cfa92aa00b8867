"""Collectives of a profile that records NCCL's calls as ranges or calls of their own.

A communication kernel belongs to the call round its launch, on its thread. Calls between
ncclGroupStart and the matching ncclGroupEnd are launched together by the latter: one kernel then
carries what all of them carry.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_texts,
    constant_text,
    mark_valid,
    match_texts,
    read_booleans,
    read_numbers,
    read_times,
)
from htk.base.columns.nesting import Int32, Nested, Threads
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.names.collectives import collective_type, comm_rule, parse_c10d_range
from htk.base.schema import INT32, INT64
from htk.parsers.common.nccl_calls import bytes_of_rank, find_call_ends
from htk.parsers.common.span_tables import build_optional, build_process_table
from htk.quantities.derived.links import look_up

CALL = re.compile(r"^p?nccl[A-Z]\w+$")
# What the payload of a call may say; null where it does not.
FACTS = ("size_bytes", "comm", "peer", "root", "group_size", "comm_rank")
_MOVES = re.compile(
    r"^p?nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|Send|Recv|AlltoAll|AllToAll"
    r"|Gather|Scatter)$"
)
_PREFIX = re.compile(r"^p?nccl")
_START = "ncclGroupStart"
_END = "ncclGroupEnd"
_MESSAGES = {"send", "recv"}
_UNKNOWN = ("unknown", "coalesced")


@dataclass(frozen=True)
class NcclCalls:
    """NCCL's calls of a process, in the order in which each thread made them."""

    table: pa.Table
    thread: Ints
    start: Ints
    end: Ints
    group: Ints  # number of the outermost group that the call belongs to or ends; NONE: none
    moves: Mask

    @classmethod
    def from_table(cls, calls: pa.Table, threads: Threads) -> "NcclCalls":
        thread = threads.number_threads(calls).astype(np.int64)
        order = order_by(thread, read_numbers(calls["start_ns"]))
        calls = calls.take(pa.array(order))
        thread = thread[order]
        opens = match_texts(calls["name"], _START.__eq__)
        closes = match_texts(calls["name"], _END.__eq__)
        moves = match_texts(calls["name"], lambda name: _MOVES.match(name) is not None)
        group = _find_groups(thread, opens, closes)
        return cls(calls, thread, *read_times(calls), group, moves)

    @cached_property
    def nested(self) -> Nested:
        return Nested(self.thread.astype(np.int32), self.start, self.end)

    @cached_property
    def rows(self) -> list[dict[str, object]]:
        """The name and facts of each call; calls are few beside the events."""
        rows: list[dict[str, object]] = self.table.select(["name", *FACTS]).to_pylist()
        return rows

    @cached_property
    def communicators(self) -> dict[object, tuple[object, object]]:
        """The ranks of each communicator and the own rank in it, if its creation was recorded."""
        initialised = [row for row in self.rows if row["comm"] is not None and row["group_size"]]
        return {row["comm"]: (row["group_size"], row["comm_rank"]) for row in initialised}

    def members(self, call: int) -> list[int]:
        """Return the calls that one launches: itself, or the group that it ends."""
        if call == NONE:
            return []
        group = self.group[call]
        if group == NONE:
            return [call] if self.moves[call] else []
        first, last = np.searchsorted(self._by_group[0], [group, group + 1])
        return [int(k) for k in self._by_group[1][first:last] if self.moves[k]]

    @cached_property
    def _by_group(self) -> tuple[Ints, Ints]:
        order = order_by(self.group)
        return self.group[order], order


def _find_groups(thread: Ints, opens: Mask, closes: Mask) -> Ints:
    """Return the outermost group of each call. An end without its start (cut off by the recording's
    begin) ends a group that holds nothing else."""
    group = fill_none(len(thread))
    number_of = 0
    depth = 0
    on = NONE
    for k, (own, opening, closing) in enumerate(  # what is open depends on all that came before
        zip(thread.tolist(), opens.tolist(), closes.tolist(), strict=True)
    ):
        if own != on:
            number_of = number_of + 1
            depth = 0
            on = own
        depth += opening
        if depth or closing:
            group[k] = number_of
        if closing:
            depth = max(depth - 1, 0)
            number_of += depth == 0
    return group


def build_collectives(
    source: str,
    kernels: pa.Table,
    launches: pa.Table,
    calls: pa.Table,
    annotations: pa.Table,
    stated: Iterable[Mapping[str, object]] = (),
) -> pa.Table:
    """Return a row for each communication kernel, with the facts of the calls it stands for.

    `stated`: what the recording itself says of each of these kernels, in their order.
    """
    gpu = kernels.filter(pa.array(match_texts(kernels["kind"], "comm".__eq__)))
    threads = Threads()
    ranges = NcclCalls.from_table(calls, threads)
    launch = _find_launches(gpu, launches)
    thread = take_or(threads.number_threads(launches), launch, np.int32(NONE))
    moment = take_or(read_numbers(launches["start_ns"]), launch)
    call = np.where(launch == NONE, NONE, ranges.nested.around(thread, moment))
    named = _range_types(annotations, threads, thread, moment, launch)
    rows = _describe_kernels(gpu, ranges, call, named)
    for row, facts in zip(rows, stated, strict=False):
        row.update(facts)
    return build_process_table("collectives", _build_columns(source, gpu, rows, moment), len(gpu))


def _find_launches(gpu: pa.Table, launches: pa.Table) -> Ints:
    with_id = np.flatnonzero(mark_valid(launches["correlation"]))
    rows = look_up(
        read_numbers(launches["correlation"])[with_id], with_id, read_numbers(gpu["correlation"])
    )
    return np.where(mark_valid(gpu["correlation"]), rows, NONE)


def _range_types(
    annotations: pa.Table, threads: Threads, thread: Int32, moment: Ints, launch: Ints
) -> list[str | None]:
    """Return what c10d calls each collective: the type of the range `nccl:…` round its launch."""
    ranges = annotations.filter(
        pa.array(
            match_texts(annotations["name"], lambda name: parse_c10d_range(name) is not None)
            & ~read_booleans(annotations["on_gpu"])
        )
    )
    if not len(ranges):
        return [None] * len(launch)
    start, end = read_times(ranges)
    around = Nested(threads.number_threads(ranges), start, end).around(thread, moment)
    rules = [parse_c10d_range(name) for name in ranges["name"].to_pylist()]
    types = [*(rule.collective if rule else None for rule in rules), None]
    return [
        types[k] if launched != NONE else None for k, launched in zip(around, launch, strict=True)
    ]


def _describe_kernels(
    gpu: pa.Table, calls: NcclCalls, call: Ints, named: list[str | None]
) -> list[dict[str, object]]:
    """Return type, size and communicator of each kernel. In a group that launched several kernels
    the k-th stands for the k-th call if there are as many, else none is told apart."""
    started = read_numbers(gpu["start_ns"])
    launched: dict[tuple[str, int], list[int]] = {}
    for row, k in enumerate(call.tolist()):  # collectives, not events
        if k != NONE:
            group = int(calls.group[k])
            launched.setdefault(("call", k) if group == NONE else ("group", group), []).append(row)
    described: list[dict[str, object]] = [{} for _ in named]
    for rows in launched.values():
        members = calls.members(int(call[rows[0]]))
        if len(rows) == len(members):
            shares = [[k] for k in members]
        else:
            shares = [members] if len(rows) == 1 else [[] for _ in rows]
        for row, share in zip(sorted(rows, key=started.__getitem__), shares, strict=True):
            described[row] = _sum_members([calls.rows[k] for k in share], calls)
    names = gpu["name"].to_pylist()
    for row, facts in enumerate(described):
        rule = comm_rule(names[row] or "")
        candidates = (named[row], facts.get("type"), rule.collective if rule else None)
        facts["type"] = next((c for c in candidates if c and c not in _UNKNOWN), "unknown")
        facts["raw_name"] = names[row]
        facts["library"] = rule.library if rule else "nccl"
    return described


def _sum_members(members: list[dict[str, object]], calls: NcclCalls) -> dict[str, object]:
    """Return what calls that run as one kernel carry together."""
    if not members:
        return {}
    kinds = [collective_type(_PREFIX.sub("", str(m["name"]))) for m in members]
    distinct = set(kinds)
    kind = kinds[0] if len(distinct) == 1 else "send_recv" if distinct <= _MESSAGES else "unknown"
    facts: dict[str, object] = {"type": kind}
    comms = {m["comm"] for m in members}
    comm = comms.pop() if len(comms) == 1 else None
    size, own = calls.communicators.get(comm, (None, None))
    facts |= {"comm_hash": comm, "group_size": size, "comm_rank": own}
    sizes = [
        bytes_of_rank(k, m["size_bytes"], size)  # type: ignore[arg-type]
        for k, m in zip(kinds, members, strict=True)
    ]
    for column in ("in_bytes", "out_bytes"):
        parts = [s[column] for s, k in zip(sizes, kinds, strict=True) if _is_carried(k, column)]
        facts[column] = None if None in parts or not parts else sum(v or 0 for v in parts)
    if len(members) == 1:
        only = members[0]
        rank = only["root"] if only["root"] is not None else only["peer"]
        facts |= find_call_ends(kind, rank)  # type: ignore[arg-type]
    return facts


def _is_carried(kind: str, column: str) -> bool:
    return (kind, column) not in (("recv", "in_bytes"), ("send", "out_bytes"))


def _build_columns(
    source: str, gpu: pa.Table, rows: list[dict[str, object]], moment: Ints
) -> dict[str, pa.Array]:
    columns = {
        "source": constant_text(source, len(gpu)),
        "timing": constant_text("gpu", len(gpu)),
        "enqueue_ns": build_optional(moment, moment != NONE),
        **{name: gpu[name] for name in ("event", "device", "stream", "start_ns", "end_ns")},
        "comm_hash": pa.array([row.get("comm_hash") for row in rows], pa.uint64()),
        "inferred_columns": build_texts([None] * len(gpu)),
    }
    for name in ("type", "raw_name", "library"):
        columns[name] = build_texts([row[name] for row in rows])  # type: ignore[misc]
    for name in ("group_size", "comm_rank", "root", "peer"):
        columns[name] = pa.array([_accept_int32(row.get(name)) for row in rows], INT32)
    for name in ("in_bytes", "out_bytes"):
        columns[name] = pa.array([row.get(name) for row in rows], INT64)
    return columns


def _accept_int32(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else None
