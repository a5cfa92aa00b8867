"""Interval arithmetic on integer nanoseconds: half-open [start, end), vectorised, once for all.

Everything rests on two functions: `merge_spans` (those that overlap become one) and `sweep_spans`
(walk several sets of spans at once and say which of them are on). Many windows are handled in one
go by laying them on one axis, one behind the other (`ConcatenatedTimeline`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads, repeat_rows, running_max
from htk.base.columns.types import Ints, take_or


class Spans(NamedTuple):
    """Starts and ends, row by row."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        return int((self.end - self.start).sum())


class Sweep(NamedTuple):
    """Segments between neighbouring edges, and which sets are on in each (bit k: set k)."""

    start: Ints
    end: Ints
    on: Ints


def merge_spans(start: Ints, end: Ints) -> Spans:
    """Return disjoint spans in order that cover the same points; empty spans cover none."""
    some = end > start
    if not some.all():
        start = start[some]
        end = end[some]
    if not len(start):
        return Spans(np.empty(0, np.int64), np.empty(0, np.int64))
    if (start[1:] < start[:-1]).any():
        order = order_by(start)
        start = start[order]
        end = end[order]
    reach = np.maximum.accumulate(end)
    first = np.empty(len(start), bool)
    first[0] = True
    np.greater(start[1:], reach[:-1], out=first[1:])
    heads = np.flatnonzero(first)
    tails = np.append(heads[1:], len(start)) - 1
    return Spans(start[heads], reach[tails])


def sweep_spans(sets: Sequence[Spans]) -> Sweep:
    """Return, by segment, which of several disjoint, ordered sets (see `merge_spans`) are on."""
    held = [(1 << k, spans) for k, spans in enumerate(sets) if len(spans.start)]
    if not held:
        none = np.empty(0, np.int64)
        return Sweep(none, none, none)
    edges = np.concatenate([part for _, spans in held for part in spans])
    change = np.repeat(
        np.array([way for bit, _ in held for way in (bit, -bit)], np.int64),
        [len(spans.start) for _, spans in held for _ in range(2)],
    )
    order = order_by(edges)
    edges = edges[order]
    on = np.cumsum(change[order])
    real = (edges[1:] > edges[:-1]) & (on[:-1] > 0)
    return Sweep(edges[:-1][real], edges[1:][real], on[:-1][real])


def subtract_spans(these: Spans, those: Spans) -> Spans:
    """Return what of these lies outside those."""
    swept = sweep_spans([these, those])
    only = swept.on == 1
    return merge_spans(swept.start[only], swept.end[only])


def intersect_spans(these: Spans, those: Spans) -> Spans:
    """Return what of these lies inside those."""
    swept = sweep_spans([these, those])
    both = swept.on == 3
    return merge_spans(swept.start[both], swept.end[both])


def find_gaps(spans: Spans, start: int, end: int) -> Spans:
    """Return what of [start, end) disjoint, ordered spans leave free."""
    window = Spans(np.array([start], np.int64), np.array([end], np.int64))
    return subtract_spans(window, spans)


class Clipped(NamedTuple):
    """Which row overlaps which window, and the part that does."""

    row: Ints
    window: Ints
    start: Ints
    end: Ints


def clip_spans(start: Ints, end: Ints, window_start: Ints, window_end: Ints) -> Clipped:
    """Cut spans to windows that are in order and do not overlap; a span may meet several. One
    without length lies where it begins."""
    first = np.searchsorted(window_end, start, side="right")
    last = np.searchsorted(window_start, np.maximum(end, start + 1), side="left")
    count = np.maximum(last - first, 0)
    row, offset = repeat_rows(count)
    window = first[row] + offset
    return Clipped(
        row,
        window,
        np.maximum(start[row], window_start[window]),
        np.minimum(end[row], window_end[window]),
    )


@dataclass(frozen=True)
class ConcatenatedTimeline:
    """Lays windows one behind the other, so that one sweep answers for all of them."""

    origin: Ints  # start of each window
    offset: Ints  # where it lies on the axis

    @classmethod
    def from_bounds(cls, start: Ints, end: Ints) -> "ConcatenatedTimeline":
        length = np.maximum(end - start, 0) + 1  # a free point between neighbours
        return cls(start, np.cumsum(length) - length)

    def point(self, window: Ints, time: Ints) -> Ints:
        """Return the times of a window, as points of the axis."""
        return time - self.origin[window] + self.offset[window]

    def window(self, point: Ints) -> Ints:
        """Return the window of each point (of a span's start, which never lies between windows)."""
        return np.searchsorted(self.offset, point, side="right") - 1

    def time(self, window: Ints, point: Ints) -> Ints:
        """Return points of a window, as times."""
        return point - self.offset[window] + self.origin[window]

    def measure(self, spans: Spans) -> Ints:
        """Return the time, in ns, that spans on the axis take in each window."""
        return np.bincount(
            self.window(spans.start), spans.end - spans.start, minlength=len(self.offset)
        ).astype(np.int64)


def measure_covered(spans: Spans, times: Ints) -> Ints:
    """Return how much of disjoint, ordered spans lies before each time."""
    length = np.append(0, np.cumsum(spans.end - spans.start))
    begun = np.searchsorted(spans.start, times, side="right")
    last = take_or(spans.end, begun - 1, 0)
    return np.asarray(length[begun] - np.where(begun > 0, np.maximum(last - times, 0), 0))


def union_lengths(group: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the length of the union of each group's spans; `group` is the group of each span."""
    some = end > start
    group = group[some]
    start = start[some]
    end = end[some]
    if not len(start):
        return np.zeros(groups, np.int64)
    order = order_by(group, start)
    group = group[order]
    start = start[order]
    end = end[order]
    new = mark_heads(group)
    reach = running_max(new, end)
    begins = np.flatnonzero(new | np.append(True, start[1:] > reach[:-1]))
    stops = np.append(begins[1:], len(start)) - 1
    total = np.zeros(groups, np.int64)
    np.add.at(total, group[begins], reach[stops] - start[begins])
    return total
