"""Which activities overlap at the times of a replay. Activities are given by their nodes."""

from typing import NamedTuple

import numpy as np

from htk.base.columns.intervals import measure_covered, merge_spans
from htk.base.columns.types import Floats, Ints


class Nodes(NamedTuple):
    """Where some activities start and end."""

    start: Ints
    end: Ints


def measure_busy_sets(time: Ints, sets: tuple[Nodes, Nodes, Nodes]) -> tuple[int, int, int]:
    """Return how long the first set runs, any of the first two, and any of all, in ns."""
    try:
        from htk.base.native._overlaps import busy as compiled
    except ImportError:
        return busy_pure(time, sets)
    lengths: tuple[int, int, int] = compiled(time, *sets[0], *sets[1], *sets[2])
    return lengths


def busy_pure(time: Ints, sets: tuple[Nodes, Nodes, Nodes]) -> tuple[int, int, int]:
    """Return how long the first set runs, any of two, and any of all, with NumPy alone."""
    first = _measure_union(time, sets[:1])
    second = _measure_union(time, sets[:2])
    third = _measure_union(time, sets[:3])
    return first, second, third


def _measure_union(time: Ints, sets: tuple[Nodes, ...]) -> int:
    starts, ends = (
        np.concatenate([time[nodes] for nodes in side]) for side in zip(*sets, strict=True)
    )
    return merge_spans(starts, ends).total


def share_time_beside(time: Ints, own: Nodes, others: Nodes) -> Floats:
    """Return the share of each own activity's time in which any of the others runs."""
    try:
        from htk.base.native._overlaps import beside as compiled
    except ImportError:
        return beside_pure(time, own, others)
    share = np.empty(len(own.start))
    compiled(time, *own, *others, share)
    return share


def beside_pure(time: Ints, own: Nodes, others: Nodes) -> Floats:
    """Return the share of each activity beside which another runs, with NumPy alone."""
    running = merge_spans(time[others.start], time[others.end])
    start = time[own.start]
    end = time[own.end]
    inside = measure_covered(running, end) - measure_covered(running, start)
    return np.asarray(inside / np.maximum(end - start, 1))
