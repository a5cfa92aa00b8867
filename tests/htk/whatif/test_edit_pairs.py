"""Pairs of edits, all of them at night: what makes a job that can be is answered."""

from itertools import combinations

import pytest

from htk.base.errors import UsageError
from htk.whatif.edited_job import edited_job
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import started

EDITS = (
    *(("tp", "2"), ("cp", "2"), ("pp", "2"), ("ep", "1"), ("sp", "off"), ("world", "2x4")),
    *(("world", "1"), ("batch", "2x"), ("seq", "0.5x"), ("accumulation", "4")),
    *(("sharding", "ddp"), ("sharding", "full_shard"), ("sharding", "zero1")),
    *(("checkpointing", "on"), ("precision", "tf32"), ("network", "bandwidth=2x")),
    *(("overlap", "perfect"), ("overlap", "serial"), ("host", "2x"), ("graphs", "on")),
    *(("replace", "gemm=2x"), ("bucket", "10MB"), ("prefetch_depth", "0"), ("split", "tensor=2")),
    *(("no_skew", "on"), ("remove_syncs", "on"), ("no_data_wait", "on"), ("fix_rank", "0")),
    *(("hardware", "h100"), ("balanced_experts", "on"), ("compile", "on"), ("workers", "2x")),
    *(("gradients", "0.5x"), ("loss", "fused"), ("optimizer", "8bit"), ("lora", "16")),
    ("no_sync", "off"),
)
# What one edit leaves nothing of for the other.
WITHOUT = {
    ("sharding", "full_shard"): ("bucket", "no_sync"),
    ("sharding", "ddp"): ("prefetch_depth",),
    ("sharding", "zero1"): ("prefetch_depth",),
    ("world", "2x4"): ("prefetch_depth", "split"),  # from one rank, which needs neither
}


def is_without(edits: tuple[tuple[str, str], ...]) -> bool:
    (first, other) = edits
    return other[0] in WITHOUT.get(first, ()) or first[0] in WITHOUT.get(other, ())


def can_be(job: str, edits: tuple[tuple[str, str], ...]) -> bool:
    try:
        edited_job(started(job).job, edits)
    except UsageError:
        return False
    return edits[0][0] != edits[1][0]


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("job", ["plain", "sharded", "pp 2", "cp 2", "alone"])
def test_each_pair_that_makes_a_job_is_answered(job: str, every: int) -> None:
    start, single = started(job), []
    for edit in EDITS:
        try:
            single += [edit] * (predict_answer(start, [edit]).step_ns is not None)
        except UsageError:
            continue
    pairs = [p for p in combinations(single, 2) if can_be(job, p) and not is_without(p)]
    assert len(pairs) > 150
    for pair in pairs[len(job) % every :: every]:  # other pairs of each job
        answer = predict_answer(start, pair)
        assert answer.step_ns is not None, (pair, answer.verdict)
        low, high = answer.intervals[2:]
        assert low is not None and high is not None and low <= answer.step_ns <= high, pair
