"""Another sharding of parameters, gradients and optimizer state.

From FSDP the units are those that the recording gathers. A gather that the new strategy does
without takes no time and its copies neither; one that it needs besides is put before the backward
pass of its unit, and may start when the unit before the one before it does. Reductions change their
type. From data parallelism without shards the units are the layers, told by their attention.
"""

import re
from dataclasses import replace

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask
from htk.base.errors import UsageError
from htk.physics.network import Network
from htk.physics.wire import STRATEGIES
from htk.whatif.data_groups import data_network, data_positions
from htk.whatif.ddp_to_fsdp import OUT, build_replica_reduce, from_replicas
from htk.whatif.fsdp_to_ddp import to_replicas
from htk.whatif.fsdp_units import (
    all_next_of,
    all_waited_for,
    backward_layers,
    backward_regions,
    compute_lane,
    next_of,
    position_on,
)
from htk.whatif.host_cost import delay_calls, drop_event_waits, host_ns, launch_ns, remove_calls
from htk.whatif.parallelism import (
    Sharded,
    find_replicated,
    find_sharded,
    mark_replicating,
    scale_optimizer,
)
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import (
    COMPUTE,
    Work,
    insert_works,
)
from htk.whatif.zero import STAGES, to_zero

NAME = "sharding"
HELP = (
    "full_shard, shard_grad_op, hybrid_shard[:ranks], ddp, zero1, zero2; or as PyTorch says: "
    "NO_SHARD, reshard_after_forward=True."
)

_AS_PYTORCH_SAYS = {
    "no_shard": "ddp",
    "zero3": "full_shard",
    "reshard_after_forward": "full_shard",
    "reshard_after_forward=true": "full_shard",
    "reshard_after_forward=false": "shard_grad_op",
}

_COPIES = re.compile(r"fsdp|all_gather_copy|split_with_sizes_copy|chunk_cat")


def parse_strategy(value: str) -> str:
    """Return the strategy by htk's name, whichever name and case PyTorch gives it."""
    low = value.strip().lower().removeprefix("shardingstrategy.")
    return _AS_PYTORCH_SAYS.get(low, low)


def read_strategy(value: str) -> tuple[str, str]:
    """Return the strategy, and the size of its groups where one is asked for."""
    name, _, size = parse_strategy(value).partition(":")
    if name not in (*STRATEGIES, *STAGES):
        strategies = ", ".join((*STRATEGIES, *STAGES))
        raise UsageError(f"{NAME} {value!r}: one of {strategies}, NO_SHARD")
    return name, size


def apply(model: StepModel, value: str) -> StepModel:
    name, size = read_strategy(value)
    now = find_sharded(model) or find_replicated(model)
    if now is None:
        raise UsageError(
            f"{NAME}: the step holds neither all_gathers and reduce_scatters of parameters nor "
            "all_reduces of gradients, with known sizes and several ranks"
        )
    shards = _parse_shards(model, now, name, size)
    if name == "hybrid_shard" and shards == now.world > 1:  # nobody else holds the same shard
        name = "full_shard"
    if name == now.strategy and shards == (now.ranks if name != "ddp" else 1):
        return model.with_assumption(f"the recording is {name} already")
    if name in STAGES:
        whole_copies = (
            model if now.strategy == "ddp" else to_replicas(model, now, _mark_copies(model))
        )
        changed = to_zero(whole_copies, find_replicated(whole_copies) or now)
    elif now.strategy == "ddp":
        changed = from_replicas(model, now, name, shards)
    elif name == "ddp":
        changed = to_replicas(model, now, _mark_copies(model))
    else:
        changed = _change_communication(model, now, name, shards)
    return (
        replace(changed, parallel=now.world)
        .with_uncertainty("communication", 0.15)
        .with_uncertainty("structure", 0.03)
        .with_assumption(
            f"{name} in place of {now.strategy}"
            + (f", parameters spread over {shards} ranks" if shards > 1 else "")
            + (", the optimizer's state over all ranks" if name in STAGES else ""),
            "collectives keep the latency and rate that they were recorded with at the level of "
            "the network that they cross; a level that the recording shows nothing of runs at "
            "what its links achieve",
        )
    )


def _parse_shards(model: StepModel, now: Sharded, name: str, size: str) -> int:
    if name in ("ddp", *STAGES):
        return 1
    if name != "hybrid_shard":
        return now.world
    usual = now.ranks if now.strategy == name else data_network(model).in_node(now.world)
    shards = int(size) if size.isdigit() else usual
    if now.world < 1:
        raise UsageError(f"{NAME}: the trace does not say how many ranks its collectives have")
    if shards < 1 or now.world % shards:
        raise UsageError(f"{NAME}: {shards} ranks to a shard group do not divide {now.world}")
    return shards


