"""Adapters in place of all weights, held to the job simulated with them."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import lora
from htk.whatif.predict import predict
from tests.htk.whatif.named_jobs import started
from tests.htk.whatif.small_step_model import Act, small_model


@pytest.mark.parametrize(
    ("job", "value", "twin"),
    [("plain", "8", "adapters")],
)
def test_the_job_simulated_so(job: str, value: str, twin: str) -> None:
    truth, answer = started(twin), predict(started(job), [("lora", value)])
    assert answer.step_ns == pytest.approx(truth.step_ns, rel=0.04)
    low, high = answer.intervals[2:]
    assert low is not None and high is not None and low <= truth.step_ns <= high
    assert answer.peak is not None and truth.memory is not None
    assert truth.memory.peaks is not None
    assert answer.peak.allocated == pytest.approx(truth.memory.peaks.highest, rel=0.02)


@pytest.mark.parametrize(
    ("value", "words"),
    [("0", "positive whole number"), ("1024", "up to 512"), ("8", "no linear layers")],
)
def test_what_cannot_be_asked(value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        lora.apply(small_model([Act("a", 100), Act("b", 100, backward=True)]), value)


def test_fewer_bytes_are_reduced_and_no_more_parameters_updated() -> None:
    start = started("plain")
    changed = lora.apply(start.model, "8")
    optimizer = start.model.facts.family.isin("optimizer")
    assert changed.lengths()[optimizer].sum() < 0.05 * start.model.lengths()[optimizer].sum()
    higher = lora.apply(start.model, "256")
    assert sum(higher.added.values()) > sum(changed.added.values())
