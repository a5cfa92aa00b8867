"""User ranges (record_function and the like) and the threads that work inside them.

A range holds what was launched inside it by its own thread, and by the threads that work for it:
autograd evaluates a backward pass on threads of its own while the thread that called it waits.
Autograd threads may open ranges themselves (`nccl:all_reduce`); these lie inside the range that the
waiting thread has open. Any other thread works for itself: what a loader or a server's second
worker launches meanwhile is of no range of the main thread.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    mark_valid,
    match_texts,
    read_booleans,
    read_numbers,
    read_times,
)
from htk.base.columns.intervals import Spans, merge_spans
from htk.base.columns.nesting import Int32, Nested, Rows, Threads, nest_rows
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask, fill_none, take_or
from htk.base.names.phases import is_gradient
from htk.base.schema import DERIVED, INT64


def annotation_links(annotations: pa.Table, cpu_ops: pa.Table) -> pa.Table:
    """Return the range that holds each range; null for steps and for copies on the GPU."""
    parent = UserRanges(annotations, cpu_ops, Threads()).parent
    return pa.table(
        [build_numbers(parent, INT64, parent != NONE)], schema=DERIVED["annotation_links"]
    )


def find_enclosing_ranges(
    annotations: pa.Table, annotation_links: pa.Table, links: pa.Table, rows: pa.Table
) -> Iterator[tuple[Ints, Ints]]:
    """Yield rows and the range that holds each, from the innermost range outward.

    `links` has the innermost range of each of the `rows`: of activities by their launch, of others
    by their start. What began before a range and has ended since is round the range, and not round
    what is launched after:

        X ------------
            Y ------------
                    ^ in Y alone
    """
    parent = read_numbers(annotation_links["parent_row"], NONE)
    start, end = read_times(annotations)
    ranges = read_numbers(links["annotation_row"], NONE)
    held = np.flatnonzero(ranges != NONE)
    ranges = ranges[held]
    by_launch = "launch_start_ns" in links.column_names
    column = links["launch_start_ns"] if by_launch else rows["start_ns"]
    moment = read_numbers(column, NO_TIME)[held]
    moment = np.maximum(moment, start[ranges])  # where the call was not recorded
    while len(held):  # as often as ranges are deep
        is_open = moment < end[ranges]
        yield held[is_open], ranges[is_open]
        ranges = parent[ranges]
        inside = ranges != NONE
        held = held[inside]
        ranges = ranges[inside]
        moment = moment[inside]


class UserRanges:
    """The ranges of each file on its CPU threads, steps of the profiler aside."""

    def __init__(self, annotations: pa.Table, cpu_ops: pa.Table, threads: Threads) -> None:
        on_cpu = ~read_booleans(annotations["on_gpu"])
        is_step = mark_valid(annotations["step"])
        self._length = annotations.num_rows
        self._rows = np.flatnonzero(on_cpu & ~is_step)
        self._ranges: Nested = nest_rows(annotations, threads, self._rows)
        steps = nest_rows(annotations, threads, np.flatnonzero(on_cpu & is_step))
        self._autograd = _autograd_threads(cpu_ops, threads)
        self._threads = threads
        self._main = _main_threads(steps, self._ranges, self._autograd, threads.file)

    def around(self, thread: Int32, time: Rows) -> Ints:
        """Return the innermost range that holds what each thread does at each time, or NONE."""
        inner = self._ranges.around(thread, time)
        lost = np.flatnonzero((inner == NONE) & self._works_for_main(thread))
        inner[lost] = self._of_main(thread[lost], time[lost])
        return take_or(self._rows, inner)

    @property
    def parent(self) -> Ints:
        """Return the range that holds each row of `annotations`, or NONE."""
        ranges = self._ranges
        above = ranges.parent.copy()
        thread = ranges.thread.astype(np.int32)
        outer = np.flatnonzero((above == NONE) & self._works_for_main(thread))
        above[outer] = self._of_main(thread[outer], ranges.start[outer])
        parent = fill_none(self._length)
        parent[self._rows] = take_or(self._rows, above)
        return parent

    def held(self, wanted: Mask) -> dict[int, Spans]:
        """Return when each thread of one file works inside wanted ranges, rows of `annotations`."""
        own = wanted[self._rows]
        thread = self._ranges.thread[own]
        start = self._ranges.start[own]
        end = self._ranges.end[own]
        spans = {
            int(k): merge_spans(start[thread == k], end[thread == k])
            for k in np.unique(thread).tolist()
        }
        main = spans.get(int(self._main[0])) if len(self._main) else None
        if main is None:
            return spans
        for k in self._autograd[self._works_for_main(self._autograd)].tolist():
            parts = [main, spans[k]] if k in spans else [main]
            starts = np.concatenate([part[0] for part in parts])
            ends = np.concatenate([part[1] for part in parts])
            spans[k] = merge_spans(starts, ends)
        return spans

    def _of_main(self, thread: Int32, time: Rows) -> Rows:
        return self._ranges.around(self._main_of(thread), time)

    def _main_of(self, thread: Int32) -> Int32:
        """Return the main thread of each thread's file; NONE for no thread."""
        file = take_or(self._threads.file, thread)
        recorded = (file >= 0) & (file < len(self._main))
        return np.where(
            recorded, take_or(self._main, np.where(recorded, file, -1), np.int32(NONE)), NONE
        )

    def _works_for_main(self, thread: Int32) -> np.ndarray:
        """Return the threads of autograd other than the main one."""
        is_other = thread != self._main_of(thread)
        return np.asarray(is_other & np.isin(thread, self._autograd))


def _autograd_threads(cpu_ops: pa.Table, threads: Threads) -> Int32:
    evaluates = match_texts(cpu_ops["name"], is_gradient)
    evaluates |= read_numbers(cpu_ops["forward_thread"]) > 0
    return np.unique(threads.number_threads(cpu_ops)[evaluates])


def _main_threads(steps: Nested, ranges: Nested, autograd: Int32, file: Rows) -> Int32:
    """Return, of each file, the thread with the profiler's steps, else that with the most time in
    ranges, not of autograd if there is another; NONE where none has any."""
    count = int(file.max(initial=-1)) + 1
    by_steps = np.bincount(steps.thread, minlength=len(file)).astype(np.int64)
    stepped = np.zeros(count, bool)
    stepped[file[steps.thread]] = True
    own = ~np.isin(ranges.thread, autograd)
    has_own = np.zeros(count, bool)
    has_own[file[ranges.thread[own]]] = True
    outer = (own | ~has_own[file[ranges.thread]]) & (ranges.parent == NONE)
    time = np.zeros(len(file), np.int64)
    np.add.at(time, ranges.thread[outer], ranges.end[outer] - ranges.start[outer] + 1)
    weight = np.where(stepped[file], by_steps, time)
    order = order_by(file, -weight)
    most = order[mark_heads(file[order])]
    main = np.full(count, NONE, np.int32)
    main[file[most]] = np.where(weight[most] > 0, most, NONE)
    return main
