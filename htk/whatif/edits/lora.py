"""LoRA: the weights of a model are frozen, products of its layers get adapters, two thin matrices.

Products that make gradients of weights go; those of layers that repeat get an adapter each. Its
backward products take their place, its forward ones come behind the products of the layers, each
time that these run; each with passes over its result, and launches. Gradients of the adapters alone
are reduced and updated. What is in no layer (embedding, output) is frozen without an adapter.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.physics.hardware import Gpu
from htk.whatif.edit_arguments import positive_integer
from htk.whatif.fsdp_units import compute_lane, find_gradient_products
from htk.whatif.host_cost import delay_calls, operator_ns
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.number_format import element_bytes, gradient_bytes, number_format
from htk.whatif.operator_shapes import list_matrices
from htk.whatif.parallel import shrink_collectives
from htk.whatif.parallelism import (
    GRADIENTS,
    find_replicated,
    find_sharded,
    mark_replicating,
    scale_optimizer,
    shared_tokens,
)
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescale_transfers

NAME = "lora"
HELP = "LoRA of this rank on the products of layers, all else frozen: 16."

_TILE = 64  # the narrowest of matrix units
_MOST = 512  # of a rank
_SIGMA = 0.1  # of the products that go, which is certain, and of the adapters that come
# thin products, and passes over the result
_FORWARD = (2, 5)
_BACKWARD = (4, 2)
_LAUNCHES = 4  # of an adapter each way; backward beside the one whose place it takes


def apply(model: StepModel, value: str) -> StepModel:
    rank = positive_integer(value, NAME)
    if rank > _MOST:
        raise UsageError(f"{NAME} {value!r}: ranks of adapters up to {_MOST} are answered")
    tokens = read_inputs(model).tokens
    gpu = model.device
    lanes = [compute_lane(model, each) for each in model.graph.ranks]
    of_weights = find_gradient_products(model, lanes)
    if not tokens or gpu is None or not all(of_weights):
        raise UsageError(
            f"{NAME}: no product is seen that makes the gradient of a weight (record_shapes=True "
            "would tell): the model has no linear layers, or they are frozen already"
        )
    adapter = _Adapter(
        rank,
        tokens,
        _find_rate(gpu, number_format(model)),
        element_bytes(model) / gpu.achievable_memory_gbps,
        float(model.lengths()[model.is_compute & (model.lengths() > 0)].min()),
    )
    many = max(micro_batches(model), 1)
    length = model.lengths().astype(np.float64)
    adapters: list[int] = []
    adapted = 0
    forward_ns = 0.0
    for lane, kernels in zip(lanes, of_weights, strict=True):
        shapes = Counter(_find_weight(model, kernel) for kernel, _ in kernels)
        in_layers = {weight for weight, count in shapes.items() if count > many}
        runs = _forward_runs(model, lane, in_layers)
        adapted = 0
        for kernel, _ in kernels:
            weight = _find_weight(model, kernel)
            length[kernel] = 0.0
            if weight not in in_layers:
                continue
            adapted += rank * sum(weight)
            length[kernel] = adapter.ns(weight, _BACKWARD)
            adapters.append(kernel)
            if not runs[weight]:  # its forward products are not seen: they come here as well
                length[kernel] += adapter.ns(weight, _FORWARD)
                adapters.append(kernel)
            forward_ns += adapter.ns(weight, _FORWARD) / len(of_weights)
        for weight, forward in runs.items():
            length[forward] += adapter.ns(weight, _FORWARD)
            adapters += forward
    layout = find_sharded(model) or find_replicated(model)
    every = float(sum(n for _, n in of_weights[0])) / many
    if layout:
        every = layout.reduced_bytes / gradient_bytes(model)
    share = min(adapted / many / max(every, 1.0), 1.0)
    launching = model.graph.activities.call[adapters]
    held = delay_calls(model, launching, _LAUNCHES * operator_ns(model))
    changed = length != model.lengths()
    thin = scale_optimizer(held.with_lengths(changed, length), share)
    reduces = mark_replicating(model) | (
        model.is_collective("reduce_scatter") & ~shared_tokens(model)
    )
    thin = thin.with_lengths(reduces, rescale_transfers(thin, reduces, share))
    smallest = int(thin.facts.in_bytes[reduces].min(initial=GRADIENTS))
    less = min(1 / share, max(smallest / GRADIENTS, 1.0))  # seen as gradients by further edits
    thin = replace(thin, facts=shrink_collectives(thin.facts, reduces, less), work=math.nan)
    return (
        thin.with_uncertainty("compute", _SIGMA)
        .with_uncertainty("structure", 0.02)
        .with_assumption(
            f"adapters of rank {rank}, {100 * share:.2g} % of the parameters, on every product of "
            f"layers; their forward passes take {forward_ns / 1e6:.2f} ms of a step"
        )
    )


def _find_weight(model: StepModel, kernel: int) -> tuple[int, int]:
    """Return the rows and columns of the weight whose gradient a product makes."""
    (rows, _), (_, columns) = list_matrices(model.facts.dims[kernel])[:2]
    return rows, columns


def _forward_runs(
    model: StepModel, lane: Ints, weights: set[tuple[int, int]]
) -> dict[tuple[int, int], list[int]]:
    """Return the products of a stream that multiply with each of these weights, forward or done
    again for the backward pass."""
    facts = model.facts
    running = lane[(facts.family.isin("gemm") & (facts.recomputed | ~facts.backward))[lane]]
    runs: dict[tuple[int, int], list[int]] = {weight: [] for weight in weights}
    for kernel in running.tolist():
        shapes = list_matrices(facts.dims[kernel])
        if len(shapes) < 2:
            continue
        into, out = shapes[1]
        if (out, into) in runs:
            runs[out, into].append(kernel)
    return runs


def _find_rate(gpu: Gpu, multiplied: str | None) -> float:
    """Return the operations that products reach in a ns, in their format."""
    if multiplied in ("tf32", "fp32"):
        return 1e3 * (gpu.achievable_tflops("tf32") or gpu.achievable_half_tflops)
    return 1e3 * gpu.achievable_half_tflops


@dataclass(frozen=True)
class _Adapter:
    """Adapters of a rank on a GPU, whose kernels take as long as these figures say."""

    rank: int
    tokens: int
    rate: float  # operations of a ns
    moved_ns: float  # for an element that is read or written
    least: float  # ns of a kernel

    def ns(self, weight: tuple[int, int], way: tuple[int, int]) -> float:
        """Return the time of its products one way, which are as wide as its rank, and of passes
        over its result."""
        products, passes = way
        wide = self.tokens * sum(weight) / 2
        each = max(2 * wide * max(self.rank, _TILE) / self.rate, self.moved_ns * wide)
        over = passes * self.moved_ns * self.tokens * weight[0]
        return products * (each + self.least) + over + 2 * self.least
