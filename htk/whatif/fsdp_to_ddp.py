"""From FSDP to data parallelism without shards: gradients reduced in buckets.

Gathers and reductions of units go, with their copies, events and hooks. Gradients are ready with
the matrix products that make them, as shapes tell, and what is left of a unit with its last kernel;
DistributedDataParallel reduces a bucket as soon as the gradients in it are as large as its limit.
"""

from bisect import bisect_left, bisect_right
from itertools import pairwise
from operator import itemgetter

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask, take_or
from htk.whatif.data_groups import data_network, data_positions
from htk.whatif.fsdp_units import (
    all_waited_for,
    compute_lane,
    find_gradient_products,
    next_of,
    position_on,
)
from htk.whatif.host_cost import delay_calls, host_ns, launch_ns, remove_calls
from htk.whatif.parallelism import Sharded, mark_replicating, scale_optimizer
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work, insert_works

BUCKET_BYTES = 25 << 20  # DistributedDataParallel's bucket_cap_mb
_ELEMENT_BYTES = (2, 4)  # of a gradient
_OWN = 0.75  # of the root: an output that is more of it is the embedding, too


def to_replicas(model: StepModel, now: Sharded, copies: Mask) -> StepModel:
    gathers = model.is_collective("all_gather")
    reduces = model.is_collective("reduce_scatter")
    host = host_ns(model, reduces, hooks=True)
    net = data_network(model)
    positions = data_positions(model)
    fixed = net.group_latency(now.world)
    each = 2 * net.shared(now.world)
    works: list[Work] = []
    calls: list[int] = []
    acts, alone = model.graph.activities, len(model.graph.ranks) < 2
    lanes = [compute_lane(model, rank) for rank in model.graph.ranks]
    lag = launch_ns(model)
    products = find_gradient_products(model, lanes)
    for rank, lane, weights in zip(model.graph.ranks, lanes, products, strict=True):
        reductions = np.flatnonzero(reduces & (acts.rank == rank))
        reductions = reductions[order_by(acts.start[reductions])]
        ready_at = all_waited_for(model, reductions.tolist(), lane)
        units = _skip_copies(lane, copies, ready_at)
        kept = lane[~copies[lane]]
        last = -1
        many = len(reductions) // now.synchronisations
        buckets = _build_buckets(model, kept, reductions[-many:], units[-many - 1 :], weights)
        for number, (ready, size, rest) in enumerate(buckets):
            call = int(acts.call[next_of(kept, ready)])
            calls.append(call)
            after = (ready, last) if last >= 0 else (ready,)
            last = len(acts.start) + len(works)
            before = (rest,) if rest != ready else ()
            joined = () if alone else (number, positions[rank].group)
            works.append(
                Work(
                    int(reductions[-1]),
                    fixed + size * each,
                    after,
                    before,
                    collective="all_reduce",
                    in_bytes=size,
                    out_bytes=size,
                    group_size=now.world,
                    per_node=net.in_node(now.world),
                    joined=joined,
                    call=call,
                    lag=lag,
                )
            )
    bare = remove_calls(model, gathers | reduces | mark_replicating(model) | copies, hooks=False)
    bare = delay_calls(scale_optimizer(bare, now.ranks), np.array(calls, np.int64), host)
    accumulated = ", of the last micro-batch alone (no_sync)" if now.synchronisations > 1 else ""
    return insert_works(bare, works).with_assumption(
        f"gradients are reduced in buckets of {BUCKET_BYTES >> 20} MB, as soon as they are "
        f"ready{accumulated}"
    )


def _skip_copies(lane: Ints, copies: Mask, activities: list[int]) -> list[int]:
    """Return for each activity the last one up to it that is no copy."""
    last = np.maximum.accumulate(np.where(copies[lane], -1, np.arange(len(lane))))
    positions = [position_on(lane, a) if a >= 0 else 0 for a in activities]
    return [int(a) for a in take_or(lane, last[positions])]


def _build_buckets(
    model: StepModel, lane: Ints, reduces: Ints, units: list[int], weights: list[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """Return for each bucket the activity that makes it ready, its bytes, and the one waiting.

    `units`: the last activity of each that is reduced, and where there is an earlier micro-batch
    the one before these.
    """
    position = np.full(len(model.graph.activities.start) + 1, -1)  # a last one for -1
    position[lane] = np.arange(len(lane))
    placed = [(int(position[a]), n) for a, n in weights]
    begin = int(position[units[0]]) + 1 if len(units) > len(reduces) else 0
    # where units are ready on the stream, none before the one in front of it
    reached = position[units[-len(reduces) :]]
    ends = np.maximum.accumulate(np.where(reached < 0, begin, reached)).tolist()
    last = int(lane[ends[-1]])
    rest = next_of(lane, last)
    buckets, held = [], 0
    sizes = model.facts.in_bytes[reduces].tolist()
    for activity, size in _order_ready(lane, placed, (begin, *ends), sizes):
        held += size
        if held >= BUCKET_BYTES:
            buckets.append((activity, held, rest))
            held = 0
    return [*buckets, (last, held, rest)] if held else buckets


def _order_ready(
    lane: Ints, placed: list[tuple[int, int]], ends: tuple[int, ...], sizes: list[int]
) -> list[tuple[int, int]]:
    """Return bytes of gradients in the order they get ready, each with the activity that made them.

    `placed`: where gradients of weights are made, in order, and their elements. `ends`: where the
    pass begins, and each unit ends; `sizes`: their bytes. An output that shares its weights with
    the embedding is ready with that.
    """
    cuts = [
        bisect_left(placed, ends[0], key=itemgetter(0)),
        *(bisect_right(placed, end, key=itemgetter(0)) for end in ends[1:]),
    ]
    within = [placed[low:high] for low, high in pairwise(cuts)]
    element = _element_bytes(within, sizes)
    if len(within) > 1 and sizes[0] < element * sum(n for _, n in within[0]):
        head = max(within[0], key=lambda p: p[1])  # of the root, whose output comes first
        within[0].remove(head)
        if element * head[1] < _OWN * sizes[-1]:
            within[-1].append(head)
    gradients: list[tuple[int, int]] = []
    for end, size, weights in zip(ends[1:], sizes, within, strict=True):
        gradients += [(position, element * n) for position, n in weights]
        gradients.append((end, max(int(size) - element * sum(n for _, n in weights), 0)))
    gradients.sort(key=lambda ready: ready[0])
    return [(int(lane[position]), size) for position, size in gradients if size]


def _element_bytes(within: list[list[tuple[int, int]]], sizes: list[int]) -> int:
    """Return the bytes of an element of a gradient, as most units show."""
    seen = [s / sum(n for _, n in w) for w, s in zip(within, sizes, strict=True) if w]
    middle = float(np.median(seen)) if seen else 2.0
    return min(_ELEMENT_BYTES, key=lambda size: abs(size - middle))
