"""Strategies of a model of two units, worked out on paper. Times in us.

Forward f1, f2, backward b2, b1, optimizer. Gathers and reductions move 64 MB over 8 ranks in two
nodes; between nodes the latency is taken for 40, within one for 20, so a gather of 300 moves for
260.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import sharding
from htk.whatif.fsdp_units import find_gradient_products
from htk.whatif.parallelism import find_replicated, find_sharded
from tests.htk.whatif.named_jobs import hold_to_twin, started
from tests.htk.whatif.small_step_model import Act, comm, length, period, small_model

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
    return period(sharding.apply(small_model(acts, gpus_per_node=4), value)) // K


def test_what_is_recorded() -> None:
    model = small_model(fsdp(True), gpus_per_node=4)
    now = find_sharded(model)
    assert now is not None
    assert (now.strategy, now.ranks, now.world, now.unit_bytes) == (
        "full_shard",
        8,
        8,
        (SIZE, SIZE),
    )
    assert period(model) == 6320 * K


def test_the_same_strategy_changes_nothing() -> None:
    assert step(fsdp(True), "full_shard") == 6320


def test_without_the_second_gather() -> None:
    assert step(fsdp(True), "shard_grad_op") == 6020


def test_with_a_second_gather() -> None:
    assert step(fsdp(False), "shard_grad_op") == 6020
    assert step(fsdp(False), "full_shard") == 6320


def test_to_replicas() -> None:
    # no gathers; r1 moves twice as much: 40 + 520 after 5000; the optimizer works on 8 times more
    assert step(fsdp(True), "ddp") == 5000 + 560 + 4000


def test_to_shards_of_a_node() -> None:
    """Within a node as fast as links achieve, 0.75 · 400 GB/s; before, 260 for 7/8 of 64 MB.

    A gather of 3/4 within a node then takes 20 + 260 · r, r = 6/7 · pace within over pace without.
    Between two nodes a byte of a shard is sent once (2 · 1/2), at the pace of a quarter of the
    adapters, which is as much as if whole units were sent at the whole pace: r1 takes 260 · 8/7
    more.
    """
    model = small_model(fsdp(True), gpus_per_node=4, scale_up_gbps=400.0)
    pace = 260 * K / (7 / 8 * SIZE)
    r = 6 / 7 / 300 / pace
    found = sharding.apply(model, "hybrid_shard:4")
    assert length(found, "g0") == pytest.approx(20 * K + 180 * K * r, abs=2)
    assert length(found, "g1") == pytest.approx(20 * K + 260 * K * r, abs=2)
    assert length(found, "r1") == pytest.approx(20 * K + 260 * K * (r + 8 / 7), abs=2)
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
    """Three units of 8 MB, each gathered and reduced in 90; nothing is known of copies or host.

    The embedding waits for the root: from 90 to 190, when the first layer is there. The others are
    gathered beside compute, so a1 ends at 2190 and c0 at 4190. Reductions of c0 and the root: 4370.
    An eighth of the optimizer: 4470.
    """
    model = small_model(DDP)
    assert period(model) == 5340 * K
    now = find_replicated(model)
    assert now is not None and now.world == 8
    assert period(sharding.apply(model, "full_shard")) // K == 4470
    again = sharding.apply(model, "shard_grad_op")
    assert period(again) // K == 4470
    gathers = [
        sum(s.is_collective("all_gather")) for s in (sharding.apply(model, "full_shard"), again)
    ]
    assert gathers == [5, 3]


def test_compute_waits_for_the_reduction_before_the_last() -> None:
    """Gradients are put together for a reduction once the one before it is done.

    24 MB in 20 + 9870: units of 8 MB are gathered and reduced in 20 + 1645 = 1665. The root to
    1665, e to 1765; layer 0 from 3330 to 4330, layer 1 (4995) to 5995. c1's gather to 6660, c1 to
    7660, c0's gather from 6660 to 8325; c1's reduction is sent behind it, to 9990; c0 from 8325 to
    9325. c0's gradients are put together when that is done, and reduced to 11655, the root's to
    13320; an eighth of the optimizer: 13420.
    """
    slow = replace(DDP[-1], length=9890 * K)
    assert period(sharding.apply(small_model([*DDP[:-1], slow]), "full_shard")) // K == 13420


@pytest.mark.parametrize("value", ["full_shard", "hybrid_shard:4", "ddp", "zero1"])
def test_without_any_rate_of_links_there_is_no_prediction(value: str) -> None:
    """Small gathers that say nothing of nodes, on a GPU that nobody knows: no pace, not none."""
    small = [
        replace(a, in_bytes=a.in_bytes // 1000, out_bytes=a.out_bytes // 1000, per_node=0)
        if a.collective
        else a
        for a in fsdp(False)
    ]
    with pytest.raises(UsageError, match="nothing shows how fast the links are"):
        sharding.apply(small_model(small), value)


def test_gathers_of_one_rank_do_not_show_what_gathers_of_several_take() -> None:
    alone = [replace(a, group=1, per_node=1) if a.collective else a for a in fsdp(True)]
    with pytest.raises(UsageError, match="gathers of one rank"):
        sharding.apply(small_model(alone), "hybrid_shard")


@pytest.mark.parametrize("value", ["zero9", "hybrid_shard:3"])
def test_nonsense(value: str) -> None:
    with pytest.raises(UsageError, match="sharding"):
        step(fsdp(True), value)


def test_what_follows_sees_the_new_collectives() -> None:
    model = small_model(fsdp(True), gpus_per_node=4)
    replicas = sharding.apply(model, "ddp")
    assert find_sharded(replicas) is None
    now = find_replicated(replicas)
    assert now is not None and now.world == 8
    shards = find_sharded(sharding.apply(model, "hybrid_shard:4"))
    assert shards is not None and shards.ranks == 4


def test_replicas_sum_on_a_stream_of_their_own() -> None:
    """FSDP2, told by its copies: r1 is the shard group's part alone; 337 more wait for nobody."""
    copy = Act("copy", 10 * K, op="fsdp::split_with_sizes_copy", family="copy")
    model = small_model([copy, *fsdp(True)], gpus_per_node=4, scale_up_gbps=400.0)
    found = sharding.apply(model, "hybrid_shard:4")
    r = 6 / 7 / 300 / (260 * K / (7 / 8 * SIZE))
    assert length(found, "r1") == pytest.approx(20 * K + 260 * K * r, abs=2)
    summed = round(40 * K + 260 * K * 8 / 7)
    assert found.lengths()[len(fsdp(True)) + 1 :].tolist() == [summed] * 2


