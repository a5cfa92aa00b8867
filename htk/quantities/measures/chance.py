"""Student's t, and error rates that are shared among several hypotheses."""

import math
from statistics import NormalDist

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Mask

_ROUNDS = 60  # of Newton's method; it needs five, or more where there are few degrees of freedom
_TERMS = 300  # of the continued fraction; it needs about the root of the degrees of freedom


def compute_student_tail(t: Floats, free: Floats) -> Floats:
    """Return how probable it is that Student's t exceeds these values."""
    x = free / (free + t**2)
    half = 0.5 * _incomplete_beta(x, free / 2)
    return np.asarray(np.where(t >= 0, half, 1 - half))


def _incomplete_beta(x: Floats, a: Floats) -> Floats:
    """Return the regularised incomplete beta function I_x(a, 1/2) by its continued fraction."""
    b = np.full(len(x), 0.5)
    turned = x > (a + 1) / (a + b + 2)  # there the fraction of 1 - I_{1-x}(b, a) is quick
    p = np.where(turned, b, a)
    q = np.where(turned, a, b)
    y = np.where(turned, 1 - x, x)
    with np.errstate(divide="ignore"):  # y = 0: the value is 0
        front = np.exp(p * np.log(y) + q * np.log1p(-np.minimum(y, 1 - 1e-16)) - _ln_beta(p, q)) / p
    value = front * _compute_fraction(y, p, q)
    return np.asarray(np.where(turned, 1 - value, value))


def _compute_fraction(x: Floats, a: Floats, b: Floats) -> Floats:
    """Lentz's method."""
    c = np.ones(len(x))
    d = 1 / (1 - (a + b) * x / (a + 1))
    value = d.copy()
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if np.all(np.abs(c * d - 1) < 1e-12):
            break
    return np.asarray(value)


def find_student_quantile(chance: Floats, free: Floats) -> Floats:
    """Return what Student's t exceeds with these chances, each below a half."""
    z = -np.array([NormalDist().inv_cdf(p) for p in chance.tolist()])
    value = z + (z**3 + z) / (4 * free)  # Cornish and Fisher; Newton's method goes on from there
    for _ in range(_ROUNDS):
        above = compute_student_tail(value, free)
        slope = value * _compute_density(value, free) / above  # both on logarithmic axes
        step = np.clip(np.log(above / chance) / slope, -0.7, 0.7)
        value = value * np.exp(step)
        if np.all(np.abs(step) < 1e-9):
            break
    return np.asarray(value)


def _compute_density(t: Floats, free: Floats) -> Floats:
    ln_beta = _ln_beta(free / 2, np.full(len(free), 0.5))
    power = -(free + 1) / 2 * np.log1p(t**2 / free)
    return np.asarray(np.exp(power - ln_beta) / np.sqrt(free))


def _ln_beta(a: Floats, b: Floats) -> Floats:
    gamma = np.frompyfunc(math.lgamma, 1, 1)
    return np.asarray(gamma(a) + gamma(b) - gamma(a + b), np.float64)


def correct_by_holm(p: Floats, chance: float) -> tuple[Mask, Floats]:
    """Holm: which hypotheses fall, so that any true one falls with `chance` at most; and at what p.

    A hypothesis falls exactly where its p is below its own level.
    """
    order = order_by(p)
    levels = chance / np.arange(len(p), 0, -1)
    stands = np.flatnonzero(p[order] > levels)
    fallen = int(stands[0]) if len(stands) else len(p)
    level = np.empty(len(p))
    level[order] = levels
    if fallen < len(p):
        level[order[fallen:]] = levels[fallen]
    falls = np.zeros(len(p), bool)
    falls[order[:fallen]] = True
    return falls, level


def explained_by_chance(
    changes: Floats, errors: Floats, free: Floats, chance: float, *, sides: int = 2
) -> Floats:
    """Return how large each change must be to be no chance: all of them share the chance that one
    is taken for more, of one or two sides."""
    grown = np.abs(changes) if sides == 2 else changes
    never = np.where(grown > 0, np.inf, 0.0)
    level = correct_by_holm(
        sides * compute_student_tail(np.divide(grown, errors, out=never, where=errors > 0), free),
        chance,
    )
    return np.asarray(errors * find_student_quantile(level[1] / sides, free))
