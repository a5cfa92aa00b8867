"""Standard errors of changes, worked out on paper."""

import math
from dataclasses import replace

import numpy as np
import pytest

from htk.traces.compare.baseline import RecordedBaseline, Series
from htk.traces.compare.significance import Chance, run_noise_pct, stack_spreads, surer_by_compute


def series(steps: list[float], ranks: list[float]) -> Series:
    by_step = np.array(steps, float)
    return Series(1.0, by_step, np.array(ranks, float), by_step)


def recording(thing: Series, **facts: str) -> RecordedBaseline:
    ranks = tuple(range(len(thing.by_rank)))
    return RecordedBaseline(len(thing.by_step), ranks, {"time": {"total": thing}}, facts)


def test_of_one_rank_steps_and_runs_add_up() -> None:
    was, now = series([100, 104, 96, 100], [100]), series([110, 113, 107], [110])
    error, _ = Chance(recording(was), recording(now), "time", None).compute_spread(was, now)
    # Variances over steps: 32/3 of four, 9 of three; a run of the smaller mean differs by 0.3 %.
    assert error == pytest.approx(math.sqrt(32 / 3 / 4 + 9 / 3 + 2 * (0.003 * 100) ** 2))


def test_ranks_that_change_unlike_are_no_noise() -> None:
    """One of three ranks became slower, in every step alike: that is a finding, not a spread."""
    was, now = series([100, 100], [90, 110, 100]), series([130, 130], [90, 110, 190])
    error, _ = Chance(recording(was), recording(now), "time", 0.0).compute_spread(was, now)
    assert error == 0.0


def test_other_nodes_widen_the_noise() -> None:
    base, new = (recording(series([1], [1]), hosts=hosts) for hosts in ("a, b", "a, c"))
    assert run_noise_pct("kernel", base, base) == 0.3
    assert run_noise_pct("kernel", base, new) == 1.5


def test_a_common_factor_of_all_kernels_tells_of_the_step() -> None:
    """The step swings by 2 of 100, its compute by nothing: both are 2 longer, which compute tells.
    Of a step that did not become longer it tells nothing."""
    was, now = series([98, 102, 100], [100]), series([100, 104, 102], [102])
    compute, slower = series([80] * 3, [80]), series([82] * 3, [82])
    chance = Chance(recording(was), recording(now), "time", 0.1)
    own = chance.compute_spread(was, now)
    surer = surer_by_compute(chance, (was, now), (compute, slower), 0.01)
    assert surer.error == pytest.approx(math.sqrt(2) * 0.001 * 80) and own.error > 10 * surer.error
    assert surer_by_compute(chance, (was, was), (compute, slower), 0.01) == chance.compute_spread(
        was, was
    )
    assert surer_by_compute(chance, (was, now), (compute, compute), 0.01) == own


def test_other_ranks_are_compared_as_two_samples() -> None:
    was, now = series([100, 100], [90, 110]), series([100, 100], [80, 100, 120])
    base = recording(was)
    error, _ = Chance(base, recording(now), "time", 0.0).compute_spread(was, now)
    assert error == pytest.approx(math.sqrt(200 / 2 + 400 / 3))


def test_hosts_differ_more_from_run_to_run_than_gpus() -> None:
    gpu, host = recording(series([1], [1])), recording(series([1], [1]), **{"timed on": "host"})
    assert run_noise_pct("kernel", gpu, gpu) == 0.3
    assert run_noise_pct("op", gpu, gpu) == run_noise_pct("kernel", gpu, host) == 3.0


def test_errors_as_columns() -> None:
    was = series([1, 3], [2])
    spread = Chance(recording(was), recording(was), "time", 0.0).compute_spread(was, was)
    errors, free = stack_spreads([spread, spread])
    assert errors.tolist() == [spread.error] * 2 and free.tolist() == [spread.free] * 2
    assert stack_spreads([])[0].shape == (0,)


def test_a_further_run_differs_from_the_mean_of_several_as_they_do() -> None:
    """Three runs of 100, 103 and 97: variance 9 of one, 9 / 3 of their mean."""
    was, now = series([100, 103, 97], [100]), series([110, 110], [110])
    base = replace(recording(was), runs=3)
    assert Chance(base, recording(now), "time", None).compute_spread(was, now) == (
        pytest.approx(math.sqrt(9 + 9 / 3)),
        pytest.approx(2),
    )
