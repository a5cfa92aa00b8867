"""One GPU's step on several: held to the jobs simulated so."""

import math

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.whatif.from_one_rank import (
    is_of_one_rank,
    parameter_gradients,
    place_in_world,
    with_replicas,
)
from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, comm, small_model
from tests.thinned import thinned


@pytest.mark.parametrize(
    ("edits", "job"),
    thinned(
        [
            ([("world", "4")], "plain"),
            ([("world", "4"), ("tp", "2")], "tp 2"),
            ([("world", "4"), ("sharding", "full_shard")], "sharded"),
            ([("world", "4"), ("accumulation", "2")], "two micro-batches"),
        ]
    ),
)
def test_one_gpu_tells_what_several_take(edits: list[tuple[str, str]], job: str) -> None:
    answer, truth = predict_answer(started("alone"), edits), started(job)
    assert answer.step_ns == pytest.approx(truth.step_ns, rel=0.06)
    low, high = answer.intervals[2:]
    assert low is not None and high is not None and low <= truth.step_ns <= high
    memory = truth.memory
    assert memory is not None and memory.peaks is not None and answer.peak is not None
    assert answer.peak.allocated == pytest.approx(memory.peaks.highest, rel=0.1)


def test_a_rank_in_fsdp_shares_its_parameters_with_others() -> None:
    hold_to_twin(started("alone in FSDP"), ("world", "4"), started("sharded"), step_rel=0.06)


def test_memory_of_a_rank_that_tells_no_sharding_spans_both() -> None:
    answer, truth = predict_answer(started("alone"), [("world", "4")]), started("sharded").memory
    assert answer.peak is not None and truth is not None and truth.peaks is not None
    least = answer.peak.allocated * math.exp(-1.65 * answer.peak.sigma)
    assert 0.8 * truth.peaks.highest < least <= truth.peaks.highest
    assert any("--sharding full_shard" in words for words in answer.assumptions)


def test_all_gradients_are_reduced_as_one_job_of_several_reduces_them() -> None:
    model, several = started("alone").model, started("plain").model
    first = several.graph.activities.rank == 0
    reduced = int(several.facts.in_bytes[several.is_comm & first].sum())
    elements = sum(n for _, n in parameter_gradients(model))
    assert 2 * elements == pytest.approx(reduced, rel=0.001)
    buckets = with_replicas(place_in_world(model, "4"), 4, 1, "world")
    sent = buckets.facts.in_bytes[buckets.is_comm]
    assert sent.sum() == 2 * elements and (sent[:-1] >= 25 << 20).all()
    assert np.unique(buckets.facts.group_size[buckets.is_comm]).tolist() == [4]


def test_who_sends_is_not_alone() -> None:
    assert is_of_one_rank(small_model([Act("a", 10)]))
    assert not is_of_one_rank(small_model([Act("a", 10), comm("r", 10, "all_reduce")]))


def test_without_shapes_gradients_are_not_known() -> None:
    with pytest.raises(UsageError, match="record_shapes"):
        with_replicas(small_model([Act("a", 10)]), 4, 1, "world")
