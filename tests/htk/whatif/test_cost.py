"""Money, energy and lost time of a run."""

import math

import pytest

from htk.base.errors import UsageError
from htk.whatif.cost import (
    compute_goodput,
    joules_per_token,
    per_million_tokens,
    per_run,
)


def test_tokens_cost_what_their_time_costs() -> None:
    assert per_million_tokens(2.0, 8, 1e6 / 3600) == pytest.approx(16)  # an hour of 8 GPUs at 2
    assert per_run(2.0, 8, 7200) == 32


def test_energy_is_power_by_time() -> None:
    assert joules_per_token(700, 8, 5600) == 1


def test_goodput_loses_restarts_and_half_an_interval() -> None:
    found = compute_goodput(10, 1000 * 3600, restart_s=600, checkpoint_s=0, checkpoint_every_s=3600)
    # a failure every 100 h, each costs 600 + 1800 s of 360,000
    assert found.hours_between_failures == 100
    assert found.share == pytest.approx(1 - 2400 / 360_000, rel=1e-4)


def test_the_best_interval_is_about_youngs() -> None:
    found = compute_goodput(1, 3600, restart_s=0, checkpoint_s=2)
    assert found.checkpoint_every_s == pytest.approx(math.sqrt(2 * 2 * 3600), rel=0.02)


def test_no_gpus_have_no_goodput() -> None:
    with pytest.raises(UsageError, match="positive"):
        compute_goodput(0, 1, 1, 1)
