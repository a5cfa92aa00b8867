"""Claims of described jobs as tokens a second and operations, worked out on paper."""

from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.verdicts.claims.described import ClaimedJob, Numbers

A100 = gpu("a100-80gb")  # 312 TFLOP/s in BF16


def job(numbers: Numbers, **options: Any) -> ClaimedJob:
    return ClaimedJob(A100, 64, numbers, **options)


def test_a_share_of_the_peak_as_tokens() -> None:
    claim = job(Numbers(mfu_pct=50.0), active_parameters=13e9)
    assert claim.tokens_per_s_per_gpu == pytest.approx(0.5 * 312e12 / (6 * 13e9))
    assert claim.executed_flops == pytest.approx(0.5 * 312e12)


def test_of_several_numbers_the_one_that_asks_least_counts() -> None:
    numbers = Numbers(tokens_per_s=64 * 1500.0, step_s=2.0, tokens_per_s_per_gpu=1600.0)
    claim = job(numbers, active_parameters=7e9, global_batch=256, seq=1024)
    assert claim.rates == pytest.approx(
        {"tokens_per_s": 1500, "tokens_per_s_per_gpu": 1600, "step_s": 256 * 1024 / 2 / 64}
    )
    assert claim.tokens_per_s_per_gpu == 1500


def test_recomputing_everything_does_a_third_more() -> None:
    numbers = Numbers(tokens_per_s_per_gpu=1000.0)
    once = job(numbers, active_parameters=7e9)
    again = job(numbers, active_parameters=7e9, checkpointing="full")
    assert once.executed_flops == pytest.approx(1000 * 6 * 7e9)
    assert again.executed_flops == pytest.approx(4 / 3 * once.executed_flops)


def test_attention_in_full_is_twice_the_causal_half() -> None:
    model = decoder("llama2-7b")
    claim = job(Numbers(mfu_pct=40.0), model=model, seq=4096)
    least, counted = claim.flops_per_token, claim.counted_per_token
    assert least is not None and counted is not None
    causal = 6 * model.layers * model.hidden * 4096  # forward and backward: 12·L·h·s/2
    assert counted - least == pytest.approx(causal, rel=0.01)


@pytest.mark.parametrize(
    ("numbers", "options", "message"),
    [
        (Numbers(), {}, "needs a number"),
        (Numbers(mfu_pct=-1.0), {}, "positive"),
        (Numbers(tokens_per_s=1e5), {}, "--model or --parameters"),
        (Numbers(step_s=1.0), {"active_parameters": 7e9}, "--global-batch and --seq"),
        (Numbers(mfu_pct=50.0), {"precision": "fp8"}, "does not compute in fp8"),
        (Numbers(mfu_pct=50.0), {"seq": 0}, "at least 1"),
    ],
)
def test_what_is_no_claim_is_refused(
    numbers: Numbers, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        job(numbers, **options)
