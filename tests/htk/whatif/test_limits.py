"""Ends of intervals: what no step can take."""

import math
from dataclasses import replace

import pytest

from htk.physics.training_job import TrainingJob
from htk.whatif.limits import step_limits, work_limits
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


JOB = TrainingJob(
    ranks=8, tensor=1, context=1, micro_batch=4.0, micro_batches=2.0, seq=1024.0, pipeline=1
)


@pytest.mark.parametrize(
    ("changed", "names", "least", "most"),
    [
        ({"micro_batch": 8.0}, "batch", 0.99, 2.2),
        ({"micro_batch": 2.0}, "batch", 0.45, 1.1),
        ({"seq": 2048.0}, "seq", 0.99, 4.4),
        ({"tensor": 4}, "tp", 0.225, 1.1),
        ({"tensor": 2, "micro_batch": 8.0}, "tp batch", 0.45, 2.2),
        ({"micro_batches": 1.0}, "accumulation", 0.45, 1.1),
        ({"tensor": 4}, "tp world", 0.0, math.inf),
        ({"micro_batch": None}, "batch", 0.0, math.inf),
    ],
)
def test_work_bounds_a_step(
    changed: dict[str, float], names: str, least: float, most: float
) -> None:
    """By hand: 0.1 for caches, 0.01 for runs, and three times what is sent."""
    low, high = work_limits(JOB, replace(JOB, **changed), names.split(), 1000, 20)  # type: ignore[arg-type]
    assert (low, high) == (pytest.approx(1000 * least), pytest.approx(1000 * most + 60))
