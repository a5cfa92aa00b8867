"""What a selection leaves of a GPU's time: windows of the recording and of its steps, cut."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    read_booleans,
    read_numbers,
    read_times,
    with_column,
)
from htk.base.columns.groups import Groups, rows_by_number
from htk.base.columns.intervals import Spans, clip_spans, merge_spans
from htk.base.columns.order import order_by
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask, take_or
from htk.base.schema import INT32, INT64
from htk.quantities.derived.links import steps_of
from htk.quantities.derived.windows import cut_to_windows

Read = Callable[[str], pa.Table]  # a table of the whole recording


@dataclass(frozen=True)
class GpuWindows:
    """Windows of one recording under a choice of steps, a time, and ranges."""

    read: Read
    steps: frozenset[int] | None
    time: Spans  # one span: from when to when
    ranges: Mask | None  # the ranges chosen, rows of `annotations`

    @cached_property
    def of_recording(self) -> pa.Table:
        """Windows of the GPUs, without the numbers of steps."""
        if self.steps is None:
            return self._cut(self.read("rank_windows"))
        return self._cut(_join_windows(self._chosen_steps))

    @cached_property
    def of_steps(self) -> pa.Table:
        """Windows of the GPUs' steps; one that is left in part is not complete."""
        return self._cut(self._chosen_steps)

    @property
    def _chosen_steps(self) -> pa.Table:
        windows = self.read("step_windows")
        if self.steps is None:
            return windows
        return windows.filter(pc.is_in(windows["step"], pa.array(sorted(self.steps), INT32)))

    def _cut(self, windows: pa.Table) -> pa.Table:
        start, end = read_times(windows)
        row = np.arange(len(start))
        if self.ranges is not None:  # a window may meet several ranges
            row, _, start, end = clip_spans(start, end, *self._range_spans)
        start = np.maximum(start, self.time.start)
        end = np.minimum(end, self.time.end)
        step = read_numbers(windows["step"], NONE)[row]
        uncut = (start == read_numbers(windows["start_ns"])[row]) | (self.ranges is not None)
        uncut &= (end == read_numbers(windows["end_ns"])[row]) | (self.ranges is not None)
        uncut &= np.isin(step, self._whole_steps)
        complete = read_booleans(windows["complete"])[row] & (uncut | (step == NONE))
        keep = end > start
        cut = windows.take(pa.array(row[keep]))
        cut = with_column(cut, "start_ns", build_numbers(start[keep], INT64))
        cut = with_column(cut, "end_ns", build_numbers(end[keep], INT64))
        return with_column(cut, "complete", build_booleans(complete[keep]))

    @cached_property
    def _whole_steps(self) -> Ints:
        """The steps that the host began and ended in the chosen time."""
        step, start, end = steps_of(self.read("annotations"))
        inside = (start >= self.time.start) & (end <= self.time.end)
        return step[inside].astype(np.int64)

    @cached_property
    def _range_spans(self) -> Spans:
        """Where the chosen ranges lie on the GPU: their copies there, else from the first start to
        the last end of what each launched."""
        annotations = self.read("annotations")
        start, end = read_times(annotations)
        chosen = np.flatnonzero([] if self.ranges is None else self.ranges)
        on_gpu = chosen[read_booleans(annotations["on_gpu"])[chosen]]
        if len(on_gpu):
            return merge_spans(start[on_gpu], end[on_gpu])
        host = merge_spans(start[chosen], end[chosen])
        kernels = self.read("kernels")
        launched = read_numbers(self.read("kernel_links")["launch_start_ns"], NO_TIME)
        position = np.searchsorted(host.start, launched, side="right") - 1
        inside = (position >= 0) & (launched < take_or(host.end, position, NO_TIME))
        of = Groups.by_keys(position[inside])
        if not len(of):
            return Spans(host.start[:0], host.end[:0])
        first = of.min(read_numbers(kernels["start_ns"])[inside])
        last = of.max(read_numbers(kernels["end_ns"])[inside])
        return merge_spans(first, last)


def _join_windows(steps: pa.Table) -> pa.Table:
    """Return neighbouring step windows of a device as one window without a number."""
    steps = steps.sort_by([("device", "ascending"), ("start_ns", "ascending")])
    device = read_numbers(steps["device"], NONE)
    start, end = read_times(steps)
    if not len(start):
        return steps
    new = np.append(True, (device[1:] != device[:-1]) | (start[1:] != end[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(start)) - 1
    joined = steps.take(pa.array(first))
    joined = with_column(joined, "end_ns", build_numbers(end[last], INT64))
    joined = with_column(joined, "complete", build_booleans(np.ones(len(first), bool)))
    return with_column(joined, "step", pa.nulls(len(first), INT32))


def passing_by(activities: pa.Table, windows: pa.Table, chosen: Mask) -> Ints:
    """Return the activities not chosen that run in a window, and on each stream those before and
    behind: between them the stream is idle."""
    beside = [cut_to_windows(activities, windows).row]
    device = read_numbers(activities["device"], NONE)
    start = read_numbers(activities["start_ns"])
    lanes = Groups.by_keys([device, read_numbers(activities["stream"], NONE)])
    rows_of = rows_by_number(lanes.group_ids)
    window_device = read_numbers(windows["device"], NONE)
    for lane, (lane_device, _) in enumerate(lanes.keys.tolist()):  # a few streams
        rows = rows_of(lane)
        rows = rows[order_by(start[rows])]
        own = window_device == lane_device
        before = np.searchsorted(start[rows], read_numbers(windows["start_ns"])[own]) - 1
        behind = np.searchsorted(start[rows], read_numbers(windows["end_ns"])[own])
        beside += [rows[before[before >= 0]], rows[behind[behind < len(rows)]]]
    rows = np.unique(np.concatenate(beside))
    return rows[~chosen[rows]]
