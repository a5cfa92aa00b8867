"""Strategies of a model of two units, worked out on paper. Times in us.

Forward f1, f2, backward b2, b1, optimizer. Gathers and reductions move 64 MB over 8 ranks in two
nodes; each kind's latency is at most 20, so a gather of 300 moves for 280.
"""

from typing import Any

import pytest

from htk.analyses.whatif.edits import sharding
from htk.analyses.whatif.ledger import replicated, sharded
from htk.errors import UsageError
from tests.analyses.whatif.small_scene import Act, comm, length, period, small_scene

K = 1000
SIZE = 64 << 20
GROUP: dict[str, Any] = {"group": 8, "per_node": 4}


def gather(name: str, length: int, **given: Any) -> Act:
    return comm(
        name, length * K, "all_gather", out_bytes=SIZE, in_bytes=SIZE // 8, **GROUP, **given
    )


def reduce(name: str, **given: Any) -> Act:
    both = {"in_bytes": SIZE, "out_bytes": SIZE // 8, "backward": True}
    return comm(name, 300 * K, "reduce_scatter", lane="reduce", **both, **GROUP, **given)


def fsdp(again: bool) -> list[Act]:
    """g0 220, f1 1000, f2 1000, (g1 again 300), b2 2000, b1 1000, r1 300, optimizer 500."""
    waits = ("g1b",) if again else ()
    return [
        Act("f1", 1000 * K, waits=("g0",)),
        Act("f2", 1000 * K, waits=("g1",)),
        Act("b2", 2000 * K, waits=waits, backward=True),
        Act("b1", 1000 * K, backward=True),
        Act("opt", 500 * K, waits=("r1",), family="optimizer"),
        gather("g0", 220),
        gather("g1", 300),
        *([gather("g1b", 300, waits=("f2",), backward=True)] if again else []),
        reduce("r2", waits=("b2",)),
        reduce("r1", waits=("b1",)),
    ]


def step(acts: list[Act], value: str) -> int:
    return period(sharding.apply(small_scene(acts, gpus_per_node=4), value)) // K


def test_what_is_recorded() -> None:
    scene = small_scene(fsdp(True), gpus_per_node=4)
    now = sharded(scene)
    assert now is not None
    assert (now.strategy, now.ranks, now.world, now.unit_bytes) == (
        "full_shard",
        8,
        8,
        (SIZE, SIZE),
    )
    assert period(scene) == 6320 * K


def test_the_same_strategy_changes_nothing() -> None:
    assert step(fsdp(True), "full_shard") == 6320


def test_without_the_second_gather() -> None:
    assert step(fsdp(True), "shard_grad_op") == 6020


def test_with_a_second_gather() -> None:
    assert step(fsdp(False), "shard_grad_op") == 6020
    assert step(fsdp(False), "full_shard") == 6320


def test_to_replicas() -> None:
    # no gathers; r1 moves twice as much: 20 + 560 after 5000; the optimizer works on 8 times more
    assert step(fsdp(True), "ddp") == 5000 + 580 + 4000


def test_to_shards_of_a_node() -> None:
    """Within a node as fast as links achieve, 0.75 · 400 GB/s; before, 280 for 7/8 of 64 MB.

    A gather of 3/4 within a node then takes 20 + 280 · r, r = 6/7 · pace within over pace without.
    Between two nodes a byte of a shard is sent once (2 · 1/2), at the pace of a quarter of the
    adapters, which is as much as if whole units were sent at the whole pace: r1 takes 280 · 8/7
    more.
    """
    scene = small_scene(fsdp(True), gpus_per_node=4, scale_up_gbps=400.0)
    pace = 280 * K / (7 / 8 * SIZE)
    r = 6 / 7 / 300 / pace
    found = sharding.apply(scene, "hybrid_shard:4")
    assert length(found, "g0") == pytest.approx(20 * K + 200 * K * r, abs=2)
    assert length(found, "g1") == pytest.approx(20 * K + 280 * K * r, abs=2)
    assert length(found, "r1") == pytest.approx(20 * K + 280 * K * (r + 8 / 7), abs=2)
    assert length(found, "opt") == 1000 * K  # 4 ranks share what 8 did


# embedding 100, layers 1000 each, twice; then 20 + 420 for 24 MB of gradients; optimizer 800
DDP = [
    Act("e", 100 * K),
    Act("a0", 1000 * K, family="attention"),
    Act("a1", 1000 * K, family="attention"),
    Act("c1", 1000 * K, family="attention", backward=True),
    Act("c0", 1000 * K, family="attention", backward=True),
    Act("opt", 800 * K, waits=("r",), family="optimizer"),
    comm(
        "r",
        440 * K,
        "all_reduce",
        waits=("c0",),
        in_bytes=24_000_000,
        group=8,
        per_node=8,
        backward=True,
    ),
]


def test_from_replicas() -> None:
    """Three units of 8 MB, each gathered and reduced in 90.

    Root and first layer are gathered after the embedding: a0 from 280, a1 to 2280. The last layer
    is gathered again: c1 from 2370, c0 to 4370. Reductions of c0 and the root: 4550. An eighth of
    the optimizer: 4650.
    """
    scene = small_scene(DDP)
    assert period(scene) == 5340 * K
    now = replicated(scene)
    assert now is not None and now.world == 8
    assert period(sharding.apply(scene, "full_shard")) // K == 4650
    assert period(sharding.apply(scene, "shard_grad_op")) // K == 4560  # c1 from 2280


@pytest.mark.parametrize("value", ["zero9", "hybrid_shard:3"])
def test_nonsense(value: str) -> None:
    with pytest.raises(UsageError, match="sharding"):
        step(fsdp(True), value)


def test_what_follows_sees_the_new_collectives() -> None:
    scene = small_scene(fsdp(True), gpus_per_node=4)
    replicas = sharding.apply(scene, "ddp")
    assert sharded(replicas) is None
    now = replicated(replicas)
    assert now is not None and now.world == 8
    shards = sharded(sharding.apply(scene, "hybrid_shard:4"))
    assert shards is not None and shards.ranks == 4


def test_replicas_sum_on_a_stream_of_their_own() -> None:
    """FSDP2, told by its copies: r1 is the shard group's part alone; 320 more wait for nobody."""
    copy = Act("copy", 10 * K, op="fsdp::split_with_sizes_copy", family="copy")
    scene = small_scene([copy, *fsdp(True)], gpus_per_node=4, scale_up_gbps=400.0)
    found = sharding.apply(scene, "hybrid_shard:4")
    r = 6 / 7 / 300 / (280 * K / (7 / 8 * SIZE))
    assert length(found, "r1") == pytest.approx(20 * K + 280 * K * r, abs=2)
    assert found.lengths()[len(fsdp(True)) + 1 :].tolist() == [340 * K] * 2


def test_without_gathers_there_are_no_copies() -> None:
    copy = Act("copy", 10 * K, op="fsdp::split_with_sizes_copy", family="copy")
    scene = small_scene([copy, *fsdp(True)], gpus_per_node=4)
    assert length(sharding.apply(scene, "ddp"), "copy") == 0
    assert length(sharding.apply(scene, "shard_grad_op"), "copy") == 10 * K  # of the first gather
