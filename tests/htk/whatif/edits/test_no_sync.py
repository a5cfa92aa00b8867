"""Gradients of accumulated micro-batches, held to jobs simulated so."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import no_sync
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, small_model


@pytest.mark.parametrize(
    ("job", "value", "twin"),
    [
        ("four micro-batches, each reduced", "on", "four micro-batches"),
        ("four micro-batches", "off", "four micro-batches, each reduced"),
    ],
)
def test_the_job_simulated_so(job: str, value: str, twin: str) -> None:
    hold_to_twin(started(job), ("no_sync", value), started(twin), step_rel=0.03)


@pytest.mark.parametrize(
    ("job", "value"), [("four micro-batches", "on"), ("four micro-batches, each reduced", "off")]
)
def test_what_is_so_already_changes_nothing(job: str, value: str) -> None:
    start = started(job)
    model = no_sync.apply(start.model, value)
    assert model.weight is start.model.weight and "already" in model.assumptions[-1]
    assert predict_answer(start, [("no_sync", value)]).step_ns == start.step_ns


@pytest.mark.parametrize(("value", "words"), [("twice", "on or off"), ("On", "on or off")])
def test_what_cannot_be_asked(value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        no_sync.apply(small_model([Act("a", 100), Act("b", 100, backward=True)]), value)


def test_one_micro_batch_is_the_last_one() -> None:
    start = started("plain")
    assert no_sync.apply(start.model, "on").weight is start.model.weight


def test_on_and_off_again() -> None:
    start = started("four micro-batches, each reduced")
    alone = predict_answer(start, [("no_sync", "on")])
    assert alone.step_ns is not None and alone.step_ns < start.step_ns


def test_shards_are_another_layout() -> None:
    acts = [Act(f"{k}", 100, backward=k % 2 == 1) for k in range(4)]
    with pytest.raises(UsageError, match="replicas without shards"):
        no_sync.apply(small_model(acts), "on")
