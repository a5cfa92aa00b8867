"""From which step on something takes longer, or less long: one shift of the mean in a series.

Of all splits of the steps the one is taken that Student's t tells best; the chance of a false alarm
is shared among the splits of a series. Steps that resemble the one before count for less.
"""

from typing import NamedTuple

import numpy as np

from htk.base.columns.types import Floats, Ints
from htk.quantities.measures.chance import compute_student_tail, find_student_quantile

LEAST_STEPS = 6
_SIDE = 2  # steps on each side of a split, at least


class Shift(NamedTuple):
    """The best split of each series, a row each."""

    split: Ints  # the first step after the shift, by its place
    low: Ints  # the same, at the earliest and at the latest (95 %)
    high: Ints
    before: Floats
    after: Floats
    p: Floats  # chance that a series without a shift shows as much


def find_best_splits(series: Floats) -> Shift:
    """Find the best split of each row; its columns are steps, LEAST_STEPS of them or more."""
    many, steps = series.shape
    splits = np.arange(_SIDE, steps - _SIDE + 1)
    sums = np.cumsum(series, axis=1)
    before = sums[:, splits - 1] / splits
    after = (sums[:, -1:] - sums[:, splits - 1]) / (steps - splits)
    around = ((series - series.mean(axis=1, keepdims=True)) ** 2).sum(axis=1, keepdims=True)
    weight = splits * (steps - splits) / steps
    rest = np.maximum(around - weight * (after - before) ** 2, 0)  # squares that a split leaves
    best = np.argmin(rest, axis=1)
    rows = np.arange(many)
    free = np.full(many, steps - 2.0)
    variance = rest[rows, best] / free * _measure_resemblance(series, splits[best])
    change = np.abs(after - before)[rows, best]
    error = np.sqrt(variance / weight[best])
    t = np.divide(change, error, out=np.where(change > 0, np.inf, 0.0), where=error > 0)
    p = np.minimum(2 * compute_student_tail(t, free) * len(splits), 1)
    limit = (
        find_student_quantile(np.array([0.025]), free[:1])[0] ** 2 / (steps - 2) if many else 0.0
    )
    near = rest <= rest[rows, best][:, None] * (1 + limit)
    low = splits[np.argmax(near, axis=1)]
    high = splits[len(splits) - 1 - np.argmax(near[:, ::-1], axis=1)]
    return Shift(splits[best], low, high, before[rows, best], after[rows, best], p)


def _measure_resemblance(series: Floats, split: Ints) -> Floats:
    """By how much the variance of a mean grows as neighbouring steps resemble each other."""
    later = np.arange(series.shape[1]) >= split[:, None]
    parts = [np.where(side, series, np.nan) for side in (later, ~later)]
    means = [np.nanmean(part, axis=1, keepdims=True) for part in parts]
    rest = series - np.where(later, *means)
    power = (rest**2).sum(axis=1)
    together = (rest[:, 1:] * rest[:, :-1]).sum(axis=1)
    likeness = np.divide(together, power, out=np.zeros(len(power)), where=power > 0)
    likeness = np.clip(likeness, 0, 0.9)
    return np.asarray((1 + likeness) / (1 - likeness))
