"""User ranges (record_function and the like) and the threads that work inside them.

A range holds what was launched inside it by its own thread, and by the threads that work for it:
autograd evaluates a backward pass on threads of its own while the thread that called it waits.
Autograd threads may open ranges themselves (`nccl:all_reduce`); these lie inside the range that the
waiting thread has open. A thread with ranges of its own that evaluates nothing for autograd works
for itself.
"""

import numpy as np
import pyarrow as pa

from htk.columns.arrow import matching, number, numbers, truths, valid
from htk.columns.nesting import Int32, Nested, Rows, Threads, nested
from htk.columns.types import NONE, Ints
from htk.schema import DERIVED

_EVALUATES = "autograd::engine::evaluate_function"


def annotation_links(annotations: pa.Table, cpu_ops: pa.Table) -> pa.Table:
    """Return the range that holds each range; null for steps and for copies on the GPU."""
    parent = UserRanges(annotations, cpu_ops, Threads()).parent
    return pa.table(
        [number(parent, pa.int64(), parent != NONE)], schema=DERIVED["annotation_links"]
    )


class UserRanges:
    """The ranges of one file on its CPU threads, steps of the profiler aside."""

    def __init__(self, annotations: pa.Table, cpu_ops: pa.Table, threads: Threads) -> None:
        on_cpu = ~truths(annotations["on_gpu"])
        is_step = valid(annotations["step"])
        self._length = annotations.num_rows
        self._rows = np.flatnonzero(on_cpu & ~is_step)
        self._ranges: Nested = nested(annotations, threads, self._rows)
        steps = nested(annotations, threads, np.flatnonzero(on_cpu & is_step))
        self._autograd = _autograd_threads(cpu_ops, threads)
        self._main = _main_thread(steps, self._ranges, self._autograd)

    def around(self, thread: Int32, time: Rows) -> Ints:
        """Return the innermost range that holds what each thread does at each time, or NONE."""
        inner = self._ranges.around(thread, time)
        lost = np.flatnonzero((inner == NONE) & self._works_for_main(thread))
        inner[lost] = self._of_main(time[lost])
        return np.append(self._rows, NONE)[inner]

    @property
    def parent(self) -> Ints:
        """Return the range that holds each row of `annotations`, or NONE."""
        ranges = self._ranges
        above = ranges.parent.copy()
        outer = np.flatnonzero(
            (above == NONE) & self._works_for_main(ranges.thread.astype(np.int32))
        )
        above[outer] = self._of_main(ranges.start[outer])
        parent = np.full(self._length, NONE, np.int64)
        parent[self._rows] = np.append(self._rows, NONE)[above]
        return parent

    def _of_main(self, time: Rows) -> Rows:
        return self._ranges.around(np.full(len(time), self._main, np.int32), time)

    def _works_for_main(self, thread: Int32) -> np.ndarray:
        """Return the threads of autograd, and those that have no ranges of their own."""
        alone = ~np.isin(thread, self._ranges.thread)
        return np.asarray((thread != self._main) & (alone | np.isin(thread, self._autograd)))


def _autograd_threads(cpu_ops: pa.Table, threads: Threads) -> Int32:
    evaluates = matching(cpu_ops["name"], lambda name: name.startswith(_EVALUATES))
    evaluates |= numbers(cpu_ops["forward_thread"]) > 0
    return np.unique(threads.of(cpu_ops)[evaluates])


def _main_thread(steps: Nested, ranges: Nested, autograd: Int32) -> int:
    """Return the thread with the profiler's steps, else that with the most time in ranges."""
    if len(steps.thread):
        return int(np.bincount(steps.thread).argmax())
    own = np.flatnonzero(~np.isin(ranges.thread, autograd))
    own = own if len(own) else np.arange(len(ranges.thread))
    if not len(own):
        return NONE
    outer = own[ranges.parent[own] == NONE]
    time = np.zeros(int(ranges.thread.max()) + 1, np.int64)
    np.add.at(time, ranges.thread[outer], ranges.end[outer] - ranges.start[outer] + 1)
    return int(time.argmax())
