"""Adapters in place of all weights, held to the job simulated with them."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import lora
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, small_model


@pytest.mark.parametrize(
    ("job", "value", "twin"),
    [
        ("plain", "8", "adapters"),
        ("checkpointed", "8", "checkpointed adapters"),
        ("tf32", "8", "tf32 adapters"),
    ],
)
def test_the_job_simulated_so(job: str, value: str, twin: str) -> None:
    hold_to_twin(started(job), ("lora", value), started(twin), step_rel=0.04)


def test_adapters_run_again_where_checkpointing_comes_with_them() -> None:
    edits = [("lora", "8"), ("checkpointing", "on")]
    assert predict_answer(started("plain"), edits).step_ns == pytest.approx(
        started("checkpointed adapters").step_ns, rel=0.04
    )


def test_adapters_are_as_wide_as_the_format_that_comes_with_them() -> None:
    edits = [("lora", "8"), ("precision", "tf32")]
    answered = predict_answer(started("plain"), edits).step_ns
    assert answered == pytest.approx(started("tf32 adapters").step_ns, rel=0.04)


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
    products = start.model.facts.family.isin("gemm")
    higher = lora.apply(start.model, "256")
    assert higher.lengths()[products].sum() > changed.lengths()[products].sum()
