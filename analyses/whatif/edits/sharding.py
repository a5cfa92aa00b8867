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
from htk.analyses.whatif.launched import cpu_edges, delayed, unlaunched
from htk.analyses.whatif.ledger import Sharded, owned, replicated, replicating, sharded
from htk.analyses.whatif.scene import Scene
from htk.analyses.whatif.transfers import LATENCY_NS, gpus_of_a_node, latency, pace, rescaled
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
_BOTH = 1.8  # times the output's weight: the root holds an embedding besides
_EVENTS = re.compile(r"EventRecord|StreamWaitEvent")
_GRADIENTS = 6  # kernels of the backward pass by which that of the output is there
_HOOK_NS = 60_000  # of the CPU for FSDP to gather or to reduce a unit, roughly
_RANKS = 1 << 20  # more than there are, to number their groups
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
            f"{name} in place of {now.strategy}"
            + (f", parameters spread over {shards} ranks" if shards > 1 else ""),
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
    node, copies = gpus_of_a_node(scene), _copies(scene)
    before = (now.ranks - 1) / now.ranks * pace(scene, now.ranks, min(now.ranks, node))
    inside = (shards - 1) / shards * pace(scene, shards, min(shards, node))
    again = name in ("full_shard", "hybrid_shard")
    dropped = gathers & (shards == 1) | (now.backward & (name == "shard_grad_op"))
    between = _between(scene, now, shards, node)
    apart = name == "hybrid_shard" and now.world > shards and bool(copies.any())  # FSDP2
    host = _host_ns(scene, now, copies)
    scene = unlaunched(scene, replicating(scene) | dropped | _uncopied(scene, gathers, dropped))
    kept = gathers & ~dropped
    scene = scene.with_lengths(kept, rescaled(scene, kept, inside / before))
    whole = inside if apart else inside + between
    scene = scene.with_lengths(reduces, rescaled(scene, reduces, whole / before))
    scene = owned(scene, now.ranks / shards)
    regather = again and not now.backward.any()
    if name == "ddp":
        scene = _head_first(_without_hooks(scene))
    if apart:
        scene = _replicated_apart(scene, now, shards, between)
    if regather:
        scene = _regathered(scene, shards, host)
    return _renamed(scene, now, name, shards, node)


def _without_hooks(scene: Scene) -> Scene:
    """Nothing is gathered, so no event is recorded or waited for on its account."""
    calls = scene.graph.calls
    events = np.flatnonzero(calls.named(_EVENTS))
    gone = cpu_edges(scene, events)
    weight = np.where(gone, np.minimum(scene.weight, 0), scene.weight)
    return replace(scene, weight=weight)


def _head_first(scene: Scene) -> Scene:
    """The output's gradient, which is first, is not held back until that of the embedding."""
    works: list[Work] = []
    acts = scene.graph.activities
    length = scene.lengths().astype(np.float64)
    fixed = latency(scene)
    for rank in scene.graph.ranks:
        lane = compute_lane(scene, rank)
        reduces = _ordered(scene, scene.is_collective("reduce_scatter") & (acts.rank == rank))
        head, ready = _head(scene, lane)
        shared = 2 * head > scene.facts.in_bytes[reduces[-1]] if reduces else True  # with embedding
        if len(reduces) < 2 or not head or shared:
            continue
        root = reduces[-1]
        early = (length[root] - fixed[root]) * head / float(scene.facts.in_bytes[root])
        length[root] -= early
        first = Work(
            root,
            fixed[root] + early,
            (ready,),
            (reduces[0],),
            collective="all_reduce",
            in_bytes=head,
            out_bytes=head,
            group_size=int(scene.facts.group_size[root]),
            per_node=int(scene.facts.per_node[root]),
            joined=0,
        )
        works.append(first)
    return inserted(scene.with_lengths(scene.is_collective("reduce_scatter"), length), works)


def _head(scene: Scene, lane: Ints) -> tuple[int, int]:
    """Bytes of the largest matrix behind the last attention, and the activity that makes its
    gradient ready; 0: not seen."""
    back = scene.facts.backward[lane]
    attention = np.array([scene.facts.family[a] == "attention" for a in lane.tolist()], bool)
    forward = np.cumsum(back) == 0
    places, behind = np.flatnonzero(attention & forward), np.flatnonzero(back)
    if not len(places) or len(behind) < _GRADIENTS:
        return 0, -1
    last = int(np.flatnonzero(forward)[-1])
    matrices = [
        weights_between(scene, lane, Region(int(a), int(a))) for a in lane[places[-1] : last + 1]
    ]
    return 2 * max(matrices), int(lane[behind[_GRADIENTS - 1]])


def _copies(scene: Scene) -> Mask:
    """Of FSDP2, into buffers and out of them."""
    found = np.array([bool(op and _COPIES.search(op)) for op in scene.facts.op], bool)
    return np.asarray(found & ~scene.is_comm)


