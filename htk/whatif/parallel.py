"""Common parts of the parallelism edits: the model's sizes, and which work is split.

Formulas are those of Korthikanti et al. 2022 (tensor, sequence), Narayanan et al. 2021 (pipeline)
and of ring attention (Liu et al. 2023); with a recording of another layout they stay rough.
"""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.physics.network import LATENCY_NS
from htk.whatif.fsdp_units import Region, backward_layers, compute_lane, find_layers, position_on
from htk.whatif.group_kinds import described_as
from htk.whatif.host_cost import delay_calls, usual_ns
from htk.whatif.network_tiers import read_network
from htk.whatif.operator_shapes import operator_shapes
from htk.whatif.parallelism import (
    GRADIENTS,
    find_sharded,
    mark_replicating,
    scale_optimizer,
    shared_tokens,
)
from htk.whatif.products import find_products
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepFacts, StepModel
from htk.whatif.synthetic_ops import Work, insert_works
from htk.whatif.transfers import gpus_of_a_node, rescale_transfers

ELEMENT = 2  # bytes of an activation
_SHORTEST_NS = 2_500.0
_OF_ACTIVATIONS = ("all_to_all", "send", "recv", "send_recv")
_TENSOR = ("gemm", "attention", "convolution")


@dataclass(frozen=True)
class Sizes:
    tokens: float  # of a micro-batch on one rank
    hidden: int
    kv_share: float  # of the hidden width, in keys or values