def _change_communication(model: StepModel, now: Sharded, name: str, shards: int) -> StepModel:
    """Return the model with another kind of FSDP than the recorded one."""
    if now.ranks < 2:
        raise UsageError(f"{NAME}: gathers of one rank do not show what gathers of several take")
    gathers = model.is_collective("all_gather")
    reduces = model.is_collective("reduce_scatter")
    net = data_network(model)
    copies = _mark_copies(model)
    sums = mark_replicating(model)
    has_replicas = name == "hybrid_shard" and now.world > shards
    keeps_sums = has_replicas and bool(sums.any())
    apart = has_replicas and not keeps_sums and bool(copies.any())  # FSDP2
    behind = 0.0 if keeps_sums or apart else net.summed(now.world, shards)
    kept_whole = now.strategy == "shard_grad_op" or not now.backward.any()
    regather = name != "shard_grad_op" and kept_whole
    of_gathers = gathers | (copies & _of_gather(model))
    host, summing = model.once(
        "host of FSDP",
        lambda: (host_ns(model, of_gathers, hooks=False), host_ns(model, reduces, hooks=True)),
        of_lengths=True,
    )
    if keeps_sums:
        model = _resize_replica_sums(model, sums, now, shards, net)
    else:
        model = remove_calls(model, sums, hooks=False)
    if name == "shard_grad_op":
        model = drop_event_waits(model, gathers)  # nothing is freed that a gather could wait for
        model = remove_calls(model, now.backward | _mark_uncopied(model, now.backward), hooks=True)
    kept = model.is_collective("all_gather")
    fixed = [net.group_latency(n) for n in (now.ranks, shards)]
    model = _move_transfers(model, kept, fixed, net.shared(shards) / net.shared(now.ranks))
    reduced = net.shared(shards) + behind
    model = _move_transfers(model, reduces, fixed, reduced / net.shared(now.ranks))
    model = scale_optimizer(model, now.ranks / shards)
    if apart:
        model = _replicated_apart(model, now, shards, net, summing)
    if regather:
        model = _gather_again(model, shards, host)
    return _resize_groups(model, now, name, shards, net)


def _move_transfers(model: StepModel, chosen: Mask, fixed: list[float], ratio: float) -> StepModel:
    """Return the model with another latency of some collectives, and their transfers `ratio` times
    as long."""
    length = model.lengths().astype(np.float64)
    moving = np.maximum(length - fixed[0], 0.0)
    return model.with_lengths(
        chosen, np.minimum(length, fixed[0]) + fixed[1] - fixed[0] + moving * ratio
    )


