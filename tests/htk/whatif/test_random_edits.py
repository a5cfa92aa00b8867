"""Random edits of recorded jobs: what cannot be is refused, what can be is answered or unknown."""

import math
import random

import pytest

from htk.base.errors import UsageError
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import JOBS, started

HEADS, LAYERS, RANKS, BATCH, LENGTH = 8, 4, 4, 8, 1024
STARTS = ("plain", "alone", "tp 2", "cp 2", "pp 2", "sharded", "two micro-batches", "checkpointed")
DRAWN = {
    "tp": ["1", "2", "3", "4", "8", "16"],
    "cp": ["1", "2", "3", "4"],
    "pp": ["1", "2", "3", "4", "8"],
    "sp": ["on", "off"],
    "world": ["1", "2", "3", "4", "8", "2x4", "6", "1000000"],
    "batch": ["0.1x", "0.5x", "2x", "3", "8", "global=32", "global=7"],
    "seq": ["512", "1000", "2x"],
    "accumulation": ["1", "3", "0.3x", "2x", "global=64"],
    "sharding": ["ddp", "full_shard", "shard_grad_op", "hybrid_shard:2", "hybrid_shard:3"],
    "checkpointing": ["on", "off", "selective"],
    "precision": ["bf16", "fp8", "fp32", "tf32"],
    "network": ["bandwidth=2x", "latency=0.5x", "inter_gbps=25"],
    "overlap": ["perfect", "serial"],
    "host": ["2x", "0.5x"],
    "graphs": ["on"],
    "replace": ["gemm=2x", "norm=gone", "gemm=gone"],
    "bucket": ["10MB", "100MB"],
}


def draw_edits(chance: random.Random) -> dict[str, str]:
    names = chance.sample(list(DRAWN), chance.choice([1, 1, 2, 2, 3]))
    return {name: chance.choice(DRAWN[name]) for name in names}


def is_impossible(job: str, edits: dict[str, str]) -> bool:
    """Return whether the ranks, heads, layers, samples or formats of a job do not come out even."""
    recorded = JOBS[job]

    def degree(name: str, field: str) -> int:
        return int(edits[name]) if name in edits else int(recorded.get(field) or 1)

    nodes, _, node = edits.get("world", str(recorded.get("gpus_per_node", RANKS))).partition("x")
    ranks = int(nodes) * int(node or 1)
    tensor = degree("tp", "tensor_parallel")
    context = degree("cp", "context_parallel")
    stages = degree("pp", "pipeline_parallel")
    length = 2 * LENGTH if edits.get("seq") == "2x" else int(edits.get("seq", LENGTH))
    samples = {"0.1x": 0.8, "global=7": 7 / max(ranks // (tensor * context * stages), 1)}
    return (
        bool(ranks % (tensor * context * stages))
        or bool(HEADS % tensor)
        or bool(LAYERS % stages)
        or bool(length % context)
        or samples.get(edits.get("batch", ""), 1.0) % 1 != 0
        or edits.get("accumulation") == "0.3x"
        or edits.get("precision") == "fp8"  # an A100 has none
        or (edits.get("sp") == "on" and tensor == 1)
    )


def check_edits(job: str, edits: dict[str, str]) -> None:
    start = started(job)
    forwards = list(edits.items())
    try:
        answer = predict_answer(start, forwards)
    except UsageError:
        return
    asked = f"{job}: {edits}"
    assert not is_impossible(job, edits), asked
    if answer.step_ns is None:
        assert "unknown to htk" in answer.verdict, asked
        return
    assert predict_answer(start, forwards[::-1]) == answer, asked
    low50, high50, low90, high90 = answer.intervals
    assert low50 is not None and high50 is not None and low90 is not None and high90 is not None
    assert 0 < low90 <= low50 <= answer.step_ns <= high50 <= high90, asked
    assert high90 < math.inf and (answer.mfu_pct or 0.0) * answer.step_ns / low90 < 102, asked
    assert sum(answer.waterfall.values()) == answer.step_ns - answer.measured_ns, asked
    if answer.exposed_ns is not None and answer.idle_ns is not None:
        assert 0 <= answer.exposed_ns + answer.idle_ns <= answer.step_ns, asked
    if answer.peak is not None:
        assert 0 < answer.peak.allocated <= answer.peak.total, asked


@pytest.mark.parametrize("job", STARTS)
def test_random_edits(job: str) -> None:
    chance = random.Random(job)
    for _ in range(25):
        check_edits(job, draw_edits(chance))


@pytest.mark.nightly
def test_five_thousand_random_edits() -> None:
    chance = random.Random(40)
    for _ in range(5000):
        check_edits(chance.choice(STARTS), draw_edits(chance))
