"""Another sharding of parameters, gradients and optimizer state, from an FSDP recording.

The units are those that the recording gathers. A gather that the new strategy does without takes
no time and its copies neither; a reduce-scatter becomes an all-reduce, or one within the shard
group and an all-reduce between the replicas; the optimizer works on as much as a rank then owns.
"""

import re

import numpy as np
from numpy.typing import NDArray

from htk.analyses.whatif.ledger import Sharded, sharded
from htk.analyses.whatif.scene import Scene
from htk.analyses.whatif.transfers import latency, rescaled
from htk.errors import UsageError
from htk.models.wire import STRATEGIES

NAME = "sharding"
HELP = "full_shard, shard_grad_op, hybrid_shard[:ranks], ddp."

_COPIES = re.compile(r"fsdp|all_gather_copy|split_with_sizes_copy|chunk_cat")
_GPUS_OF_A_NODE = 8
_ACHIEVED = 0.75  # of a link's rate, by large collectives within a node: nccl-tests on A100, H100

Mask = NDArray[np.bool_]


def apply(scene: Scene, value: str) -> Scene:
    name, _, given = value.partition(":")
    if name not in STRATEGIES:
        raise UsageError(f"{NAME} {value!r}: one of {', '.join(STRATEGIES)}")
    now = sharded(scene)
    if now is None:
        raise UsageError(
            f"{NAME}: the step holds no all_gather and reduce_scatter of parameters with known "
            "sizes; predictions start from a recording of FSDP"
        )
    if name == now.strategy:
        return scene.said(f"the recording is {name} already")
    if now.strategy != "full_shard":
        raise UsageError(
            f"{NAME}: from {now.strategy} to {name} cannot be predicted; record "
            "full_shard, from which the others can"
        )
    shards = _shards(scene, now, name, given)
    changed = _communicated(scene, now, name, shards)
    return (
        changed.doubted("communication", 0.15)
        .doubted("structure", 0.03)
        .said(
            f"{name} in place of {now.strategy}, units as recorded, {shards} ranks share a shard",
            "collectives keep the latency and rate that they were recorded with, but those that "
            "no longer leave the node run at what its links achieve",
        )
    )


def _shards(scene: Scene, now: Sharded, name: str, given: str) -> int:
    if name == "ddp":
        return 1
    if name != "hybrid_shard":
        return now.ranks
    shards = (
        int(given)
        if given.isdigit()
        else min(scene.facts.gpus_per_node or _GPUS_OF_A_NODE, now.ranks // 2)
    )
    if shards < 1 or now.ranks % shards:
        raise UsageError(f"{NAME}: {shards} ranks to a shard group do not divide {now.ranks}")
    return shards


def _communicated(scene: Scene, now: Sharded, name: str, shards: int) -> Scene:
    gathers, reduces = scene.is_collective("all_gather"), scene.is_collective("reduce_scatter")
    whole = (now.ranks - 1) / now.ranks
    faster, slower = _levels(scene, now, shards)
    part = (shards - 1) / shards * faster
    dropped = now.backward if name == "shard_grad_op" else gathers & (shards == 1)
    scene = scene.with_lengths(gathers, rescaled(scene, gathers, part / whole))
    scene = scene.with_lengths(dropped, np.zeros(len(dropped)))
    if name in ("ddp", "hybrid_shard"):
        replicas = now.ranks // shards
        between = 2 * (replicas - 1) / replicas / shards * slower
        scene = scene.with_lengths(reduces, rescaled(scene, reduces, (part + between) / whole))
        scene = _owned(scene, now.ranks / shards)
    return _uncopied(scene, dropped if name == "shard_grad_op" else gathers & (shards == 1))


def _levels(scene: Scene, now: Sharded, shards: int) -> tuple[float, float]:
    """Time of a byte within a shard group, and between replicas, over that of today.

    Only where today's group leaves the node and the shard group does not. A group with one member
    a node has that share of the node's adapters.
    """
    node, links = scene.facts.gpus_per_node, scene.facts.scale_up_gbps
    if shards == 1 or not node or links is None or not shards <= node < now.ranks:
        return 1.0, 1.0
    gathers = scene.is_collective("all_gather") & (scene.facts.out_bytes > 0)
    moving = (scene.lengths() - latency(scene))[gathers]
    wire = scene.facts.out_bytes[gathers] * (now.ranks - 1) / now.ranks
    today = float(np.median(wire / np.maximum(moving, 1.0)))  # bytes a ns: GB/s
    return min(today / (_ACHIEVED * links), 1.0), node / max(node // shards, 1)


def _owned(scene: Scene, ratio: float) -> Scene:
    """The optimizer works on more parameters."""
    optimizer = np.array([f == "optimizer" for f in scene.facts.family], bool)
    return scene.with_lengths(optimizer, scene.lengths() * ratio)


def _uncopied(scene: Scene, dropped: Mask) -> Scene:
    """Without a gather there is nothing to copy out of its buffer."""
    gathers = scene.is_collective("all_gather")
    if not dropped.any() or not gathers.any():
        return scene
    copies = np.array([bool(op and _COPIES.search(op)) for op in scene.facts.op], bool)
    acts = scene.graph.activities
    if (dropped == gathers).all():
        return scene.with_lengths(copies & ~scene.is_comm, np.zeros(len(copies)))
    after = {
        int(r): int(acts.start[dropped & (acts.rank == r)].min(initial=1 << 62))
        for r in scene.graph.ranks
    }
    late = acts.start >= np.array([after[int(r)] for r in acts.rank])
    of_gather = np.array([bool(op and "chunk_cat" not in op) for op in scene.facts.op], bool)
    return scene.with_lengths(copies & late & of_gather & ~scene.is_comm, np.zeros(len(copies)))
