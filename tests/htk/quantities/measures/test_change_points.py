"""One shift of the mean: by hand, by its definition, among noise, and where neighbours resemble."""

from itertools import pairwise
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.measures.chance import compute_student_tail, find_student_quantile
from htk.quantities.measures.change_points import find_best_splits
from tests.thinned import thinned


def test_a_shift_by_hand() -> None:
    """10 ± 1 four times, then 20 ± 1 four times: the split leaves 8 of 208 squares, t = 5·√… ."""
    flat = [9.0, 11, 11, 9]
    shift = find_best_splits(np.array([[*flat, *(x + 10 for x in flat)], [*flat, *flat]]))
    assert shift.split[0] == 4 and (shift.low[0], shift.high[0]) == (4, 4)
    assert (shift.before[0], shift.after[0]) == (10, 20)
    assert shift.p[0] < 1e-3 < 0.5 < shift.p[1]


def squares(values: list[float]) -> float:
    return sum((x - mean(values)) ** 2 for x in values)


def by_definition(series: list[float]) -> tuple[int, set[int], float, float, float]:
    """Best split, splits as good within 95 %, means of both sides, and p, split by split."""
    steps = len(series)
    splits = range(2, steps - 1)
    rest = {k: squares(series[:k]) + squares(series[k:]) for k in splits}
    best = min(splits, key=lambda k: (round(rest[k], 9), k))
    sides = series[:best], series[best:]
    off = [x - mean(side) for side in sides for x in side]
    power = sum(x * x for x in off)
    likeness = min(max(sum(a * b for a, b in pairwise(off)) / power, 0), 0.9)
    variance = rest[best] / (steps - 2) * (1 + likeness) / (1 - likeness)
    error = (variance * (1 / len(sides[0]) + 1 / len(sides[1]))) ** 0.5
    free = np.array([steps - 2.0])
    t = abs(mean(sides[1]) - mean(sides[0])) / error
    p = min(1.0, 2 * float(compute_student_tail(np.array([t]), free)[0]) * len(splits))
    limit = float(find_student_quantile(np.array([0.025]), free)[0]) ** 2 / (steps - 2)
    near = {k for k in splits if rest[k] <= rest[best] * (1 + limit)}
    return best, near, mean(sides[0]), mean(sides[1]), p


@pytest.mark.parametrize("steps", [6, 9, 14])
@pytest.mark.parametrize("seed", thinned(range(8), 3))
def test_as_defined(steps: int, seed: int) -> None:
    """A shift upward or down at any place, among noise of which neighbours have some in common."""
    dice = np.random.default_rng(seed)
    noise = dice.normal(0, 1, (5, steps + 1))
    rows = 50 + noise[:, 1:] + 0.6 * noise[:, :-1]
    for row, place in enumerate(dice.integers(1, steps, 5).tolist()):
        rows[row, place:] += (-1) ** row * dice.uniform(0, 6)
    shift = find_best_splits(rows)
    for k, series in enumerate(rows.tolist()):
        best, near, before, after, p = by_definition(series)
        assert (shift.split[k], shift.low[k], shift.high[k]) == (best, min(near), max(near))
        assert (shift.before[k], shift.after[k]) == pytest.approx((before, after))
        assert shift.p[k] == pytest.approx(p, rel=1e-6)


@given(st.integers(0, 6), st.sampled_from([-3.0, 5.0]))
def test_steps_without_noise(place: int, change: float) -> None:
    """Two values: certain where two steps or more lie on each side; none: nothing shifted."""
    flat = np.full((1, 8), 100.0)
    assert find_best_splits(flat).p[0] == 1
    flat[0, 2 + place :] += change
    if place <= 4:
        shift = find_best_splits(flat)
        assert (shift.split[0], shift.p[0]) == (2 + place, 0)
        assert shift.low[0] == shift.high[0] == shift.split[0], "no other split leaves nothing"
        assert shift.after[0] - shift.before[0] == change


def test_series_without_a_shift_are_left_alone() -> None:
    chance = np.random.default_rng(5)
    steady = chance.normal(100, 1, (4000, 12))
    assert (find_best_splits(steady).p < 0.01).mean() < 0.01
    drifting = np.cumsum(chance.normal(0, 0.3, (500, 40)), axis=1) + chance.normal(
        100, 3, (500, 40)
    )
    assert (find_best_splits(drifting).p < 1e-4).mean() < 0.3, (
        "neighbours that resemble count for less"
    )
