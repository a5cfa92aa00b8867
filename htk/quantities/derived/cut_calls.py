"""What of a recording lies in the windows of a cut: calls of the host cut at the windows' edges.

A selection and `htk trim` cut a recording alike. What the cut left is told by two tables:
`cut_windows`, the windows of the host, of each GPU and of its steps, and `passing`, GPU activities
that run in or beside those windows and were launched elsewhere. A trimmed file carries both in its
header, so that it is read as the selection is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_table,
    match_texts,
    read_booleans,
    read_numbers,
    read_times,
    with_column,
)
from htk.base.columns.groups import row_of
from htk.base.columns.intervals import Clipped, Spans, clip_spans, intersect_spans, merge_spans
from htk.base.columns.nesting import Threads
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.mappings import NamedTables
from htk.base.schema import INT64

CALLS = ("cpu_ops", "launches", "python_calls", "overheads")
HOST = "host"
RECORDING = "recording"
STEPS = "steps"
CUT_STEPS = "host steps"  # that were left in part

_NOWHERE = merge_spans(np.empty(0, np.int64), np.empty(0, np.int64))
Thread = tuple[str | None, str | None]  # its process, and its name there


@dataclass(frozen=True)
class HostSpans:
    """When the host is looked at: some threads by themselves, all others together."""

    others: Spans = _NOWHERE
    of_thread: Mapping[Thread, Spans] = field(default_factory=dict)

    @cached_property
    def any_thread(self) -> Spans:
        """When any of the threads is looked at."""
        every = [self.others, *self.of_thread.values()]
        start, end = (np.concatenate(side) for side in zip(*every, strict=True))
        return merge_spans(start, end)

    def within(self, spans: Spans) -> "HostSpans":
        """Return the part of it that lies in spans."""
        own = {thread: intersect_spans(part, spans) for thread, part in self.of_thread.items()}
        return HostSpans(intersect_spans(self.others, spans), own)

    def pieces(self, calls: pa.Table) -> Clipped:
        """Return the parts of calls that lie in the spans of their thread; one of no length lies
        where it begins."""
        start, end = read_times(calls)
        if not self.of_thread:
            return clip_spans(start, end, self.others.start, self.others.end)
        threads = Threads()
        thread = threads.number_threads(calls)
        parts = [clip_spans(start[:0], end[:0], _NOWHERE.start, _NOWHERE.end)]
        for k, name in enumerate(threads.names):
            rows = np.flatnonzero(thread == k)
            spans = self.of_thread.get(name, self.others)
            part = clip_spans(start[rows], end[rows], spans.start, spans.end)
            parts.append(part._replace(row=rows[part.row]))
        return Clipped(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def are_within(time: Ints, spans: Spans) -> Mask:
    """Return which moments lie in spans."""
    position = np.searchsorted(spans.start, time, side="right") - 1
    ends = np.append(spans.end, np.iinfo(np.int64).min)  # the last one for those before all spans
    return np.asarray(time < ends[position])


def cut_calls(calls: pa.Table, spans: HostSpans, uncut: Mask | None = None) -> pa.Table:
    """Return calls cut to spans, a row for each span that one lies in, in order of time; rows that
    are `uncut` stay as they are."""
    part = spans.pieces(calls)
    row = part.row
    start = part.start
    end = part.end
    if uncut is not None:
        cut = ~uncut[row]
        kept = np.flatnonzero(uncut)
        row = np.append(row[cut], kept)
        start = np.append(start[cut], read_numbers(calls["start_ns"])[kept])
        end = np.append(end[cut], read_numbers(calls["end_ns"])[kept])
    order = order_by(start, row)
    rows = calls.take(pa.array(row[order]))
    rows = with_column(rows, "start_ns", build_numbers(start[order], INT64))
    return with_column(rows, "end_ns", build_numbers(end[order], INT64))


def are_whole(calls: pa.Table, spans: HostSpans) -> Mask:
    """Return which calls lie in one span from begin to end."""
    part = spans.pieces(calls)
    uncut = part.start == read_numbers(calls["start_ns"])[part.row]
    uncut &= part.end == read_numbers(calls["end_ns"])[part.row]
    are_uncut = np.zeros(calls.num_rows, bool)
    are_uncut[part.row[uncut]] = True
    return are_uncut


def recorded_by(
    collectives: pa.Table, read: Callable[[str], pa.Table], spans: HostSpans
) -> tuple[Mask, Mask]:
    """Return which collectives an operator recorded, without GPU activity, and those of them whose
    operator is whole."""
    on_gpu = row_of(
        read_numbers(read("kernels")["event"], NONE), read_numbers(collectives["event"], NONE)
    )
    ops = read("cpu_ops")
    is_whole = np.append(are_whole(ops, spans), False)
    by_operator = np.zeros(collectives.num_rows, bool)
    kept = by_operator.copy()
    for column in ("event", "op_event"):
        event = read_numbers(collectives[column], NONE)
        row = row_of(read_numbers(ops["event"], NONE), event)
        row[(event == NONE) | (on_gpu != NONE)] = NONE
        by_operator |= row != NONE
        kept |= is_whole[row] & (row != NONE)
    return by_operator, kept


def cut_tables(tables: NamedTables) -> dict[str, pa.Table]:
    """Return the tables of a trimmed file, which holds whole events, with its calls cut."""
    spans = host_spans(tables["cut_windows"])
    cut = {name: cut_calls(tables[name], spans) for name in CALLS}
    ranges = tables["annotations"]
    cut["annotations"] = cut_calls(ranges, spans, read_booleans(ranges["on_gpu"]))
    by_operator, kept = recorded_by(tables["collectives"], tables.__getitem__, spans)
    cut["collectives"] = tables["collectives"].filter(pa.array(kept | ~by_operator))
    return {**tables, **cut}


def host_spans(cut_windows: pa.Table) -> HostSpans:
    """Return when the host is looked at, by the windows of a cut."""
    rows = windows_of(cut_windows, HOST)
    spans: dict[Thread, list[tuple[int, int]]] = {}
    columns = (rows[name].to_pylist() for name in ("process", "thread", "start_ns", "end_ns"))
    for process, thread, start, end in zip(*columns, strict=True):
        spans.setdefault((process, thread), []).append((start, end))
    unions = {name: merge_spans(*np.array(times, np.int64).T) for name, times in spans.items()}
    others = unions.pop((None, None), _NOWHERE)
    return HostSpans(others, unions)


def windows_of(cut_windows: pa.Table, of: str) -> pa.Table:
    """Return the windows of one kind."""
    return cut_windows.filter(pa.array(match_texts(cut_windows["of"], of.__eq__)))


def with_passing(activities: pa.Table, passing: pa.Table) -> pa.Table:
    """Return activities, behind them those that others launched; what these lack is null."""
    if not passing.num_rows:
        return activities
    held = {name: passing[name] for name in activities.column_names if name in passing.column_names}
    more = build_table(activities.schema, held, passing.num_rows)
    return pa.concat_tables([activities, more]).unify_dictionaries()
