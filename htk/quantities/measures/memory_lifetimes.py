"""Recorded allocations with other lifetimes: activations computed again, or kept on the host.

The activations of a forward and backward pass are cut, in the order in which they were allocated,
into segments of equal bytes, which stand for layers. What a segment gives up is freed behind its
last allocation, and allocated again before its backward pass: before the first release of any of
its activations, or where it is fetched from the host, one segment earlier.
"""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask


@dataclass(frozen=True)
class MemoryEvents:
    """Allocations (bytes above 0) and releases (below), in order; blocks by number."""

    block: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.block)


@dataclass(frozen=True)
class _Segment:
    blocks: tuple[int, ...]  # rows of the allocations that it gives up
    last: int  # row of its last allocation
    first_release: int  # row of the first release of its activations


def recompute_activations(events: MemoryEvents, activation: Mask, segments: int) -> MemoryEvents:
    """Return the events with the activations of so many segments computed again.

    `activation`: which events are of activations. Each segment keeps its first, its input.
    """
    return _edit_segments(events, _given_up(events, activation, segments, keeps=1), ahead=0)


def offload_activations(events: MemoryEvents, activation: Mask, segments: int) -> MemoryEvents:
    """Return the events with all activations on the host until the segment after is under way."""
    return _edit_segments(events, _given_up(events, activation, segments, keeps=0), ahead=1)


def _given_up(
    events: MemoryEvents, activation: Mask, count: int, *, keeps: int
) -> list[list[_Segment]]:
    """Return the segments of each pass, in the order of the forward pass."""
    passes: list[list[_Segment]] = []
    for born, freed in _split_into_passes(events, activation):
        size = events.size[born]
        begins = np.cumsum(size) - size
        number = np.minimum(begins * count // max(int(size.sum()), 1), count - 1)
        segments = []
        for k in np.unique(number).tolist():  # some dozens
            own = number == k
            segments.append(
                _Segment(
                    tuple(born[own][keeps:].tolist()), int(born[own][-1]), int(freed[own].min())
                )
            )
        passes.append(segments)
    return passes


def _split_into_passes(events: MemoryEvents, activation: Mask) -> list[tuple[Ints, Ints]]:
    """Return rows of allocation and release of the activations of each pass.

    A pass ends where, after releases of its activations, the next one is allocated.
    """
    born, freed = _pair_lives(events)
    chosen = activation[born]
    born = born[chosen]
    freed = freed[chosen]
    if not len(born):
        return []
    begins = [0]
    first_release = int(freed[0])
    for k in range(1, len(born)):  # each depends on where the pass before ended
        if born[k] > first_release:
            begins.append(k)
            first_release = int(freed[k])
        first_release = min(first_release, int(freed[k]))
    ends = [*begins[1:], len(born)]
    return [(born[a:b], freed[a:b]) for a, b in zip(begins, ends, strict=True)]


def _pair_lives(events: MemoryEvents) -> tuple[Ints, Ints]:
    """Return rows that allocate and release each block that both are recorded of, in order."""
    order = order_by(events.block, np.arange(len(events)))
    block = events.block[order]
    size = events.size[order]
    pairs = np.flatnonzero((block[1:] == block[:-1]) & (size[:-1] > 0) & (size[1:] < 0))
    born = order[pairs]
    freed = order[pairs + 1]
    by_birth = order_by(born)
    return born[by_birth], freed[by_birth]


def _edit_segments(
    events: MemoryEvents, passes: list[list[_Segment]], *, ahead: int
) -> MemoryEvents:
    """Return the events with the releases and allocations of the segments put in."""
    positions: list[float] = []  # rows between which each new event stands
    rows: list[int] = []  # the allocation that it repeats, or takes back
    signs: list[int] = []
    for segments in passes:
        for k, segment in enumerate(segments):
            before = segments[min(k + ahead, len(segments) - 1)].first_release
            back = max(min(before, segment.first_release) - 0.25, segment.last + 0.75)
            for row in segment.blocks:
                positions += [segment.last + 0.5, back]
                rows += [row, row]
                signs += [-1, 1]
    position = np.append(np.arange(len(events), dtype=np.float64), positions)
    added = np.array(rows, np.int64)
    block = np.append(events.block, events.block[added])
    size = np.append(events.size, events.size[added] * np.array(signs, np.int64))
    order = order_by(position)
    return MemoryEvents(block[order], size[order])