def test_without_gathers_there_are_no_copies() -> None:
    copy = Act("copy", 10 * K, op="fsdp::split_with_sizes_copy", family="copy")
    model = small_model([copy, *fsdp(True)], gpus_per_node=4)
    assert length(sharding.apply(model, "ddp"), "copy") == 0
    assert length(sharding.apply(model, "shard_grad_op"), "copy") == 10 * K  # of the first gather


PACE = 0.004  # ns for a byte on the wire, within a node


def product(name: str, rows: int, columns: int) -> Act:
    """Makes the gradient of a weight, of 64 tokens."""
    dims = f"[[{rows}, 64], [64, {columns}]]"
    return Act(name, 1000 * K, op="aten::mm", dims=dims, backward=True)


def of_unit(name: str, size: int, ready: str) -> Act:
    length = round(20 * K + 7 / 8 * size * PACE)
    both = {"in_bytes": size, "out_bytes": size // 8, "group": 8, "per_node": 8}
    return comm(
        name, length, "reduce_scatter", lane="reduce", waits=(ready,), backward=True, **both
    )


@pytest.mark.parametrize(
    ("root", "buckets"),
    [
        (72_428_800, [52_428_800, *[33_554_432] * 4, 20_000_000]),  # with an embedding
        (52_429_000, [*[33_554_432] * 4, 52_429_000]),  # which is the output as well
    ],
)
def test_gradients_are_reduced_in_buckets_as_they_are_ready(root: int, buckets: list[int]) -> None:
    """Each weight of a layer is 4096 by 4096 in two bytes, more than a bucket; the output's 50 MB.

    A bucket takes 20 and 2 · 7/8 of its bytes on the wire.
    """
    acts = [
        Act("embed", 10 * K, op="aten::embedding", dims="[[100, 512], [4, 16]]"),
        product("output", 6400, 4096),
        *(product(name, 4096, 4096) for name in ("b2", "c2", "b1", "c1")),
        Act("opt", 500 * K, waits=("r0",), family="optimizer"),
        comm("g", 23_670, "all_gather", out_bytes=1 << 20, in_bytes=1 << 17, group=8, per_node=8),
        of_unit("r2", 67_108_864, "c2"),
        of_unit("r1", 67_108_864, "c1"),
        of_unit("r0", root, "c1"),
    ]
    model = small_model(acts)
    found = sharding.apply(model, "ddp")
    new = slice(len(acts), None)
    assert found.facts.in_bytes[new].tolist() == buckets
    expected = [20 * K + 7 / 4 * size * PACE for size in buckets]
    assert found.lengths()[new] == pytest.approx(expected, rel=0.02)
    # all but those that c1 makes ready are hidden beside the backward pass, which ends at 5010
    last = expected[-2] + expected[-1]
    assert period(found) == pytest.approx(5010 * K + last + 4000 * K, rel=1e-3)


def test_products_of_equal_shapes_make_one_gradient() -> None:
    """A weight of 64 by 64, and 64 tokens: the first of two products passes the gradient on."""
    acts = [
        Act("embed", 10, op="aten::embedding", dims="[[100, 64], [4, 16]]"),
        product("a", 64, 64),
        product("b", 64, 64),
        product("c", 64, 64),
        product("d", 64, 64),
        product("e", 128, 64),
        product("f", 128, 64),
    ]
    model = small_model(acts)
    (made,) = find_gradient_products(model, [np.arange(len(acts))])
    assert made == [(2, 4096), (4, 4096), (5, 8192), (6, 8192)]


def test_units_are_gathered_and_reduced_for_every_micro_batch() -> None:
    twin = started("four micro-batches, sharded")
    hold_to_twin(started("four micro-batches"), ("sharding", "full_shard"), twin, step_rel=0.02)


def test_groups_of_unknown_size_have_no_shards() -> None:
    reduced = comm("r", K, "all_reduce", waits=("b",), in_bytes=64 << 20, backward=True)
    model = small_model([Act("a", K), Act("b", K, backward=True), reduced])
    with pytest.raises(UsageError, match="how many ranks"):
        sharding.apply(model, "hybrid_shard:2")
