"""Rows in segments (a lane, a thread, a rank), each with its own times: running maxima, look-ups.

Segment and time are never packed into one integer: clocks of two ranks may lie decades apart, and
one stray event may have the time 0, so that `segment * range + time` overflows without a word.
"""

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, take_or

_ROOM = float(1 << 62)  # sums of time on one axis stay below it
_FEW = 512  # segments that are searched one after the other; more are searched all at once


def mark_heads(*keys: NDArray[np.integer]) -> Mask:
    """Return which rows, ordered by their keys, begin a new segment."""
    first = np.ones(len(keys[0]), bool)
    if len(first):
        first[1:] = np.logical_or.reduce([k[1:] != k[:-1] for k in keys])
    return first


def running_max(first: Mask, values: Ints) -> Ints:
    """Return the largest value up to each row of its segment; `first` marks where segments begin.

    Segments are laid one behind the other by their own extent, in batches whose extents together
    fit an int64, so that one accumulation serves a batch.
    """
    starts = np.flatnonzero(first)
    if not len(starts):
        return values.copy()
    low = np.minimum.reduceat(values, starts)
    extent = np.maximum.reduceat(values, starts) - low + 1
    batch = np.floor(np.cumsum(extent.astype(np.float64)) / (_ROOM / 4)).astype(np.int64)
    segment = np.cumsum(first) - 1
    out = np.empty(len(values), np.int64)
    cuts = np.append(np.flatnonzero(mark_heads(batch)), len(starts))
    for begin, stop in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):  # mostly one
        ends = np.cumsum(extent[begin:stop])
        shift = ends - extent[begin:stop] - low[begin:stop]
        rows = slice(starts[begin], starts[stop] if stop < len(starts) else len(values))
        offset = shift[segment[rows] - begin]
        out[rows] = np.maximum.accumulate(values[rows] + offset) - offset
    return out


class SegmentTimes:
    """The times of rows in order, segment by segment, to be looked up."""

    def __init__(self, segment: NDArray[np.integer], time: Ints, order: Ints | None = None) -> None:
        """`order`: rows by segment and time, where the caller has it already."""
        self.order = order_by(segment, time) if order is None else order
        self.time = time[self.order]
        ids = segment[self.order].astype(np.int64, copy=False)
        starts = np.flatnonzero(mark_heads(ids))
        self._ids = ids[starts]
        self._starts = np.append(starts, len(ids))

    def count_until(self, segment: NDArray[np.integer], time: Ints) -> tuple[Ints, Ints]:
        """Return where each segment begins in `order`, and where its rows after the time begin.

        Both are equal where a segment has no rows, or none at or before the time.
        """
        index = np.searchsorted(self._ids, segment)
        exists = take_or(self._ids, index, 0) == segment
        exists &= index < len(self._ids)
        begin = self._starts[index]
        end = np.where(exists, np.append(self._starts, self._starts[-1])[index + 1], begin)
        if len(self._ids) > _FEW:
            return begin, _count_before(self.time, begin, end, time)
        after = begin.copy()
        rows = np.argsort(index.astype(np.uint16), kind="stable")
        cuts = np.searchsorted(index[rows], np.arange(len(self._ids) + 1))
        for k in range(len(self._ids)):  # a few segments
            wanted = rows[cuts[k] : cuts[k + 1]]
            wanted = wanted[exists[wanted]]
            if len(wanted):
                own = self.time[self._starts[k] : self._starts[k + 1]]
                after[wanted] += np.searchsorted(own, time[wanted], side="right")
        return begin, after

    def last(self, segment: NDArray[np.integer], time: Ints) -> Ints:
        """Return the row of the segment that is the last at or before each time, or NONE."""
        begin, after = self.count_until(segment, time)
        return np.where(after > begin, take_or(self.order, after - 1), NONE)

    def next_time(self, segment: NDArray[np.integer], time: Ints, never: int) -> Ints:
        """Return the first time of the segment after each time, or `never`."""
        index = np.searchsorted(self._ids, segment)
        exists = take_or(self._ids, index, 0) == segment
        exists &= index < len(self._ids)
        end = np.append(self._starts, self._starts[-1])[index + 1]
        after = self.count_until(segment, time)[1]
        return np.where(exists & (after < end), np.append(self.time, never)[after], never)


def _count_before(times: Ints, begin: Ints, end: Ints, wanted: Ints) -> Ints:
    """Return, for each wanted time, how far times[begin:end] are at or before it."""
    low = begin.copy()
    high = end.copy()
    padded = np.append(times, 0)
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        upward = open_ & (padded[middle] <= wanted)
        low = np.where(upward, middle + 1, low)
        high = np.where(open_ & ~upward, middle, high)
    return low


def equal_runs(values: Ints) -> list[tuple[int, int]]:
    """Return first and last+1 of each run of equal values."""
    edges = np.flatnonzero(mark_heads(values))
    return list(zip(edges.tolist(), [*edges[1:].tolist(), len(values)], strict=True))


def repeat_rows(count: Ints) -> tuple[Ints, Ints]:
    """Return each row as often as counted, and the number (from 0) of each among its row's."""
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
