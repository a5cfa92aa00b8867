"""Intervals and nesting by plain Python: lists of (start, end), one span after the other."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from htk.base.columns.types import NONE
from htk.verdicts.verify.reading import Span

Intervals = list[tuple[int, int]]


def merge_intervals(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Return what at least one of the intervals covers, in order."""
    merged: Intervals = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def intersect_intervals(left: Intervals, right: Intervals) -> Intervals:
    """Return what both unions cover."""
    shared: Intervals = []
    i = j = 0
    while i < len(left) and j < len(right):
        start = max(left[i][0], right[j][0])
        end = min(left[i][1], right[j][1])
        if start < end:
            shared.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return shared


def measure_covered_time(spans: Intervals, start: int, end: int) -> int:
    """Return how much of the time from start to end a union covers."""
    first = max(bisect_right(spans, (start, start)) - 1, 0)
    total = 0
    for low, high in spans[first:]:
        if low >= end:
            break
        total += max(min(high, end) - max(low, start), 0)
    return total


def _id_of(span: Span) -> int:
    """Return the number that the profiler gave a span as it began; -1: none."""
    number = span.number("External id", "external id", "Python id")
    return -1 if number is None else number


def _began_in_order(spans: Sequence[Span]) -> bool:
    """Return whether each span of a thread has a higher id than all that began before it."""
    highest = before = -1
    time: int | None = None
    for start, number in sorted((span.start, _id_of(span)) for span in spans):
        if start != time:
            before = highest
            time = start
        if number < 0 or number < before:
            return False
        highest = max(highest, number)
    return True


class Nesting:
    """Which span of a thread lies in which.

    A span lies in the one of its thread that began last before it and has not ended when it
    begins. Of two that begin together the one with the lower id is outside, on threads where ids
    grow with time; else the longer. A span without length holds nothing, and one may lie at the
    very end of its caller.
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = spans
        self.parent = [NONE] * len(spans)
        self._rows: dict[tuple[str | None, str | None], list[int]] = {}
        for row, span in enumerate(spans):
            self._rows.setdefault(span.thread, []).append(row)
        for rows in self._rows.values():
            counted = _began_in_order([spans[row] for row in rows])
            rows.sort(
                key=lambda row: (
                    *(spans[row].start, _id_of(spans[row]) if counted else 0),
                    *(-spans[row].end, row),
                )
            )
            self._nest(rows)
        self._starts = {
            thread: [spans[row].start for row in rows] for thread, rows in self._rows.items()
        }

    def around(self, thread: tuple[str | None, str | None], time: int) -> int:
        """Return the innermost span that is open on a thread at a time."""
        rows = self._rows.get(thread)
        if rows is None:
            return NONE
        index = bisect_right(self._starts[thread], time) - 1
        row = rows[index] if index >= 0 else NONE
        while row != NONE and self.spans[row].end <= time:
            row = self.parent[row]
        return row

    def self_times(self) -> list[int]:
        """Return each span's length less that of the spans right inside it."""
        own = [span.length for span in self.spans]
        for row, parent in enumerate(self.parent):
            if parent != NONE:
                own[parent] -= self.spans[row].length
        return own

    def inclusive(self, own: Sequence[int]) -> list[int]:
        """Return the sum over each span and all inside it."""
        total = list(own)
        for row, value in enumerate(own):
            parent = self.parent[row] if value else NONE
            while parent != NONE:
                total[parent] += value
                parent = self.parent[parent]
        return total

    def outermost(self) -> list[bool]:
        """Tell which spans begin in no other span of their name and thread."""
        outer = [False] * len(self.spans)
        for rows in self._rows.values():
            reached: dict[str, int] = {}
            for row in rows:
                span = self.spans[row]
                before = reached.get(span.name)
                outer[row] = before is None or span.start >= before
                reached[span.name] = span.end if before is None else max(before, span.end)
        return outer

    def _nest(self, rows: list[int]) -> None:
        stack: list[int] = []
        for row in rows:
            span = self.spans[row]
            while stack and self.spans[stack[-1]].end <= span.start:
                last = self.spans[stack[-1]]
                if not span.length and last.end == span.start and last.length:
                    break
                stack.pop()
            self.parent[row] = stack[-1] if stack else NONE
            stack.append(row)
