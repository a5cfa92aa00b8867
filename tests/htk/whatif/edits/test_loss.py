"""A fused loss, held to the job simulated with it."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import loss
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, small_model


@pytest.mark.parametrize(
    ("job", "value", "twin"),
    [("plain", "fused", "fused loss")],
)
def test_the_job_simulated_so(job: str, value: str, twin: str) -> None:
    hold_to_twin(started(job), ("loss", value), started(twin), step_rel=0.03)


@pytest.mark.parametrize(("job", "value"), [("fused loss", "fused")])
def test_what_is_so_already_changes_nothing(job: str, value: str) -> None:
    start = started(job)
    model = loss.apply(start.model, value)
    assert model.weight is start.model.weight and "already" in model.assumptions[-1]
    assert predict_answer(start, [("loss", value)]).step_ns == start.step_ns


@pytest.mark.parametrize(
    ("value", "words"), [("plain", "it can only be fused"), ("fused", "no log_softmax")]
)
def test_what_cannot_be_asked(value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        loss.apply(small_model([Act("a", 100), Act("b", 100, backward=True)]), value)
