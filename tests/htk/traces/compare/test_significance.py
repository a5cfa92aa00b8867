"""Standard errors of changes, worked out on paper."""

import math
from dataclasses import replace

import numpy as np
import pytest

from htk.traces.compare.baseline import RecordedBaseline, Series
from htk.traces.compare.significance import Chance, run_noise_pct, stacked


def series(steps: list[float], ranks: list[float]) -> Series:
    by_step = np.array(steps, float)
    return Series(1.0, by_step, np.array(ranks, float), by_step)


def recording(thing: Series, **facts: str) -> RecordedBaseline:
    ranks = tuple(range(len(thing.by_rank)))
    return RecordedBaseline(len(thing.by_step), ranks, {"time": {"total": thing}}, facts)


def test_of_one_rank_steps_and_runs_add_up() -> None:
    was, now = series([100, 104, 96, 100], [100]), series([110, 113, 107], [110])
    error, _ = Chance(recording(was), recording(now), "time", None).of(was, now)
    # Variances over steps: 32/3 of four, 9 of three; a run of the smaller mean differs by 0.3 %.
    assert error == pytest.approx(math.sqrt(32 / 3 / 4 + 9 / 3 + 2 * (0.003 * 100) ** 2))


def test_ranks_that_change_unlike_count_where_they_say_more_than_steps() -> None:
    was, now = series([100, 100], [90, 110, 100]), series([130, 130], [110, 150, 130])
    error, free = Chance(recording(was), recording(now), "time", 0.0).of(was, now)
    # Changes by rank: 20, 40, 30; their variance is 100, of three ranks.
    assert (error, free) == (pytest.approx(math.sqrt(100 / 3)), pytest.approx(2))


def test_two_ranks_that_change_unlike_tell_of_chance() -> None:
    was, now = series([100, 100], [90, 110]), series([130, 130], [110, 150])
    error, free = Chance(recording(was), recording(now), "time", 0.0).of(was, now)
    # Changes by rank: 20 and 40; their variance is 200, of two ranks.
    assert (error, free) == (pytest.approx(math.sqrt(200 / 2)), pytest.approx(1))


def test_other_ranks_are_compared_as_two_samples() -> None:
    was, now = series([100, 100], [90, 110]), series([100, 100], [80, 100, 120])
    base = recording(was)
    error, _ = Chance(base, recording(now), "time", 0.0).of(was, now)
    assert error == pytest.approx(math.sqrt(200 / 2 + 400 / 3))


def test_hosts_differ_more_from_run_to_run_than_gpus() -> None:
    gpu, host = recording(series([1], [1])), recording(series([1], [1]), **{"timed on": "host"})
    assert run_noise_pct("kernel", gpu, gpu) == 0.3
    assert run_noise_pct("op", gpu, gpu) == run_noise_pct("kernel", gpu, host) == 3.0


def test_errors_as_columns() -> None:
    was = series([1, 3], [2])
    spread = Chance(recording(was), recording(was), "time", 0.0).of(was, was)
    errors, free = stacked([spread, spread])
    assert errors.tolist() == [spread.error] * 2 and free.tolist() == [spread.free] * 2
    assert stacked([])[0].shape == (0,)


def test_a_further_run_differs_from_the_mean_of_several_as_they_do() -> None:
    """Three runs of 100, 103 and 97: variance 9 of one, 9 / 3 of their mean."""
    was, now = series([100, 103, 97], [100]), series([110, 110], [110])
    base = replace(recording(was), runs=3)
    assert Chance(base, recording(now), "time", None).of(was, now) == (
        pytest.approx(math.sqrt(9 + 9 / 3)),
        pytest.approx(2),
    )


def test_three_ranks_borrow_what_all_kernels_tell_of_ranks() -> None:
    """Changes of the ranks vary by 1, 4, 9 and 16 % of 100: the median of their squares is 20.5,
    which three ranks (of 2 degrees of freedom) understate by (1 - 1/9) cubed."""
    was = {f"k{p}": series([100, 100], [100, 100, 100]) for p in (1, 4, 9, 16)}
    now = {f"k{p}": series([100, 100], [100 - p, 100, 100 + p]) for p in (1, 4, 9, 16)}
    base, new = (RecordedBaseline(2, (0, 1, 2), {"kernel": kernels}, {}) for kernels in (was, now))
    usual = (4**2 + 9**2) / 2 / (1 - 1 / 9) ** 3
    for p in (1, 16):
        spread = Chance(base, new, "kernel", 0.0).of(was[f"k{p}"], now[f"k{p}"])
        assert spread.error == pytest.approx(math.sqrt((10 * usual + 2 * p**2) / 12 / 3))
        assert spread.free == pytest.approx(12)
    few = RecordedBaseline(2, (0, 1, 2), {"kernel": {"k4": was["k4"]}}, {})
    assert Chance(few, new, "kernel", 0.0).of(was["k4"], now["k4"]).free == pytest.approx(2)
