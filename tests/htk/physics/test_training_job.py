"""Which jobs there can be, and which values are named where there cannot."""

import random
from dataclasses import replace
from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.training_job import TrainingJob, check_job, is_valid

JOB = TrainingJob(
    ranks=8, node=8, tensor=1, pipeline=1, context=1, expert=1, strategy="ddp", shards=1,
    micro_batch=4, micro_batches=1, seq=2048, precision="bf16", gpu=gpu("a100-80gb"), layers=8,
    heads=16, kv_heads=16, even_stages=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tensor": 16}, "needs 16 ranks, which does not divide 8: take 8 or 16 ranks"),
        ({"tensor": 3}, "does not divide 8: take 2 or 4"),
        ({"tensor": 8, "pipeline": 8}, "needs 64 ranks, which does not divide 8: take 1 or 64"),
        ({"pipeline": 3}, "does not divide 8: take 2 or 4"),
        ({"seq": 10**18}, "tokens of a sequence must be at most 2,147,483,647"),
        ({"pipeline": 4, "virtual": 3}, "4 stages of 3 chunks are more than 8 layers"),
        ({"pipeline": 4, "layers": 6}, "4 stages do not divide 6 layers: take 2"),
        ({"context": 16}, "take 8 or 16 ranks"),
        ({"micro_batch": 1.2}, "1.2 samples of a micro-batch are not a whole number: take 1 or 2"),
        ({"micro_batch": 0.4}, "take 1"),
        ({"tensor": 4, "heads": 6, "kv_heads": 2}, "4 does not divide 6 heads: take 2"),
        ({"sequence_parallel": True}, "goes with tensor parallelism, which is 1: take 2"),
        ({"strategy": "hybrid_shard", "shards": 3}, "take 2 or 4"),
        ({"experts": 8, "expert": 3}, "take 2 or 4"),
        ({"precision": "fp8"}, "a100-80gb has no fp8 matrix products; it has tf32, fp16, bf16"),
        ({"gpu": gpu("t4")}, "t4 has no bf16 matrix products; it has fp16"),
        ({"ranks": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_names_the_nearest_that_can(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_job(replace(JOB, **change))
    assert words in str(caught.value)


def test_embedding_and_loss_may_be_chunks_of_their_own() -> None:
    """As in published runs of Llama 405B; a recording's stages hold its layers."""
    wide = replace(JOB, ranks=16, node=None, pipeline=16, virtual=8, layers=126, even_stages=False)
    check_job(wide)
    for refused in (replace(wide, layers=125), replace(wide, even_stages=True)):
        with pytest.raises(UsageError, match="16 stages of 8 chunks are more than"):
            check_job(refused)


def test_what_is_not_known_is_not_held_against_a_job() -> None:
    check_job(TrainingJob())
    check_job(replace(JOB, heads=None, kv_heads=None, ranks=None, tensor=3))
    assert replace(JOB, context=None).replicas is None


def test_random_jobs_are_valid_just_where_everything_divides() -> None:
    """Against the rules as they are written out here, for two thousand jobs."""
    chance = random.Random(5)
    for _ in range(2000):
        tensor, stages, context = (chance.choice([1, 1, 2, 3, 4, 8]) for _ in range(3))
        ranks, heads = chance.choice([1, 6, 8, 16, 24, 64]), chance.choice([8, 12, 16])
        layers, micro = chance.choice([6, 8, 12]), chance.choice([1, 2, 4, 0.5, 1.5, 0])
        job = replace(JOB, ranks=ranks, tensor=tensor, pipeline=stages, context=context,
                      heads=heads, kv_heads=heads, layers=layers, micro_batch=micro)  # fmt: skip
        even = ranks % (tensor * stages * context) == 0 and heads % tensor == 0
        even &= stages <= layers and layers % stages == 0 and 2048 % context == 0
        assert is_valid(job) == (even and micro >= 1 and micro == int(micro))
