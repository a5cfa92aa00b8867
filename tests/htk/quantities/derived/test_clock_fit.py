"""The sparse fit of clocks against the same equations, dense; and against planted clocks."""

import numpy as np
import pytest

from htk.quantities.derived.clock_fit import Ends, Fit, fit_clocks

Groups = list[tuple[int, ...]]

CHAIN: Groups = [(k, k + 1) for k in range(39)]
GRID: Groups = [
    *(tuple(range(4 * k, 4 * k + 4)) for k in range(8)),
    *(tuple(range(k, 32, 4)) for k in range(4)),
]
WORLD: Groups = [tuple(range(12)), (0, 5), (3, 7, 11)]
APART: Groups = [(0, 3, 5), (3, 5), (1, 2), (1, 4)]
BASE_NS = 1_700_000_000_000_000_000


def job(
    groups: Groups, offset: np.ndarray, drift: np.ndarray, *, seconds: float, noise_ns: float
) -> Ends:
    """Collectives that truly end together but for noise, on clocks that are off and drift."""
    dice = np.random.default_rng(len(groups))
    rows = []
    for number, (which, true) in enumerate(
        (g, t) for t in np.linspace(0, seconds * 1e9, 15) for g in range(len(groups))
    ):
        for rank in groups[which]:
            end = true + which * 1e6 + dice.normal(0, noise_ns)
            own = BASE_NS + round(end + offset[rank] + drift[rank] * end)
            rows.append((number, rank, own - 5000, own))
    columns = np.array(sorted(rows)).T
    return Ends(columns[0], columns[1], columns[2], columns[3], len(offset))


def dense(ends: Ends, found: Fit) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (at the middle) and drifts of the same least squares, row by row, one matrix."""
    clock = found.clock[ends.process]
    clocks = len(found.zero)
    end = (ends.end - found.zero[clock]).astype(float)
    common = ends.mean(found.times(ends, ends.end))[ends.collective]
    x = (common - found.middle[clock]) / 1e9
    design = np.zeros((len(end), 2 * clocks))
    design[np.arange(len(end)), clock] = 1
    design[np.arange(len(end)), clocks + clock] = x
    for k in range(len(ends.count)):  # the common end is eliminated
        rows = ends.collective == k
        design[rows] -= design[rows].mean(axis=0)
        end[rows] -= end[rows].mean()
    weight = np.sqrt(found.weight)[ends.collective]
    prior = np.zeros((clocks, 2 * clocks))
    prior[:, clocks:] = np.eye(clocks) * found.scatter / 5e4
    left = np.vstack([design * weight[:, None], prior])
    right = np.append(-end * weight, np.zeros(clocks))
    solved = np.linalg.lstsq(left, right, rcond=None)[0]
    offset, drift = solved[:clocks], solved[clocks:]
    return offset - offset[found.lead], drift - drift[found.lead]


@pytest.mark.parametrize("seconds", [0.05, 8.0])
@pytest.mark.parametrize("groups", [CHAIN, GRID, WORLD, APART])
def test_as_the_dense_solution(groups: Groups, seconds: float) -> None:
    """The weights of the last round are those of its result, once that stands still."""
    count = 1 + max(max(g) for g in groups)
    dice = np.random.default_rng(7)
    offset, drift = dice.normal(0, 1e7, count), dice.normal(0, 2e-5, count)
    ends = job(groups, offset, drift, seconds=seconds, noise_ns=300)
    found = fit_clocks(ends, np.arange(count))
    told = found.offset - found.offset[found.lead]
    expected, turned = dense(ends, found)
    assert np.abs(told - expected).max() < 10
    slope = (found.drift - found.drift[found.lead]) - turned
    assert np.abs(slope).max() * seconds / 2 < 10
