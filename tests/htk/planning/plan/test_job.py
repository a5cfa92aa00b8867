"""Jobs as they are described: what makes sense, and what belongs to which rank."""

from dataclasses import replace
from typing import Any

import pytest

from htk.base.errors import UsageError
from htk.physics.hardware import gpu
from htk.physics.network import find_fabric
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob

LLAMA = PlannedJob(decoder("llama3-70b"), gpu("h100"), nodes=8, tensor_parallel=4,
                   pipeline_parallel=8, accumulation=16, strategy="zero1")  # fmt: skip
DEEPSEEK = PlannedJob(decoder("deepseek-v3"), gpu("gb200"), 64, 4, pipeline_parallel=4,
                      expert_parallel=64, strategy="zero1", accumulation=16)  # fmt: skip


def test_ranks_are_dealt_to_each_parallelism() -> None:
    assert (LLAMA.ranks, LLAMA.replicas, LLAMA.data_ranks, LLAMA.shards) == (64, 2, 2, 2)
    assert LLAMA.global_batch == 32
    long = replace(LLAMA, context_parallel=2, pipeline_parallel=4)
    assert (long.replicas, long.data_ranks) == (2, 4)
    assert long.tokens_of_rank == 1024


def test_experts_lie_on_neighbours_of_a_stage() -> None:
    assert (DEEPSEEK.replicas, DEEPSEEK.expert_replicas, DEEPSEEK.expert_tensor) == (64, 1, 1)
    assert replace(DEEPSEEK, expert_parallel=16).expert_replicas == 4


def test_the_links_of_an_nvl72_join_72() -> None:
    assert (DEEPSEEK.link_domain, LLAMA.link_domain) == (72, 8)
    assert replace(LLAMA, domain=16).link_domain == 16


@pytest.mark.parametrize(
    ("name", "canonical"),
    [("NO_SHARD", "ddp"), ("FULL_SHARD", "full_shard"), ("HYBRID_SHARD", "hybrid_shard"),
     ("zero-1", "zero1"), ("fsdp", "full_shard")],
)  # fmt: skip
def test_strategies_by_the_names_of_frameworks(name: str, canonical: str) -> None:
    plain = replace(LLAMA, tensor_parallel=1, pipeline_parallel=1)
    assert replace(plain, strategy=name).strategy == canonical


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"tensor_parallel": 3}, "does not divide"),
        ({"pipeline_parallel": 128, "nodes": 64}, "128 stages are more than 80 layers"),
        ({"pipeline_parallel": 1, "virtual_stages": 2}, "need a pipeline"),
        ({"expert_parallel": 2}, "does not divide 1 experts"),
        ({"context_parallel": 3, "seq": 2048}, "does not divide"),
        ({"gpu": gpu("t4"), "precision": "bf16"}, "t4 has no bf16 matrix products; it has fp16"),
        ({"precision": "fp4"}, "no fp4 matrix products"),
        ({"precision": "int3"}, "one of bf16"),
        ({"optimizer": "lion9"}, "one of adam"),
        ({"schedule": "magic"}, "one of 1f1b"),
        ({"lora_rank": 0}, "at least 1"),
        ({"oversubscription": 0.0}, "positive"),
        ({"nodes": 10**7}, "at most"),
        ({"pod_gpus": 4}, "smaller than the 8 on fast links"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(other: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        replace(LLAMA, **other)
    assert "\n" not in str(caught.value)


def test_a_network_between_nodes_by_name_is_slower_by_its_rate() -> None:
    """A pair of ranks in two nodes, each with its own adapter: 50 and 25 GB/s, of which 75 %."""
    usual = LLAMA.network.spread_pace(2, 8)
    assert usual == pytest.approx(1 / (0.75 * 50))
    slow = replace(LLAMA, fabric=find_fabric("infiniband-hdr")).network
    assert slow.spread_pace(2, 8) == pytest.approx(1 / (0.75 * 25))
    assert slow.spread_pace(4, 1) == LLAMA.network.spread_pace(4, 1)  # within a node


def test_beyond_a_pod_the_network_narrows() -> None:
    """Pods of 32 GPUs, four times oversubscribed: pairs across pods all cross their uplinks, and
    get a quarter; a ring that crosses once for each four ranks keeps its adapters' rate."""
    narrow = replace(LLAMA, pod_gpus=32, oversubscription=4.0).network
    adapter = 1 / (0.75 * 50)
    assert narrow.spread_pace(4, 8) == pytest.approx(adapter)  # one pod
    assert narrow.spread_pace(2, 32) == pytest.approx(4 * adapter)
    assert narrow.spread_pace(4, 16) == pytest.approx(2 * adapter)
    assert narrow.spread_pace(8, 8) == pytest.approx(adapter)


def test_tensor_parallelism_beyond_a_node_is_as_slow_as_its_adapters() -> None:
    within, across = (replace(LLAMA, tensor_parallel=t, pipeline_parallel=4) for t in (8, 16))
    slow = across.network.spread_pace(16, 1)
    assert slow == pytest.approx(1 / (0.75 * 8 * 50))
    assert slow > within.network.spread_pace(8, 1) == pytest.approx(1 / (0.75 * 450))
