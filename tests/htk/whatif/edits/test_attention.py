"""Flash attention in place of parts, held to the job simulated with it."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import attention, precision
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, small_model


@pytest.mark.parametrize(
    ("job", "value", "twin"),
    [("attention in parts", "flash", "plain")],
)
def test_the_job_simulated_so(job: str, value: str, twin: str) -> None:
    hold_to_twin(started(job), ("attention", value), started(twin), step_rel=0.03)


@pytest.mark.parametrize(
    ("value", "words"), [("off", "it can only be flash"), ("flash", "no softmax over the scores")]
)
def test_what_cannot_be_asked(value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        attention.apply(small_model([Act("a", 100), Act("b", 100, backward=True)]), value)


def test_the_format_is_that_which_other_edits_make() -> None:
    in_parts = started("attention in parts").model
    with pytest.raises(UsageError, match="not tf32"):
        attention.apply(precision.apply(in_parts, "tf32"), "flash")
    single = started("tf32, attention in parts").model
    attention.apply(precision.apply(single, "bf16"), "flash")


def test_attention_that_is_one_kernel_already() -> None:
    with pytest.raises(UsageError, match="one kernel already"):
        attention.apply(started("plain").model, "flash")
