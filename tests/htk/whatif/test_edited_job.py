"""The job that edits make: worked out by hand, and for random edits never an impossible one."""

import math
import random
from dataclasses import replace

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.training_job import TrainingJob, is_valid
from htk.whatif.edited_job import edited_job, with_own_batch

JOB = TrainingJob(
    ranks=8, node=8, tensor=1, pipeline=1, context=1, expert=1, strategy="ddp", shards=1,
    micro_batch=4, micro_batches=2, seq=2048, precision="bf16", gpu=gpu("a100-80gb"), layers=8,
    heads=16, kv_heads=16, even_stages=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("edits", "micro_batch", "micro_batches"),
    [
        # 8 data-parallel ranks of 4 · 2 samples: 64
        ([("batch", "2x")], 8, 2),
        ([("batch", "global=128")], 8, 2),
        ([("world", "16"), ("batch", "global=64")], 2, 2),
        ([("batch", "global=64"), ("world", "16")], 2, 2),
        ([("accumulation", "global=64"), ("world", "2x8")], 4, 1),
        ([("tp", "2"), ("batch", "global=64")], 8, 2),
        ([("batch", "global=64"), ("accumulation", "4")], 2, 4),
        ([("accumulation", "global=64"), ("batch", "2")], 2, 4),
        ([("pp", "2"), ("accumulation", "1")], 4, 2),  # each is cut for two stages
        ([("pp", "2"), ("batch", "global=64")], 4, 4),
        ([("accumulation", "0.5x")], 4, 1),
    ],
)
def test_batches_are_of_the_job_after_all_edits(
    edits: list[tuple[str, str]], micro_batch: float, micro_batches: float
) -> None:
    edited = edited_job(JOB, edits)
    assert (edited.micro_batch, edited.micro_batches) == (micro_batch, micro_batches)


def test_edits_of_the_graph_get_the_batch_of_a_rank() -> None:
    asked = [("batch", "global=32"), ("world", "16")]
    assert with_own_batch(JOB, asked) == (("batch", "1"), ("world", "16"))
    staged = [("accumulation", "global=64"), ("pp", "2")]
    assert with_own_batch(JOB, staged) == (("accumulation", "2"), ("pp", "2"))


@pytest.mark.parametrize(
    "edits",
    [
        [("tp", "16")],
        [("tp", "3")],
        [("pp", "stages=4,interleave=3")],
        [("batch", "0.3x")],
        [("batch", "global=7")],
        [("accumulation", "0.3x")],
        [("hardware", "v100-32gb")],
        [("precision", "fp8")],
        [("sp", "on")],
        [("batch", "global=64"), ("accumulation", "global=64")],
        [("world", "0")],
    ],
)
def test_what_cannot_be_is_refused(edits: list[tuple[str, str]]) -> None:
    with pytest.raises(UsageError):
        edited_job(JOB, edits)


def test_a_recording_that_seems_impossible_is_not_held_against_its_edits() -> None:
    misread = replace(JOB, heads=15)
    assert edited_job(replace(misread, tensor=2), [("batch", "2x")]).micro_batch == 8


def test_what_is_not_known_stays_unknown() -> None:
    unknown = replace(JOB, micro_batch=None)
    assert edited_job(unknown, [("batch", "2x")]).micro_batch is None
    with pytest.raises(UsageError, match="not known"):
        edited_job(unknown, [("accumulation", "global=64")])


VALUES = {
    "tp": ["1", "2", "3", "4", "8", "16"],
    "cp": ["1", "2", "3", "4", "16"],
    "pp": ["1", "2", "4", "8", "stages=2,interleave=2", "stages=4,interleave=3"],
    "sp": ["on", "off"],
    "world": ["1", "4", "8", "16", "2x8", "3x4", "7"],
    "batch": ["0.3x", "0.5x", "1x", "2x", "3", "global=16", "global=64", "global=7"],
    "accumulation": ["1", "0.5x", "2x", "3", "global=128"],
    "sharding": ["ddp", "full_shard", "hybrid_shard", "hybrid_shard:2", "hybrid_shard:3", "zero1"],
    "hardware": ["h100", "v100-32gb", "t4"],
    "precision": ["bf16", "fp8", "fp32"],
    "seq": ["512", "2x", "4096", "512:0.7,2048:0.3"],
}


def check_random_edits(tries: int, seed: int) -> int:
    """Draw edits; hold each job that is answered to the rules, and each order to the same job."""
    chance, answered = random.Random(seed), 0
    for _ in range(tries):
        names = chance.sample(sorted(VALUES), chance.randint(1, 4))
        edits = [(name, chance.choice(VALUES[name])) for name in names]
        try:
            edited = edited_job(JOB, edits)
        except UsageError:
            continue
        answered += 1
        assert is_valid(edited), edits
        ranks, split = edited.ranks or 0, edited.split or 0
        assert ranks % split == 0 and ranks >= split, edits
        assert (edited.heads or 0) % (edited.tensor or 1) == 0, edits
        samples = edited.global_batch or 0.0
        assert samples == pytest.approx(round(samples)) and samples >= ranks / split, edits
        for name, value in edits:
            if value.startswith("global="):
                assert math.isclose(samples, float(value.removeprefix("global="))), (edits, name)
        chance.shuffle(edits)
        assert edited_job(JOB, edits) == edited, "in any order"
    return answered


def test_random_edits_make_valid_jobs_or_none() -> None:
    assert check_random_edits(2000, seed=3) > 300


@pytest.mark.nightly
def test_many_random_edits_make_valid_jobs_or_none() -> None:
    for seed in range(10):
        check_random_edits(5000, seed)
