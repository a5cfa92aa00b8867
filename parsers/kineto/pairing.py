"""What makes up one collective of a profile: its kernel, record, operator and range.

A kernel belongs to what lies round the call that launched it, on its thread. What launched no
kernel is a collective of its own: of the CPU's libraries (gloo, MPI) with times, else without.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import mark_valid, match_texts, read_booleans, read_numbers, read_times
from htk.base.columns.nesting import Nested, Threads
from htk.base.columns.segments import SegmentTimes, repeat_rows
from htk.base.columns.types import NONE, Mask, fill_none, take_or
from htk.base.names.collectives import collective_type, parse_c10d_range
from htk.parsers.kineto.metadata import RECORD, Metadata, is_operator
from htk.quantities.derived.links import look_up

Rows = NDArray[np.int64]

# What is looked at of a table: not all its columns need be copied.
_KERNEL = (
    "event", "device", "stream", "name", "start_ns", "end_ns", "correlation", "external_id",
)  # fmt: skip
_CALL = ("event", "name", "process", "thread", "start_ns", "end_ns", "external_id")
CPU_LIBRARIES = ("gloo", "mpi", "ucc")
_SILENT = ("wait", "split", "new_window")  # recorded like collectives, and move nothing


@dataclass(frozen=True)
class PairedCalls:
    """CPU spans of one sort."""

    table: pa.Table
    nested: Nested

    @classmethod
    def from_table(
        cls, table: pa.Table, threads: Threads, wanted: Callable[[str], bool]
    ) -> "PairedCalls":
        calls = table.select(_CALL).filter(pa.array(match_texts(table["name"], wanted)))
        start, end = read_times(calls)
        return cls(calls, Nested(threads.number_threads(calls), start, end))

    @property
    def event(self) -> Rows:
        return read_numbers(self.table["event"])


@dataclass(frozen=True)
class Seen:
    """What of one file may be part of a collective."""

    gpu: pa.Table  # communication kernels
    records: PairedCalls
    ops: PairedCalls
    ranges: PairedCalls
    facts: Metadata
    threads: Threads

    @classmethod
    def from_tables(
        cls, kernels: pa.Table, cpu_ops: pa.Table, annotations: pa.Table, metadata: pa.Table
    ) -> "Seen":
        threads = Threads()
        cpu_ranges = annotations.select(_CALL).filter(
            pa.array(~read_booleans(annotations["on_gpu"]))
        )
        is_comm = pa.array(match_texts(kernels["kind"], "comm".__eq__))
        return cls(
            kernels.select(_KERNEL).filter(is_comm),
            PairedCalls.from_table(cpu_ops, threads, RECORD.__eq__),
            PairedCalls.from_table(cpu_ops, threads, is_operator),
            PairedCalls.from_table(
                cpu_ranges, threads, lambda name: parse_c10d_range(name) is not None
            ),
            Metadata(metadata),
            threads,
        )

    def __bool__(self) -> bool:
        """Is there anything that makes a collective? Operators only help to describe one."""
        return any(t.num_rows for t in (self.gpu, self.records.table, self.ranges.table))


class CoalescedRecords(NamedTuple):
    """The records that launches stand for: of each launch as they began, launch by launch."""

    launch: Rows  # place of the collective
    record: Rows

    @classmethod
    def none(cls) -> "CoalescedRecords":
        return cls(fill_none(0), fill_none(0))


@dataclass(frozen=True)
class PairedRows:
    """For each collective: rows of what is known about it (NONE: nothing)."""

    gpu: Rows  # its kernel
    own: Rows  # metadata of the kernel
    record: Rows
    op: Rows
    range: Rows
    enqueue: Rows  # when it was launched (-1: unknown)
    coalesced: CoalescedRecords = field(default_factory=CoalescedRecords.none)


def pair_collectives(seen: Seen, launches: pa.Table) -> PairedRows:
    """Return every collective of one file: a row for each kernel, then what has none."""
    on_gpu = _on_gpu(seen, launches)
    on_cpu = _on_cpu(seen, on_gpu)
    names = ("gpu", "own", "record", "op", "range", "enqueue")
    columns = {n: np.concatenate([getattr(p, n) for p in (on_gpu, on_cpu)]) for n in names}
    return PairedRows(**columns, coalesced=on_gpu.coalesced)


def _on_gpu(seen: Seen, launches: pa.Table) -> PairedRows:
    launch = _look_up(launches["correlation"], seen.gpu["correlation"])
    thread = take_or(seen.threads.number_threads(launches), launch, np.int32(-1))
    moment = take_or(read_numbers(launches["start_ns"]), launch)
    around = [
        np.where(launch == NONE, NONE, calls.nested.around(thread, moment))
        for calls in (seen.records, seen.ops, seen.ranges)
    ]
    by_id = _look_up(seen.records.table["external_id"], seen.gpu["external_id"])
    record = np.where(around[0] == NONE, by_id, around[0])
    own = seen.facts.rows(read_numbers(seen.gpu["event"]))
    own = np.where(seen.facts.named(own), own, NONE)
    coalesced = _find_coalesced(seen, own, record, around[2], moment)
    return PairedRows(np.arange(len(own)), own, record, around[1], around[2], moment, coalesced)


def _look_up(keys: pa.ChunkedArray, wanted: pa.ChunkedArray) -> Rows:
    """Row of each wanted key among the keys (NONE: absent); of several the last."""
    with_key = np.flatnonzero(mark_valid(keys))
    rows = look_up(read_numbers(keys)[with_key], with_key, read_numbers(wanted))
    return np.where(mark_valid(wanted), rows, NONE)


def _find_coalesced(
    seen: Seen, own: Rows, record: Rows, range_: Rows, launched: Rows
) -> CoalescedRecords:
    """Return which records a kernel launched at the end of a coalesced call stands for.

    Its launch lies in a range `nccl:coalesced` (or `…_coalesced`) that closes the call. The
    members are the records before it, on its thread, that launched nothing themselves. The range
    may last until the call's results are let go, beyond the next such call.

        records   a  b        c  d
        ranges          [==========================   and, begun later,   [=====
        launch               ^ stands for a, b             stands for c, d ^
    """
    is_closing = _mark_closing(seen)
    closing = (range_ != NONE) & take_or(is_closing, range_, False) & (own == NONE)
    if not closing.any():
        return CoalescedRecords.none()
    records = seen.records.nested
    ranges = seen.ranges.nested
    launch = np.flatnonzero(closing)
    thread = ranges.thread[range_[launch]]
    closes = np.flatnonzero(is_closing)
    ends = SegmentTimes(ranges.thread[closes], ranges.start[closes])
    before = ends.last(thread, ranges.start[range_[launch]] - 1)
    opened = take_or(ranges.start[closes], before, 0)
    is_idle = _mark_moving(seen)
    is_idle[record[(record != NONE) & ~closing]] = False
    idle = np.flatnonzero(is_idle)
    begun = SegmentTimes(records.thread[idle], records.start[idle])
    first = begun.count_until(thread, opened - 1)[1]
    after_last = begun.count_until(thread, launched[launch])[1]
    of_launch, nth = repeat_rows(np.maximum(after_last - first, 0))
    return CoalescedRecords(launch[of_launch], idle[begun.order[first[of_launch] + nth]])


def _mark_closing(seen: Seen) -> Mask:
    """Return the ranges that end a coalesced call."""
    return match_texts(seen.ranges.table["name"], lambda name: name.endswith("coalesced"))


def _mark_moving(seen: Seen) -> Mask:
    """Records of collectives that move something."""
    rows = seen.facts.rows(seen.records.event)
    return seen.facts.named(rows) & ~seen.facts.is_type(rows, *_SILENT, "coalesced")


def _on_cpu(seen: Seen, gpu: PairedRows) -> PairedRows:
    """Return the collectives of CPU libraries, and calls whose kernel was not recorded."""
    ranges = seen.ranges.nested
    records = seen.records.nested
    ops = seen.ops.nested
    within = records.around(ranges.thread, ranges.start)
    free = ~np.isin(np.arange(len(within)), gpu.range)
    free &= ~np.isin(within, gpu.record) | (within == NONE)
    lone = np.flatnonzero(free & ~_mark_closing(seen))
    left = _mark_moving(seen)
    left[gpu.record[gpu.record != NONE]] = False
    left[within[lone][within[lone] != NONE]] = False
    left[gpu.coalesced.record] = False
    rest = np.flatnonzero(left)
    none = fill_none(len(lone) + len(rest))
    enqueued = np.concatenate([ranges.start[lone], records.start[rest]])
    threads = np.concatenate([ranges.thread[lone], records.thread[rest]]).astype(np.int32)
    around = ops.around(threads, enqueued)
    around[: len(lone)] = _by_order(around[: len(lone)], lone, seen)
    of_range = np.concatenate([lone, fill_none(len(rest))])
    return PairedRows(none, none, np.concatenate([within[lone], rest]), around, of_range, enqueued)


def _by_order(around: Rows, lone: Rows, seen: Seen) -> Rows:
    """Gloo works on threads of its own: its k-th range of a type is c10d's k-th call of it.

    It reduces and scatters by an all-reduce, and calls it that (torch 2.13).
    """
    lost = np.flatnonzero(around == NONE)
    if not len(lost):
        return around
    around = around.copy()
    called = seen.ranges.table["name"].take(pa.array(lone[lost])).to_pylist()
    op_types = [collective_type(name) for name in seen.ops.table["name"].to_pylist()]
    taken = set(around[around != NONE].tolist())
    kinds = {rule.collective for n in called if (rule := parse_c10d_range(n))}
    for kind in kinds:
        sorts = {kind, "reduce_scatter"} if kind == "all_reduce" else {kind}
        sorts -= kinds - {kind}
        of_kind = [k for k, n in zip(lost.tolist(), called, strict=True) if _is_collective(n, kind)]
        theirs = [k for k, m in enumerate(op_types) if m in sorts and k not in taken]
        if len(of_kind) == len(theirs):
            of_kind.sort(key=lambda k: int(seen.ranges.nested.start[lone[k]]))
            theirs.sort(key=lambda k: int(seen.ops.nested.start[k]))
            around[of_kind] = theirs
    return around


def _is_collective(name: str, kind: str) -> bool:
    rule = parse_c10d_range(name)
    return rule is not None and rule.collective == kind and rule.library in CPU_LIBRARIES
