"""An answer beside its step: exposed communication, idle time, samples, in the anchor's time."""

import math

import pytest

from htk.whatif.answer import Answer
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from htk.whatif.recorded_step import Baseline
from tests.htk.quantities.graph.small_step import step_tables


@pytest.fixture(scope="module")
def start() -> Baseline:
    """Steps of 200, of which the GPU works 150."""
    return build_baseline(step_tables(4))


def test_idle_time_is_in_proportion_to_the_anchor(start: Baseline) -> None:
    assert predict_answer(start, []).idle_ns == 50
    assert predict_answer(start, [], measured_ns=400).idle_ns == 100
    busy = predict_answer(start, [("host", "2x")])  # 150 of work, behind each other
    assert (busy.step_ns, busy.idle_ns, busy.exposed_ns) == (150, 0, 0)
    slower = predict_answer(start, [("replace", "^a$=0.5x")], measured_ns=400)
    assert (slower.step_ns, slower.idle_ns) == (500, 0)


def test_gains_are_of_a_sample_of_a_gpu(start: Baseline) -> None:
    assert predict_answer(start, [("batch", "2x")]).samples_ratio == 2
    answer = Answer((), 100, "trusted", step_ns=150, samples_ratio=4.0, devices_ratio=2.0)
    assert answer.each == 2


def test_both_of_a_batch_and_its_micro_batches_count(start: Baseline) -> None:
    batch = predict_answer(start, [("batch", "2x")])
    assert batch.effective == ("batch",)
    assert predict_answer(start, [("host", "1x")]).effective == ()


def test_the_gain_of_a_sample_in_standard_deviations() -> None:
    """4 times the samples on 2 GPUs in 1.5 times the time: a sample takes 3/4 of a GPU's time."""
    more = {"samples_ratio": 4.0, "devices_ratio": 2.0}
    answer = Answer((), 100, "trusted", 150, {"compute": 0.3, "host": 0.4}, **more)
    assert answer.gain_over_sigma == pytest.approx(math.log(4 / 3) / 0.5)
    assert Answer((), 100, "trusted", 150).gain_over_sigma is None, "nothing is uncertain"
    assert Answer((), 100, "refused").gain_over_sigma is None
    assert Answer((), 100, "trusted", 100, {"host": 0.1}).gain_over_sigma == 0


def test_an_answer_without_a_step_has_no_interval() -> None:
    refused = Answer((("host", "2x"),), 100, "refused")
    assert refused.interval(1.6) == (None, None) and refused.intervals == (None,) * 4
    assert refused.intervals_held == ""
    given = Answer((("host", "2x"),), 100, "trusted", 150, {"host": 0.1})
    assert given.intervals_held != ""
    low, high = given.interval(1.0)
    assert low is not None and high is not None and low < 150 < high
    assert low * high == pytest.approx(150**2, rel=0.01), "as far up as down, by ratio"


def test_edits_that_change_nothing_are_not_named() -> None:
    edits = (("host", "1x"), ("batch", "2x"))
    assert Answer(edits, 100, "trusted").names == ("host", "batch")
    assert Answer(edits, 100, "trusted", effective=("batch",)).names == ("batch",)
    assert Answer(edits, 100, "trusted", effective=()).names == ()
