"""Student's t by printed tables and by integration; shared error rates by their definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.measures.chance import (
    compute_student_tail,
    correct_by_holm,
    find_student_quantile,
)

# Two-sided 10, 5, 1 and 0.1 %, as in any textbook.
TABLE = {
    1: (6.314, 12.706, 63.657, 636.619), 2: (2.920, 4.303, 9.925, 31.599),
    5: (2.015, 2.571, 4.032, 6.869), 10: (1.812, 2.228, 3.169, 4.587),
    30: (1.697, 2.042, 2.750, 3.646), 120: (1.658, 1.980, 2.617, 3.373),
}  # fmt: skip


@pytest.mark.parametrize("free", TABLE)
def test_as_printed(free: int) -> None:
    chances = np.array([0.05, 0.025, 0.005, 0.0005])
    degrees = np.full(4, float(free))
    assert find_student_quantile(chances, degrees) == pytest.approx(TABLE[free], rel=3e-4)
    assert compute_student_tail(np.array(TABLE[free]), degrees) == pytest.approx(chances, rel=3e-3)


@pytest.mark.parametrize("free", [1.0, 2.5, 7.0, 40.0])
@pytest.mark.parametrize("t", [-2.0, 0.0, 0.3, 1.0, 4.0])
def test_as_integrated(free: float, t: float) -> None:
    """Simpson's rule over the density, from 0 to t; half lies beyond 0."""
    x = np.linspace(0, t, 2001)
    constant = math.gamma((free + 1) / 2) / math.gamma(free / 2) / math.sqrt(free * math.pi)
    density = constant * (1 + x**2 / free) ** (-(free + 1) / 2)
    weights = np.where(np.arange(2001) % 2, 4.0, 2.0)
    weights[[0, -1]] = 1.0
    until = float((weights * density).sum() * t / 2000 / 3)
    assert compute_student_tail(np.array([t]), np.array([free]))[0] == pytest.approx(
        0.5 - until, abs=1e-9
    )


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from([0.01, 0.05, 0.3]))
def test_hypotheses_fall_one_after_the_other_until_one_stands(
    p: list[float], chance: float
) -> None:
    falls, level = correct_by_holm(np.array(p), chance)
    expected = [False] * len(p)
    for k, row in enumerate(sorted(range(len(p)), key=lambda row: p[row])):
        if p[row] > chance / (len(p) - k):
            break
        expected[row] = True
    assert falls.tolist() == expected
    assert ((np.array(p) <= level) == falls).all(), "each has the level that it is held to"


def test_holm_s_levels() -> None:
    falls, level = correct_by_holm(np.array([0.2, 0.01, 0.02, 0.9]), 0.05)
    assert falls.tolist() == [False, True, False, False]
    assert level == pytest.approx([0.05 / 3, 0.05 / 4, 0.05 / 3, 0.05 / 3])
