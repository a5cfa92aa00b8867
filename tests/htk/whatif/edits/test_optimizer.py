"""Other optimizers, held to jobs simulated with them."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import optimizer
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, small_model


@pytest.mark.parametrize(
    ("job", "value", "twin"),
    [
        ("optimizer in parts", "fused", "plain"),
        ("plain", "8bit", "8-bit optimizer"),
        ("optimizer in parts", "8bit", "8-bit optimizer"),
    ],
)
def test_the_job_simulated_so(job: str, value: str, twin: str) -> None:
    hold_to_twin(started(job), ("optimizer", value), started(twin), step_rel=0.03)


@pytest.mark.parametrize(("job", "value"), [("plain", "fused"), ("8-bit optimizer", "8bit")])
def test_what_is_so_already_changes_nothing(job: str, value: str) -> None:
    start = started(job)
    model = optimizer.apply(start.model, value)
    assert model.weight is start.model.weight and "already" in model.assumptions[-1]
    assert predict_answer(start, [("optimizer", value)]).step_ns == start.step_ns


@pytest.mark.parametrize(
    ("value", "words"), [("sgd", "fused or 8bit"), ("fused", "no kernel of an optimizer")]
)
def test_what_cannot_be_asked(value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        optimizer.apply(small_model([Act("a", 100), Act("b", 100, backward=True)]), value)


def test_moments_of_32_bits_are_not_known_from_8() -> None:
    with pytest.raises(UsageError, match="not recorded"):
        optimizer.apply(started("8-bit optimizer").model, "fused")