def _host_ns(scene: Scene, now: Sharded, copies: Mask) -> float:
    """What the CPU spends on gathering one unit."""
    gathers = scene.is_collective("all_gather")
    calls = scene.graph.activities.call
    forward = gathers & ~now.backward & (calls >= 0)
    of_gather = np.array([bool(op and "chunk_cat" not in op) for op in scene.facts.op], bool)
    alike = copies & of_gather & ~scene.facts.backward & (calls >= 0)
    edges = cpu_edges(scene, np.unique(calls[forward | alike]))
    weight = np.sort(scene.weight[edges])
    units = max(int(forward.sum()), 1)  # the longest pause of each is its hook, which is there
    return float(np.maximum(weight[: max(len(weight) - units, 0)], 0).sum()) / units


def _replicated_apart(scene: Scene, now: Sharded, shards: int, between: float) -> Scene:
    """FSDP2 sums between replicas on a stream of its own."""
    works: list[Work] = []
    acts, node = scene.graph.activities, gpus_of_a_node(scene)
    plan = _Plan("hybrid_shard", shards, now.world // shards, node, 0, 0, 0, between, 0)
    for rank in scene.graph.ranks:
        lane, summed = compute_lane(scene, rank), -1
        mine = scene.is_collective("reduce_scatter") & (acts.rank == rank)
        reduces = _ordered(scene, mine)
        ready = waited_for(scene, reduces[-1], lane) if reduces else -1
        rest = _after(lane, ready) if ready >= 0 else ready
        before = (rest,) if rest != ready else ()
        for k, one in enumerate(reduces):
            after = (one, summed) if summed >= 0 else (one,)
            summed = len(acts.start) + len(works)
            size = float(scene.facts.in_bytes[one])
            works.append(_summed(plan, one, rank, size, k, after, before))
    return inserted(scene, works)


def _renamed(scene: Scene, now: Sharded, name: str, shards: int, node: int) -> Scene:
    """What collectives there are now, for the edits that follow."""
    gathers, reduces = scene.is_collective("all_gather"), scene.is_collective("reduce_scatter")
    found = scene.with_groups(gathers, shards, min(shards, node))
    size = shards if name == "hybrid_shard" else now.world
    found = found.with_groups(reduces, size, min(size, node))
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
    copies = _copies(scene)
    if not dropped.any():
        return dropped
    if (dropped == gathers).all():
        return copies
    acts = scene.graph.activities
    late = np.zeros(len(copies), bool)
    for rank in scene.graph.ranks:
        mine = acts.rank == rank
        late |= mine & (acts.start >= int(acts.start[dropped & mine].min(initial=1 << 62)))
    of_gather = np.array([bool(op and "chunk_cat" not in op) for op in scene.facts.op], bool)
    return np.asarray(copies & late & of_gather)


def _regathered(scene: Scene, shards: int, host: float) -> Scene:
    """Units but the first (the root stays whole) are gathered once more before their backward.

    Their communicator keeps the order of issue: a unit is gathered ahead of the reduction of the
    one before it, and after that of the one before that.
    """
    works: list[Work] = []
    acts, lengths, facts = scene.graph.activities, scene.lengths(), scene.facts
    many, calls = len(acts.start), []
    for rank in scene.graph.ranks:
        lane = compute_lane(scene, rank)
        mine = acts.rank == rank
        gathers = _ordered(scene, scene.is_collective("all_gather") & mine)
        reduces = _ordered(scene, scene.is_collective("reduce_scatter") & mine)
        ready = [waited_for(scene, r, lane) for r in reduces]
        regions = backward_regions(scene, lane, ready)
        units, previous = list(reversed(gathers))[: len(regions)], -1
        for k, (unit, region) in enumerate(zip(units[:-1], regions, strict=False)):
            begin = regions[k - 2].first if k > 1 else _before(lane, regions[0])
            after = [begin] + [previous] * (previous >= 0) + reduces[k - 2 : k - 1] * (k > 1)
            before = [region.first] + reduces[k - 1 : k] * (k > 0)
            previous = many + len(works)
            calls.append(int(acts.call[region.first]))
            works.append(
                Work(
                    unit,
                    float(lengths[unit]),
                    tuple(after),
                    tuple(before),
                    collective="all_gather",
                    in_bytes=int(facts.in_bytes[unit]),
                    out_bytes=int(facts.out_bytes[unit]),
                    group_size=int(facts.group_size[unit]),
                    per_node=int(facts.per_node[unit]),
                    joined=k * _RANKS + rank // shards,
                )
            )
    return inserted(delayed(scene, np.array(calls, np.int64), host), works).said(
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
    replicas: int
    node: int
    unit: float  # bytes of a layer
    root: float  # bytes of what is in no layer
    inside: float  # ns for a byte of a unit, within a shard group
    between: float  # and between its replicas
    copied: float  # out of the gathered buffer; 0: unknown


def _from_replicas(scene: Scene, now: Sharded, name: str, shards: int) -> Scene:
    works: list[Work] = []
    calls: list[int] = []
    plan = None
    forward = []
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
        calls += [_call(scene, lane, one) for one in wanted]
    bare = owned(scene.with_lengths(replicating(scene), 0), 1 / shards)
    found = inserted(delayed(bare, np.array(calls, np.int64), _HOOK_NS), works)
    return found.doubted("structure", 0.06).said(
        f"units are the {len(forward)} layers that attention kernels tell, and what is in none; "
        f"the host needs {_HOOK_NS // 1000} us more for each gather and reduction"
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
    node, gpu = gpus_of_a_node(scene), detected(scene.device_name)
    return _Plan(
        name,
        shards,
        now.world // shards,
        node,
        unit,
        root,
        (shards - 1) / shards * pace(scene, shards, min(shards, node)),
        _between(scene, now, shards, node),
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
    """Gathers before each unit's forward (and backward), reductions after its backward.

    In the order in which they are issued, which their communicator keeps.
    """
    first, rest = int(lane[0]), _after(lane, back[-1].last)
    found = [_Wanted("all_gather", plan.root, first, forward[0].first)]
    for k, region in enumerate(forward):
        after = forward[k - 2].first if k > 1 else first
        found.append(_Wanted("all_gather", plan.unit, after, region.first))
    reduces = [_Wanted("reduce_scatter", plan.unit, region.last, rest) for region in back]
    if plan.name == "shard_grad_op":
        found += reduces
    else:
        gathers = []
        for k, region in enumerate(back):
            after = back[k - 2].first if k > 1 else _before(lane, back[0])
            gathers.append(_Wanted("all_gather", plan.unit, after, region.first))
        found += gathers[:2]
        for k, reduction in enumerate(reduces):  # one unit is gathered ahead
            found += [reduction, *gathers[k + 2 : k + 3]]
    return [*found, _Wanted("reduce_scatter", plan.root, back[-1].last, rest)]


def _call(scene: Scene, lane: Ints, one: _Wanted) -> int:
    """The call at which the CPU also gathers, or reduces."""
    which = one.before if one.kind == "all_gather" else _after(lane, one.after)
    return int(scene.graph.activities.call[which])


def _rank_works(
    scene: Scene, plan: _Plan, lane: Ints, wanted: list[_Wanted], so_far: int
) -> list[Work]:
    """One after the other; what is gathered is copied out before it is used."""
    rank = int(scene.graph.activities.rank[lane[0]])
    like = _ordered(scene, replicating(scene) & (scene.graph.activities.rank == rank))[0]
    many, last, summed = len(scene.graph.activities.start) + so_far, -1, -1
    works: list[Work] = []
    for number, one in enumerate(wanted):
        gather = one.kind == "all_gather"
        waits = (one.after, last) if last >= 0 else (one.after,)
        last = many + len(works)
        part = one.size / plan.shards
        works.append(
            Work(
                like,
                LATENCY_NS + one.size * plan.inside,
                waits,
                (one.before,) if one.before != one.after else (),
                collective=one.kind,
                in_bytes=round(part if gather else one.size),
                out_bytes=round(one.size if gather else part),
                group_size=plan.shards,
                per_node=min(plan.shards, plan.node),
                joined=2 * number * _RANKS + rank // plan.shards,
            )
        )
        if gather and plan.copied:
            after = (last, *_held(lane, one.before))
            copy = one.size * plan.copied
            works.append(Work(int(lane[0]), copy, after, (one.before,), COMPUTE))
        if not gather and plan.replicas > 1:
            waits = (last, summed) if summed >= 0 else (last,)
            summed = many + len(works)
            works.append(_summed(plan, like, rank, one.size, number, waits, (one.before,)))
    return works


def _summed(
    plan: "_Plan",
    like: int,
    rank: int,
    size: float,
    number: int,
    after: tuple[int, ...],
    before: tuple[int, ...],
) -> Work:
    """What shard groups reduced, between the replicas of each shard."""
    part = round(size / plan.shards)
    return Work(
        like,
        LATENCY_NS + size * plan.between,
        after,
        before,
        collective="all_reduce",
        in_bytes=part,
        out_bytes=part,
        group_size=plan.replicas,
        per_node=max(plan.node // plan.shards, 1),
        joined=(2 * number + 1) * _RANKS + rank % plan.shards,
    )


def _held(lane: Ints, before: int) -> tuple[int, ...]:
    """The activity in front of one on its stream."""
    place = int(np.flatnonzero(lane == before)[0])
    return (int(lane[place - 1]),) if place else ()


def _after(lane: Ints, which: int) -> int:
    place = int(np.flatnonzero(lane == which)[0])
    return int(lane[min(place + 1, len(lane) - 1)])
