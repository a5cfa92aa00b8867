"""Experts of a step: the weights that each rank holds, and who reduces their gradients."""

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints, Mask
from htk.whatif.data_groups import data_network, data_positions
from htk.whatif.fsdp_to_ddp import BUCKET_BYTES
from htk.whatif.operator_shapes import operator_shapes
from htk.whatif.parallelism import find_sharded, mark_replicating, scale_optimizer
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work, insert_works
from htk.whatif.transfers import rescale_transfers

_GRADIENT_BYTES = 2


def mark_exchanges(model: StepModel) -> Mask:
    """Return the all-to-alls of several ranks."""
    return model.is_collective("all_to_all") & (model.facts.group_size > 1)


def fullest_over_mean(model: StepModel) -> Floats:
    """Return how many times the mean the fullest member of each all-to-all sends or receives.

    1 where sizes are not known, or the same on every rank.
    """
    facts = model.facts
    graph = model.graph
    sizes = np.maximum(facts.in_bytes, facts.out_bytes).astype(np.float64)
    node = np.where(model.run_edge >= 0, graph.src[model.run_edge], -1)
    chosen = mark_exchanges(model) & (node >= 0) & (facts.in_bytes >= 0) & (facts.out_bytes >= 0)
    largest = np.zeros(len(graph.time))
    total = np.zeros(len(graph.time))
    members = np.zeros(len(graph.time))
    np.maximum.at(largest, node[chosen], sizes[chosen])
    np.add.at(total, node[chosen], facts.in_bytes[chosen])
    np.add.at(members, node[chosen], 1)
    ratio = np.ones(len(sizes))
    mean = np.maximum(total[node[chosen]], 1) / members[node[chosen]]
    ratio[chosen] = np.maximum(largest[node[chosen]] / mean, 1.0)
    return ratio


def spread_gradients(model: StepModel, now: int, ranks: int) -> tuple[StepModel, list[str]]:
    """Return the model with the experts of `now` ranks spread over `ranks`: what each holds of
    them, reduces of their gradients and updates. In words, what was assumed of that."""
    if find_sharded(model) is not None:
        return model, ["experts are sharded over as many ranks as now"]
    reduces = mark_replicating(model)
    world = int(model.facts.group_size[reduces].max(initial=0))
    held = _expert_bytes(model)
    if not held or world < now:
        return model, ["what ranks hold of experts, and reduce of it, is not known and stays"]
    after = held * now / ranks
    own = reduces & (model.facts.group_size == world // now) & (now > 1)
    rest = reduces & ~own
    per_rank = len(model.graph.ranks)
    others = float(model.facts.in_bytes[rest].sum()) / per_rank - (held if now == 1 else 0.0)
    changed = scale_optimizer(model, (others + after) / (others + held))
    old_ns = _reduce_ns(model, held, world, now)
    new_ns = _reduce_ns(model, after, world, ranks)
    if own.any():
        moved = rescale_transfers(changed, own, new_ns / old_ns)
        net = data_network(model)
        changed = changed.with_lengths(own, moved if world > ranks else np.zeros(len(moved)))
        changed = changed.with_groups(
            own, max(world // ranks, 1), net.replicas_in_node(world, ranks)
        )
    elif rest.any():
        changed = insert_works(changed, _build_reductions(model, rest, after, new_ns, world, ranks))
    words = [
        f"each rank holds {after / 1e6:.0f} MB of experts' weights in place of {held / 1e6:.0f}, "
        f"which {max(world // ranks, 1)} ranks reduce"
    ]
    return changed, words


def _expert_bytes(model: StepModel) -> float:
    """Return the bytes of gradients of the experts that a rank holds, by the shapes of grouped
    products of its forward pass; 0: not known."""
    first = model.graph.activities.rank == model.graph.ranks[0]
    forward = first & model.is_compute & ~model.facts.backward & ~model.facts.recomputed
    elements = 0
    for k in np.flatnonzero(forward).tolist():  # some thousand
        if "grouped_mm" in (model.facts.op[k] or ""):
            stacked = [s for s in operator_shapes(model.facts.dims[k]) if len(s) == 3]
            elements += int(np.prod(stacked[0])) if stacked else 0
    return _GRADIENT_BYTES * float(elements)


def _build_reductions(
    model: StepModel, reduces: Mask, size: float, ns: float, world: int, ranks: int
) -> list[Work]:
    """Return the reductions of experts' gradients, in buckets, beside those of all others: each
    once its last product is done, in turn with those, and before the optimizer."""
    acts, works = model.graph.activities, list[Work]()
    grouped = np.array(["grouped_mm" in (op or "") for op in model.facts.op], bool)
    updates = np.array([f == "optimizer" for f in model.facts.family], bool)
    count = max(round(size / BUCKET_BYTES), 1)
    positions = data_positions(model)
    alone = len(model.graph.ranks) < 2
    for rank in model.graph.ranks:
        position = positions[rank]
        of_rank = acts.rank == rank
        products = _in_order(model, grouped & model.facts.backward & of_rank)
        buckets = min(count, len(products))  # no product's gradients are in two
        others = _in_order(model, reduces & of_rank)
        optimizer = _in_order(model, updates & of_rank)
        for number, ready in enumerate(np.array_split(products, max(buckets, 1))):
            if not len(ready):
                continue
            done = int(ready[-1])
            earlier = others[acts.start[others] <= acts.end[done]][-1:].tolist()
            later = others[acts.start[others] > acts.end[done]][:1].tolist()
            joined = () if alone else (number, position.group, position.place % ranks)
            works.append(
                Work(
                    int(others[0]),
                    ns / buckets,
                    (done, *earlier),
                    (*later, *optimizer[acts.start[optimizer] > acts.end[done]][:1].tolist()),
                    collective="all_reduce",
                    in_bytes=round(size / buckets),
                    out_bytes=round(size / buckets),
                    group_size=world // ranks,
                    per_node=data_network(model).replicas_in_node(world, ranks),
                    joined=joined,
                )
            )
    return works


def _in_order(model: StepModel, chosen: Mask) -> Ints:
    rows = np.flatnonzero(chosen)
    return rows[order_by(model.graph.activities.start[rows])]


def _reduce_ns(model: StepModel, size: float, world: int, spread: int) -> float:
    """Return the time to reduce so many bytes by those that hold the same experts."""
    copies = world // spread
    if copies < 2:
        return 0.0
    net = data_network(model)
    pace = net.pace(copies, net.replicas_in_node(world, spread))
    return 2 * (copies - 1) / copies * size * pace