def read_sizes(model: StepModel, name: str) -> Sizes:
    """Return the model's sizes from the shapes of attention, whose queries are tokens by hidden;
    ranks that share each layer have as many parts of it."""
    tokens = read_inputs(model).tokens
    votes: Counter[tuple[int, float]] = Counter()
    for family, dims in zip(model.facts.family, model.facts.dims, strict=True):
        if family != "attention" or not dims:
            continue
        shapes = [shape for shape in operator_shapes(dims) if len(shape) == 4]
        if tokens and len(shapes) > 1:  # whether heads or length come second
            query, key = (int(np.prod(s)) for s in shapes[:2])
            votes[query // tokens, key / query] += 1
    if tokens is None or not votes:
        raise UsageError(
            f"{name}: tokens and hidden width are not known; record shapes (record_shapes=True)"
        )
    hidden, share = votes.most_common(1)[0][0]
    return Sizes(tokens * model.activation_scale, hidden * tensor_degree(model), share)


def of_activations(model: StepModel) -> Mask:
    """Return the communication of activations: of tensor parallelism, experts, stages."""
    return tensor_reduces(model) | model.is_collective(*_OF_ACTIVATIONS)


def carries_activations(model: StepModel) -> Mask:
    """Return the communication of activations, with that of ranks which share tokens."""
    return of_activations(model) | shared_tokens(model)


def tensor_reduces(model: StepModel) -> Mask:
    """Return all-reduces of activations: of groups that are described so, and large ones of groups
    that also reduce in the forward pass."""
    reduces = model.is_collective("all_reduce")
    large = reduces & (model.facts.in_bytes >= GRADIENTS) & ~mark_replicating(model)
    return large | (reduces & described_as(model, "tensor"))


def tensor_degree(model: StepModel) -> int:
    summed = tensor_reduces(model) | shared_tokens(model)
    return int(model.facts.group_size[summed].max(initial=1))


def mark_pointwise(model: StepModel, of: Sizes) -> Mask:
    """Return the kernels on whole activations, tokens by hidden: norms, residuals. Others are
    split."""
    elements = round(of.tokens / model.activation_scale) * of.hidden
    by_size = model.facts.dims.where(lambda dims: dims and _count_elements(dims) == elements)
    family = model.facts.family
    return np.asarray((by_size | family.isin("norm")) & ~family.isin(*_TENSOR))


def _count_elements(dims: str) -> int:
    shapes = [shape for shape in operator_shapes(dims) if shape]
    return int(np.prod(shapes[0])) if shapes and isinstance(shapes[0][0], int) else 0


def split_work(model: StepModel, chosen: Mask, ways: float) -> StepModel:
    """Split the work of these over `ways` ranks; none gets shorter than a kernel can be.

    In proportion: for narrower matrices libraries take smaller tiles, so waves tell little.
    """
    length = model.lengths().astype(np.float64)
    floor = np.minimum(length, _SHORTEST_NS)
    return model.with_lengths(chosen, floor + (length - floor) / ways)


def inner_split(changed: StepModel, model: StepModel, of: Sizes, ways: float) -> StepModel:
    """Split the inner dimension of products whose result, tokens by hidden, is summed over ranks.

    The shorter it is, the further they stay from the GPU's rate (`products`). `model`: before any
    work is split.
    """
    seen = find_products(model, _SHORTEST_NS)
    result = (round(of.tokens / model.activation_scale), of.hidden)
    usual = [(p.m, p.n) == result for p in seen.usual]
    # of one rank's square products half are of queries, whose result is split
    square = [p.n == p.k and tensor_degree(model) == 1 for p in seen.usual]
    share = np.array([i * (1 - 0.5 * s) for i, s in zip(usual, square, strict=True)], np.float64)
    own = share[seen.alike] if len(share) else np.empty(0)
    even = seen.least + seen.ns / ways
    length = model.lengths().astype(np.float64)
    length[seen.activity] = even + own * (seen.longer(1 / ways) - even)
    chosen = np.zeros(len(length), bool)
    chosen[seen.activity[own > 0]] = True
    return changed.with_lengths(chosen, length)


def fewer_replicas(model: StepModel, ways: float) -> StepModel:
    """Divide a rank's parameters and the number of ranks that share them, both by `ways`.

    Of sharded parameters an optimizer has as many as before, of whole ones fewer.
    """
    layout = find_sharded(model)
    if layout is None:
        model = scale_optimizer(model, 1 / ways)
    chosen = mark_replicating(model)
    if layout is not None:
        chosen |= model.is_collective("all_gather", "reduce_scatter")
    world = layout.world if layout else int(model.facts.group_size[chosen].max(initial=1))
    if not chosen.any() or world < 2:
        return model
    ranks = max(round(world / ways), 1)
    node = gpus_of_a_node(model)
    here = int(np.median(model.facts.per_node[chosen])) or min(world, node)
    there = min(max(round(here / ways), 1), node, ranks)
    old = (world - 1) / world * read_network(model).pace(world, here)
    new = (ranks - 1) / ranks * read_network(model).pace(ranks, there) / ways
    moved = model.with_lengths(chosen, rescale_transfers(model, chosen, new / old))
    moved = moved.with_groups(chosen, ranks, there)
    return replace(moved, facts=shrink_collectives(moved.facts, chosen, ways))


def shrink_collectives(facts: StepFacts, chosen: Mask, ways: float) -> StepFacts:
    """Return the sizes of the chosen collectives, where known."""
    sizes = (facts.in_bytes, facts.out_bytes)
    into, out = (np.where(chosen & (s > 0), s / ways, s).astype(np.int64) for s in sizes)
    return replace(facts, in_bytes=into, out_bytes=out)


def predict_roughly(model: StepModel, words: str, compute: float = 0.15) -> StepModel:
    """Return the model with the uncertainty of formulas that stand for another layout.

    `compute`: one sigma of how much that changes.
    """
    rough = replace(model, low_confidence=True).with_assumption(words)
    return rough.with_uncertainty("compute", compute).with_uncertainty("communication", 0.3)


def activation_ns(model: StepModel, ranks: int, sent: float) -> float:
    """Return the time of a collective of neighbours in which a rank sends `sent` bytes, in ns."""
    return LATENCY_NS + sent * read_network(model).pace(ranks, min(ranks, gpus_of_a_node(model)))


def each_layer(
    model: StepModel, name: str, forward_ns: list[float], backward_ns: list[float], ranks: int
) -> StepModel:
    """Insert exposed collectives at even places of every layer, forward and backward."""
    works: list[Work] = []
    calls: list[int] = []
    alone = len(model.graph.ranks) < 2
    for rank in model.graph.ranks:
        number = 0
        lane = compute_lane(model, rank)
        forward = find_layers(model, lane)
        backward = backward_layers(model, lane, len(forward))
        if not forward or not backward:
            raise UsageError(f"{name}: the layers, told by attention kernels, are not seen")
        for regions, lengths in ((forward, forward_ns), (backward, backward_ns)):
            for region in regions:
                for k, ns in enumerate(lengths):
                    here = _find_place(lane, region, (k + 1) / (len(lengths) + 1))
                    calls.append(int(model.graph.activities.call[lane[here + 1]]))
                    joined = () if alone else (number, rank // ranks)
                    works.append(
                        Work(
                            int(lane[here]),
                            ns,
                            (int(lane[here]),),
                            (int(lane[here + 1]),),
                            collective="all_reduce",
                            group_size=ranks,
                            per_node=min(ranks, gpus_of_a_node(model)),
                            joined=joined,
                        )
                    )
                    number += 1
    host = usual_ns(model, model.is_comm) or usual_ns(model, model.is_compute)
    return insert_works(delay_calls(model, np.array(calls, np.int64), host), works)


def _find_place(lane: NDArray[np.int64], region: Region, share: float) -> int:
    low = position_on(lane, region.first)
    high = position_on(lane, region.last)
    return min(low + int((high - low) * share), len(lane) - 2)