def _resize_replica_sums(
    model: StepModel, sums: Mask, now: Sharded, shards: int, net: Network
) -> StepModel:
    """Return the model with the recorded sums between replicas for shards of another size."""
    facts = model.facts
    gradient_bytes = facts.in_bytes * now.ranks
    length = net.group_latency(now.world) + gradient_bytes * net.summed(now.world, shards)
    resized = replace(
        facts,
        in_bytes=np.where(sums, gradient_bytes // shards, facts.in_bytes),
        out_bytes=np.where(sums, gradient_bytes // shards, facts.out_bytes),
    )
    in_node = net.replicas_in_node(now.world, shards)
    regrouped = replace(model, facts=resized).with_groups(sums, now.world // shards, in_node)
    return regrouped.with_lengths(sums, length)


def _mark_copies(model: StepModel) -> Mask:
    """Return which activities are FSDP2's copies into buffers and out of them."""
    copying = model.facts.op.where(_COPIES.search)
    return np.asarray(copying & ~model.is_comm)


def _of_gather(model: StepModel) -> Mask:
    """Return the operators that may be of a gather, not of a reduction."""
    return model.facts.op.where(lambda op: op and "chunk_cat" not in op)


def _mark_uncopied(model: StepModel, dropped: Mask) -> Mask:
    """Return the copies into and out of the buffers of dropped gathers, which go with them."""
    copies = _mark_copies(model) & _of_gather(model)
    if (model.facts.backward & dropped).any():
        return np.asarray(copies & model.facts.backward)
    acts = model.graph.activities
    late = np.zeros(len(copies), bool)
    for rank in model.graph.ranks:
        of_rank = acts.rank == rank
        late |= of_rank & (acts.start >= int(acts.start[dropped & of_rank].min(initial=1 << 62)))
    return np.asarray(copies & late)


def _replicated_apart(
    model: StepModel, now: Sharded, shards: int, net: Network, host: float
) -> StepModel:
    """Return the model with sums between replicas on a stream of their own, as in FSDP2."""
    positions = data_positions(model)
    fixed = net.group_latency(now.world)
    each = net.summed(now.world, shards)
    acts = model.graph.activities
    works: list[Work] = []
    calls = [np.empty(0, np.int64)]
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        reduces = _order_by_start(
            model, model.is_collective("reduce_scatter") & (acts.rank == rank)
        )
        if not reduces:
            continue
        ready = all_waited_for(model, reduces, lane)
        waits = all_next_of(lane, np.array(ready, np.int64))
        calls.append(np.where(waits >= 0, acts.call[waits], -1))
        rest = next_of(lane, ready[-1]) if ready[-1] >= 0 else -1
        before = (rest,) if rest not in (-1, ready[-1]) else ()  # what is left of the step
        last: tuple[int, ...] = ()  # each sum waits for its reduction and the sum before it
        for k, reduce in enumerate(reduces):
            size = float(model.facts.in_bytes[reduce])
            work = build_replica_reduce(
                reduce,
                fixed + size * each,
                ((reduce, *last), before),
                size=size / shards,
                ranks=now.world // shards,
                per_node=net.replicas_in_node(now.world, shards),
                joined=(k, positions[rank].group, positions[rank].place % shards),
            )
            last = (len(acts.start) + len(works),)
            works.append(work)
    return insert_works(delay_calls(model, np.concatenate(calls), host), works)


def _resize_groups(
    model: StepModel, now: Sharded, name: str, shards: int, net: Network
) -> StepModel:
    """Return how large the groups of collectives are now, for the edits that follow."""
    gathers = model.is_collective("all_gather")
    reduces = model.is_collective("reduce_scatter")
    regrouped = model.with_groups(gathers, shards, net.in_node(shards))
    size = shards if name == "hybrid_shard" else now.world
    return regrouped.with_groups(reduces, size, net.in_node(size))


def _gather_again(model: StepModel, shards: int, host: float) -> StepModel:
    """Gather units but the first (the root stays whole) once more before their backward.

    Their communicator keeps the order of issue: a unit is gathered ahead of the reduction of the
    one before it, and after that of the one before that.
    """
    works: list[Work] = []
    calls: list[int] = []
    acts = model.graph.activities
    lengths = model.lengths()
    lag = launch_ns(model)
    positions = data_positions(model)
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        of_rank = acts.rank == rank
        gathers = _order_by_start(model, model.is_collective("all_gather") & of_rank)
        reduces = _order_by_start(model, model.is_collective("reduce_scatter") & of_rank)
        copies = _copied_out(model, lane, gathers)
        firsts = _find_first_backward(model, lane, reduces)
        begin = next(int(a) for a in lane.tolist() if model.facts.backward[a] or a == firsts[0])
        units = list(reversed(gathers))[: len(firsts)]
        sent = -1
        for k, (unit, first) in enumerate(zip(units[:-1], firsts, strict=False)):
            activity = firsts[k - 2] if k > 1 else begin
            freed = _find_before(lane, activity)
            after = [freed] + [sent] * (sent >= 0) + reduces[k - 2 : k - 1] * (k > 1)
            copy = copies.get(unit)
            before = [first] * (copy is None) + reduces[k - 1 : k] * (k > 0)
            sent = len(acts.start) + len(works)
            calls.append(int(acts.call[first]))
            work = _copy_work(model, unit, float(lengths[unit]), (tuple(after), tuple(before)))
            group = (positions[rank].group, positions[rank].place // shards)
            issued = int(acts.call[firsts[k - 1] if k else begin])
            works.append(replace(work, joined=(k, *group), call=issued, lag=lag))
            if copy is not None:
                order = ((sent, _find_before(lane, first)), (first,))
                works.append(
                    replace(_copy_work(model, copy, float(lengths[copy]), order), kind=COMPUTE)
                )
    return insert_works(delay_calls(model, np.array(calls, np.int64), host), works).with_assumption(
        "units are gathered again in the backward pass, each as soon as the second before it begins"
    )


def _copy_work(
    model: StepModel, activity: int, length: float, order: tuple[tuple[int, ...], tuple[int, ...]]
) -> Work:
    """Return one like this one."""
    facts = model.facts
    return Work(
        activity,
        length,
        *order,
        collective=facts.collective[activity],
        in_bytes=int(facts.in_bytes[activity]),
        out_bytes=int(facts.out_bytes[activity]),
        group_size=int(facts.group_size[activity]),
        per_node=int(facts.per_node[activity]),
    )


def _copied_out(model: StepModel, lane: Ints, gathers: list[int]) -> dict[int, int]:
    """Return the copy out of the buffer of each gather, where all have one."""
    out = OUT.rpartition(":")[2]
    copies = lane[model.facts.op.where(lambda op: out in op)[lane]].tolist()
    return dict(zip(gathers, copies, strict=True)) if len(copies) == len(gathers) else {}


def _find_first_backward(model: StepModel, lane: Ints, reduces: list[int]) -> list[int]:
    """Return the first backward activity of each unit; last the root's, which is in no layer."""
    regions = backward_regions(model, lane, all_waited_for(model, reduces, lane))
    layers = backward_layers(model, lane, len(regions) - 1)
    return [r.first for r in (*layers, regions[-1])] if layers else [r.first for r in regions]


def _order_by_start(model: StepModel, chosen: Mask) -> list[int]:
    rows = np.flatnonzero(chosen)
    order = order_by(model.graph.activities.start[rows])
    return [int(f) for f in rows[order]]


def _find_before(lane: Ints, activity: int) -> int:
    return int(lane[max(position_on(lane, activity) - 1, 0)])
