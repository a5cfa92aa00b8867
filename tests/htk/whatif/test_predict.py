"""An answer beside its step: exposed communication, idle time, samples, in the anchor's time."""

import pytest

from htk.whatif.predict import Answer, Baseline, baseline, predict
from tests.htk.graph.small_step import step_tables


@pytest.fixture(scope="module")
def start() -> Baseline:
    """Steps of 200, of which the GPU works 150."""
    return baseline(step_tables(4))


def test_idle_time_is_in_proportion_to_the_anchor(start: Baseline) -> None:
    assert predict(start, []).idle_ns == 50
    assert predict(start, [], measured_ns=400).idle_ns == 100
    busy = predict(start, [("host", "2x")])  # 150 of work, behind each other
    assert (busy.step_ns, busy.idle_ns, busy.exposed_ns) == (150, 0, 0)
    slower = predict(start, [("replace", "^a$=0.5x")], measured_ns=400)
    assert (slower.step_ns, slower.idle_ns) == (500, 0)


def test_gains_are_of_a_sample_of_a_gpu(start: Baseline) -> None:
    assert predict(start, [("batch", "2x")]).samples_ratio == 2
    answer = Answer((), 100, "trusted", step_ns=150, samples_ratio=4.0, devices_ratio=2.0)
    assert answer.each == 2


def test_both_of_a_batch_and_its_micro_batches_count(start: Baseline) -> None:
    batch = predict(start, [("batch", "2x")])
    assert batch.effective == ("batch",)
    assert predict(start, [("host", "1x")]).effective == ()
