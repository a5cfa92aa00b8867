"""Ends of intervals: what no step can take."""

import math
from dataclasses import replace

import pytest

from htk.whatif.limits import step_limits
from htk.whatif.step_model import StepModel
from tests.htk.whatif.answers import answer
from tests.htk.whatif.small_step_model import Act, small_model

STEP = small_model([Act("a", 1000), Act("b", 500)])


def limits(edited: StepModel, name: str = "batch", mfu: float | None = None) -> tuple[float, float]:
    return step_limits(STEP, edited, [(name, "on")], (1500, 1200), mfu)


def test_what_only_shortens_makes_no_step_longer_and_the_other_way_round() -> None:
    shorter = STEP.with_lengths(STEP.is_compute, STEP.lengths() // 2)
    assert limits(shorter) == (0.0, pytest.approx(1515))
    longer = STEP.with_lengths(STEP.is_compute, STEP.lengths() * 2)
    assert limits(longer) == (pytest.approx(1485), math.inf)
    both = STEP.with_lengths(STEP.is_compute, STEP.lengths()[::-1])
    assert limits(both) == (0.0, math.inf)


def test_of_another_graph_only_what_edits_are_for_is_known() -> None:
    other = replace(STEP, graph=replace(STEP.graph))
    assert limits(other) == (0.0, math.inf)
    assert limits(other, "no_skew") == (0.0, pytest.approx(1515))


def test_a_gpu_computes_no_faster_than_its_peak() -> None:
    assert limits(STEP.with_lengths(STEP.is_compute, 1), mfu=40.0)[0] == pytest.approx(480)


def test_intervals_end_at_limits_but_hold_the_answer() -> None:
    free = answer(2)
    step = free.step_ns or 0
    low, high = free.interval(2.0)
    assert low is not None and high is not None and low < step < high
    assert replace(free, limits=(step - 1, step + 1)).interval(2.0) == (step - 1, step + 1)
    assert replace(free, limits=(step + 9, step - 9)).interval(2.0) == (step, step)
