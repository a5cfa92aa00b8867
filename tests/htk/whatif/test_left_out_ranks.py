"""What edits make of ranks that are left out, and how uncertain that is: worked out on paper."""

import math
from dataclasses import replace

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.whatif.left_out_ranks import (
    LEFT_OUT,
    check_answered,
    estimate_left_out_sigma,
    follow_left_out,
)
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model

US = 1000


def followed() -> StepModel:
    """Two ranks compute for 1 ms, then send for 0.1 ms; someone comes 0.05 ms after rank 0."""
    model = small_model(
        [
            act
            for rank in (0, 1)
            for act in (
                Act("a", 1000 * US, rank=rank),
                comm("c", 100 * US, "all_reduce", rank=rank, joined="c", group=3, waits=("a",)),
            )
        ]
    )
    edge = np.flatnonzero(model.graph.edges("arrive"))[0]
    weight = model.weight.copy()
    weight[edge] = 50 * US
    return replace(model, weight=weight)


def test_who_is_late_is_so_in_proportion_to_own_work() -> None:
    model = followed()
    arrive = model.graph.edges("arrive")
    for factor, late in ((2.0, 100), (0.5, 25), (1.0, 50)):
        edited = model.with_lengths(model.is_compute, round(1000 * US * factor))
        assert follow_left_out(edited, model).weight[arrive].max() == late * US
    faster = model.with_lengths(model.is_comm, 10 * US)  # others send, but nobody works less
    assert follow_left_out(faster, model).weight[arrive].max() == 50 * US


def test_an_answer_is_as_uncertain_as_it_rests_on_those_left_out() -> None:
    """Of a step of 1.15 ms 0.05 ms are a wait for them."""
    model = followed()
    expected = math.hypot(LEFT_OUT, 0.6 * 50 / 1150)
    assert estimate_left_out_sigma(model, 1150 * US) == pytest.approx(expected)
    prompt = replace(model, weight=np.where(model.graph.edges("arrive"), 0, model.weight))
    assert estimate_left_out_sigma(prompt, 1100 * US) == LEFT_OUT


def test_only_edits_that_do_not_compare_ranks_are_answered() -> None:
    check_answered([("batch", "2x"), ("host", "2x")])
    with pytest.raises(UsageError, match=r"^fix_rank needs all ranks"):
        check_answered([("batch", "2x"), ("fix_rank", "all")])
