"""Another sharding of parameters, gradients and optimizer state.

From FSDP the units are those that the recording gathers. A gather that the new strategy does
without takes no time and its copies neither; one that it needs besides is put before the backward
pass of its unit, and may start when the unit before the one before it does. Reductions change their
type. From data parallelism without shards the units are the layers, told by their attention.
"""

import re
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from htk.analyses.whatif.insert import COMPUTE, Work, inserted
from htk.analyses.whatif.ledger import Sharded, owned, replicated, replicating, sharded
from htk.analyses.whatif.scene import Scene
from htk.analyses.whatif.transfers import LATENCY_NS, gpus_of_a_node, pace, rescaled
from htk.analyses.whatif.units import (
    Region,
    backward_layers,
    backward_regions,
    compute_lane,
    layers,
    waited_for,
    weights_between,
)
from htk.errors import UsageError
from htk.models.detected import detected
from htk.models.wire import STRATEGIES

NAME = "sharding"
HELP = "full_shard, shard_grad_op, hybrid_shard[:ranks], ddp."

_COPIES = re.compile(r"fsdp|all_gather_copy|split_with_sizes_copy|chunk_cat")
_OF_MEMORY = 0.8  # of its rate, by a large copy

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def apply(scene: Scene, value: str) -> Scene:
    name, _, given = value.partition(":")
    if name not in STRATEGIES:
        raise UsageError(f"{NAME} {value!r}: one of {', '.join(STRATEGIES)}")
    now = sharded(scene) or replicated(scene)
    if now is None:
        raise UsageError(
            f"{NAME}: the step holds neither all_gathers and reduce_scatters of parameters nor "
            "all_reduces of gradients, with known sizes and several ranks"
        )
    shards = _shards(scene, now, name, given)
    if name == now.strategy and shards == (now.ranks if name != "ddp" else 1):
        return scene.said(f"the recording is {name} already")
    if now.strategy == "ddp":
        changed = _from_replicas(scene, now, name, shards)
    else:
        changed = _communicated(scene, now, name, shards)
    return (
        replace(changed, parallel=now.world)
        .doubted("communication", 0.15)
        .doubted("structure", 0.03)
        .said(
            f"{name} in place of {now.strategy}, {shards} ranks share a shard",
            "collectives keep the latency and rate that they were recorded with at the level of "
            "the network that they cross; a level that the recording shows nothing of runs at "
            "what its links achieve",
        )
    )


