"""Empty time between recordings, which a picture leaves out but for a break of a few percent.

The picture's axis runs without the empty time: positions on it are what lanes, views and marks
hold. Only what people read (moments, durations, addresses) is on the real clock.
"""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import Ints

_EMPTY = 2  # times as long as the longer recording beside it: then it is cut out
_BREAK = 0.03  # of the time that is recorded: how wide a break is drawn
_BREAKS = 0.2  # of the recorded time: how wide all breaks are together at most


@dataclass(frozen=True)
class TimeCuts:
    """Stretches of empty time, in order, and where on the axis their breaks lie."""

    start: Ints  # from the recording's start
    end: Ints
    position: Ints  # of each break on the axis
    width: int

    @classmethod
    def none(cls) -> "TimeCuts":
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing, 0)

    @classmethod
    def between(cls, spans: list[tuple[int, int]]) -> "TimeCuts":
        """Return the cuts between recordings that lie further apart than they are long."""
        if len(spans) < 2:
            return cls.none()
        start, end = np.array(spans, np.int64).T
        gap = start[1:] - end[:-1]
        recorded = int((end - start).sum())
        width = round(recorded * min(_BREAK, _BREAKS / len(gap)))
        removed = np.cumsum(gap - width) - (gap - width)
        return cls(end[:-1], start[1:], end[:-1] - removed, width)

    def position_of(self, times: Ints) -> Ints:
        """Return where on the axis some times are; within a break, in proportion."""
        return _move_between_axes(
            times, self.start, self.end, self.position, self.position + self.width
        )

    def time_at(self, positions: Ints) -> Ints:
        """Return the times at some positions of the axis."""
        return _move_between_axes(
            positions, self.position, self.position + self.width, self.start, self.end
        )

    def listed(self) -> list[list[int]]:
        """Return start and end of each cut, and of its break on the axis."""
        columns = [self.start, self.end, self.position, self.position + self.width]
        cuts: list[list[int]] = np.stack(columns, 1).tolist()
        return cuts


def _move_between_axes(
    values: Ints, start: Ints, end: Ints, new_start: Ints, new_end: Ints
) -> Ints:
    """Return values of one axis on the other: exact outside of the stretches [start, end]."""
    if not len(start):
        return values
    position = np.searchsorted(start, values, side="right") - 1
    k = np.maximum(position, 0)
    within = (position >= 0) & (values < end[k])
    shift = np.where(position >= 0, new_end[k] - end[k], 0)
    scale = (new_end - new_start) / np.maximum(end - start, 1)
    inside = new_start[k] + np.rint((values - start[k]) * scale[k]).astype(np.int64)
    return np.where(within, inside, values + shift)


def group_recordings(spans: list[list[int]]) -> list[tuple[int, int]]:
    """Return start and end of the recordings that files make together, given those of each file."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted((start, end) for start, end in spans):  # a file each
        if joined:
            low, high = joined[-1]
            if start - high <= _EMPTY * max(high - low, end - start):
                joined[-1] = low, max(high, end)
                continue
        joined.append((start, end))
    return joined
