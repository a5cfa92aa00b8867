"""One shift of the mean: by hand, among noise, and where neighbours resemble each other."""

import numpy as np

from htk.measures.change_points import shifts


def test_a_shift_by_hand() -> None:
    """10 ± 1 four times, then 20 ± 1 four times: the split leaves 8 of 208 squares, t = 5·√… ."""
    flat = [9.0, 11, 11, 9]
    shift = shifts(np.array([[*flat, *(x + 10 for x in flat)], [*flat, *flat]]))
    assert shift.split[0] == 4 and (shift.low[0], shift.high[0]) == (4, 4)
    assert (shift.before[0], shift.after[0]) == (10, 20)
    assert shift.p[0] < 1e-3 < 0.5 < shift.p[1]


def test_series_without_a_shift_are_left_alone() -> None:
    chance = np.random.default_rng(5)
    steady = chance.normal(100, 1, (4000, 12))
    assert (shifts(steady).p < 0.01).mean() < 0.01
    drifting = np.cumsum(chance.normal(0, 0.3, (500, 40)), axis=1) + chance.normal(
        100, 3, (500, 40)
    )
    assert (shifts(drifting).p < 1e-4).mean() < 0.3, "neighbours that resemble count for less"