def _shards(scene: Scene, now: Sharded, name: str, given: str) -> int:
    if name == "ddp":
        return 1
    if name != "hybrid_shard":
        return now.world
    usual = now.ranks if now.strategy == name else min(gpus_of_a_node(scene), now.world // 2)
    shards = int(given) if given.isdigit() else max(usual, 1)
    if shards < 1 or now.world % shards:
        raise UsageError(f"{NAME}: {shards} ranks to a shard group do not divide {now.world}")
    return shards


def _communicated(scene: Scene, now: Sharded, name: str, shards: int) -> Scene:
    """From one kind of FSDP to another, or to none."""
    gathers, reduces = scene.is_collective("all_gather"), scene.is_collective("reduce_scatter")
    node = gpus_of_a_node(scene)
    before = (now.ranks - 1) / now.ranks * pace(scene, now.ranks, min(now.ranks, node))
    inside = (shards - 1) / shards * pace(scene, shards, min(shards, node))
    again = name in ("full_shard", "hybrid_shard")
    dropped = gathers & (shards == 1) | (now.backward & (name == "shard_grad_op"))
    copies = _uncopied(scene, gathers, dropped)
    between = _between(scene, now, shards, node)
    scene = scene.with_lengths(replicating(scene), 0)
    scene = scene.with_lengths(gathers, rescaled(scene, gathers, inside / before))
    scene = scene.with_lengths(dropped, 0)
    length = rescaled(scene, reduces, (inside + between) / before)
    scene = scene.with_lengths(reduces, length)
    scene = owned(scene, now.ranks / shards).with_lengths(copies, 0)
    scene = _renamed(scene, now, name, shards, node)
    if again and not now.backward.any():
        return _regathered(scene, now)
    return scene


def _renamed(scene: Scene, now: Sharded, name: str, shards: int, node: int) -> Scene:
    """What collectives there are now, for the edits that follow."""
    gathers, reduces = scene.is_collective("all_gather"), scene.is_collective("reduce_scatter")
    found = scene.with_groups(gathers, shards, min(shards, node))
    found = found.with_groups(reduces, now.world, min(now.world, node))
    if name != "ddp":
        return found
    kinds = scene.facts.collective
    types = ["all_reduce" if r else c for r, c in zip(reduces.tolist(), kinds, strict=True)]
    return replace(found, facts=replace(found.facts, collective=types))


def _between(scene: Scene, now: Sharded, shards: int, node: int) -> float:
    """ns for a byte of a whole unit, to reduce its shards between replicas."""
    replicas = now.world // shards
    if replicas == 1:
        return 0.0
    wire = 2 * (replicas - 1) / replicas / shards
    return wire * pace(scene, replicas, max(node // shards, 1) if now.world > node else replicas)


def _uncopied(scene: Scene, gathers: Mask, dropped: Mask) -> Mask:
    """Without a gather there is nothing to copy out of its buffer."""
    copies = np.array([bool(op and _COPIES.search(op)) for op in scene.facts.op], bool)
    copies &= ~scene.is_comm
    if not dropped.any():
        return dropped
    if (dropped == gathers).all():
        return np.asarray(copies)
    acts = scene.graph.activities
    late = np.zeros(len(copies), bool)
    for rank in scene.graph.ranks:
        mine = acts.rank == rank
        late |= mine & (acts.start >= int(acts.start[dropped & mine].min(initial=1 << 62)))
    of_gather = np.array([bool(op and "chunk_cat" not in op) for op in scene.facts.op], bool)
    return np.asarray(copies & late & of_gather)


def _regathered(scene: Scene, now: Sharded) -> Scene:
    """Units but the first (the root stays whole) are gathered once more before their backward."""
    works: list[Work] = []
    acts, lengths = scene.graph.activities, scene.lengths()
    for rank in scene.graph.ranks:
        lane = compute_lane(scene, rank)
        mine = acts.rank == rank
        gathers = _ordered(scene, scene.is_collective("all_gather") & mine)
        reduces = _ordered(scene, scene.is_collective("reduce_scatter") & mine)
        ready = [waited_for(scene, r, lane) for r in reduces]
        regions = backward_regions(scene, lane, ready)
        units = list(reversed(gathers))[: len(regions)]
        many, previous = len(acts.start), -1
        for k, (unit, region) in enumerate(zip(units[:-1], regions, strict=False)):
            begin = regions[k - 2].first if k > 1 else _before(lane, regions[0])
            after = (begin, previous) if previous >= 0 else (begin,)
            previous = many + len(works)
            works.append(
                Work(
                    unit,
                    float(lengths[unit]),
                    after,
                    (region.first,),
                    collective="all_gather",
                    in_bytes=int(scene.facts.in_bytes[unit]),
                    out_bytes=int(scene.facts.out_bytes[unit]),
                    group_size=int(scene.facts.group_size[unit]),
                    per_node=int(scene.facts.per_node[unit]),
                    joined=k,
                )
            )
    return inserted(scene, works).said(
        "units are gathered again in the backward pass, each as soon as the second before it begins"
    )


def _ordered(scene: Scene, which: Mask) -> list[int]:
    found = np.flatnonzero(which)
    order = np.argsort(scene.graph.activities.start[found], kind="stable")
    return [int(f) for f in found[order]]


def _before(lane: Ints, region: Region) -> int:
    place = int(np.flatnonzero(lane == region.first)[0])
    return int(lane[max(place - 1, 0)])


@dataclass(frozen=True)
class _Plan:
    """How units are to be shared out, for those who have no shards yet."""

    name: str
    shards: int
    node: int
    unit: float  # bytes of a layer
    root: float  # bytes of what is in no layer
    gathered: float  # ns a byte
    reduced: float
    copied: float  # out of the gathered buffer; 0: unknown


def _from_replicas(scene: Scene, now: Sharded, name: str, shards: int) -> Scene:
    works: list[Work] = []
    plan = None
    for rank in scene.graph.ranks:
        lane = compute_lane(scene, rank)
        forward = layers(scene, lane)
        backward = backward_layers(scene, lane, len(forward))
        if not forward or not backward:
            raise UsageError(
                f"{NAME}: from ddp the layers must be seen: attention kernels, forward and "
                "backward; record a step of FSDP"
            )
        plan = plan or _planned(scene, now, name, shards, lane, forward)
        wanted = _wanted(plan, lane, forward, backward)
        works += _rank_works(scene, plan, lane, wanted, len(works))
    bare = owned(scene.with_lengths(replicating(scene), 0), 1 / shards)
    found = inserted(bare, works)
    return found.doubted("structure", 0.06).said(
        f"units are the {len(forward)} layers that attention kernels tell, and what is in none"
    )


def _planned(
    scene: Scene, now: Sharded, name: str, shards: int, lane: Ints, forward: list[Region]
) -> _Plan:
    """A layer is what lies between two attention kernels, the same in all."""
    many = len(forward)
    unit = 2.0 * weights_between(scene, lane, forward[many // 2])
    if not 0 < unit * many <= now.reduced_bytes:
        unit = now.reduced_bytes / (many + 1)
    root = max(now.reduced_bytes - unit * many, 0.0)
    node, world = gpus_of_a_node(scene), now.world
    inside = (shards - 1) / shards * pace(scene, shards, min(shards, node))
    gpu = detected(scene.device_name)
    return _Plan(
        name,
        shards,
        node,
        unit,
        root,
        inside,
        inside + _between(scene, now, shards, node) if world > shards else inside,
        0.0 if gpu is None else 2 / (_OF_MEMORY * gpu.memory_gbps),
    )


@dataclass(frozen=True)
class _Wanted:
    """A collective of a unit: when it may start, and who waits for it."""

    kind: str
    size: float  # bytes of the whole unit
    after: int
    before: int


def _wanted(plan: _Plan, lane: Ints, forward: list[Region], back: list[Region]) -> list[_Wanted]:
    """Gathers before each unit's forward (and backward), reductions after its backward."""
    first, rest = int(lane[0]), _after(lane, back[-1])
    found = [_Wanted("all_gather", plan.root, first, forward[0].first)]
    for k, region in enumerate(forward):
        after = forward[k - 2].first if k > 1 else first
        found.append(_Wanted("all_gather", plan.unit, after, region.first))
    for k, region in enumerate(back if plan.name != "shard_grad_op" else []):
        after = back[k - 2].first if k > 1 else _before(lane, back[0])
        found.append(_Wanted("all_gather", plan.unit, after, region.first))
    found += [_Wanted("reduce_scatter", plan.unit, region.last, rest) for region in back]
    return [*found, _Wanted("reduce_scatter", plan.root, back[-1].last, rest)]


def _rank_works(
    scene: Scene, plan: _Plan, lane: Ints, wanted: list[_Wanted], so_far: int
) -> list[Work]:
    """Those of a kind one after the other; what is gathered is copied out before it is used."""
    mine = scene.graph.activities.rank == scene.graph.activities.rank[lane[0]]
    like = _ordered(scene, replicating(scene) & mine)[0]
    many, last = len(scene.graph.activities.start) + so_far, dict[str, int]()
    works: list[Work] = []
    for number, one in enumerate(wanted):
        gather = one.kind == "all_gather"
        waits = (one.after, last[one.kind]) if one.kind in last else (one.after,)
        last[one.kind] = many + len(works)
        part = one.size / plan.shards
        works.append(
            Work(
                like,
                LATENCY_NS + one.size * (plan.gathered if gather else plan.reduced),
                waits,
                (one.before,) if one.before != one.after else (),
                collective=one.kind,
                in_bytes=round(part if gather else one.size),
                out_bytes=round(one.size if gather else part),
                group_size=plan.shards,
                per_node=min(plan.shards, plan.node),
                joined=number,
            )
        )
        if gather and plan.copied:
            after = (last[one.kind], *_held(lane, one.before))
            copy = one.size * plan.copied
            works.append(Work(int(lane[0]), copy, after, (one.before,), COMPUTE))
    return works


def _held(lane: Ints, before: int) -> tuple[int, ...]:
    """The activity in front of one on its stream."""
    place = int(np.flatnonzero(lane == before)[0])
    return (int(lane[place - 1]),) if place else ()


def _after(lane: Ints, region: Region) -> int:
    place = int(np.flatnonzero(lane == region.last)[0])
    return int(lane[min(place + 1, len(lane) - 1)])
