"""A few pairs of the bench: what changed is named, and nothing between equal runs."""

import random
from statistics import median

import pytest

from bench.changed_jobs import (
    SLIGHT,
    Pair,
    drawn_job,
    drawn_plants,
    measured,
    measured_slight,
    names_it,
    true_parts,
)
from htk.recording.simulate.config import Config
from htk.verdicts.comparison.causes import ChangeCause


@pytest.mark.nightly
def test_three_pairs_and_an_equal_one() -> None:
    """Too few for the goals: the first cause is right each time, parts are at the median."""
    score = measured(pairs=3, equal=1, seed=28)
    assert score.first_right == score.pairs >= 2 and score.equal == 1 and not score.alarms
    assert median(score.misses) <= 0.2


@pytest.mark.nightly
def test_two_percent_are_seen_at_six_steps() -> None:
    """Of all GPUs, of one, of one product; in the two jobs that were missed once, and an equal run
    shows nothing."""
    named = measured_slight(pairs=2, seed=103)
    assert all(named[plant] >= least * 2 for plant, least in SLIGHT.items()), named
    assert not named[""]


def test_parts_add_up_to_the_change_of_the_step() -> None:
    """Two independent changes of one rank: each is worth what it is alone."""
    job = Config(model="gpt3-126m", layers=1, gpus_per_node=2, steps=5, noise=0.0)
    stall, slow = "starved_loader:step=10,ms=20,rank=0", "straggler:rank=0,factor=1.5"
    both = true_parts(Pair(job, (stall, slow)))
    assert abs(both[stall] - 20e6) < 1e6
    assert abs(both[slow] - true_parts(Pair(job, (slow,)))[slow]) < 1e6


def test_a_cause_on_another_rank_is_not_the_planted_one() -> None:
    chance = random.Random(0)
    job = drawn_job(chance)
    assert 1 <= len(drawn_plants(chance, job)) <= 3
    plant = "straggler:rank=1,factor=1.2"
    assert names_it(ChangeCause("gpu", (1,), 0.2, 0.01), plant, job)
    assert not names_it(ChangeCause("gpu", (0,), 0.2, 0.01), plant, job)
    assert not names_it(ChangeCause("loader", (1,), 0.2, 0.01), plant, job)
