"""LoRA: the weights of a model are frozen, products of its layers get adapters, two thin matrices.

Products that make gradients of weights go; those of layers that repeat get an adapter each, whose
products, passes over its result and launches take their place. Gradients of the adapters alone are
reduced and updated. What is in no layer (embedding, output) is frozen without an adapter.
"""

import math
from collections import Counter
from dataclasses import replace

import numpy as np

from htk.base.errors import UsageError
from htk.physics.hardware import Gpu
from htk.whatif.edit_arguments import positive_integer
from htk.whatif.fsdp_units import compute_lane, gradients
from htk.whatif.host_cost import delayed, operator_ns
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.operator_shapes import matrices
from htk.whatif.parallel import smaller
from htk.whatif.parallelism import GRADIENTS, owned, replicated, replicating, sharded, shared_tokens
from htk.whatif.shapes import inputs
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescaled

NAME = "lora"
HELP = "LoRA of this rank on the products of layers, all else frozen: 16."

_BYTES = 2  # of an element, in half precision
_TILE = 64  # the narrowest of matrix units
_MOST = 512  # of a rank
_FORWARD, _BACKWARD = (2, 5), (4, 2)  # thin products, and passes over the result
_LAUNCHES = 8  # of an adapter, forward and backward, beside the one whose place it takes


def apply(model: StepModel, value: str) -> StepModel:
    rank = positive_integer(value, NAME)
    if rank > _MOST:
        raise UsageError(f"{NAME} {value!r}: ranks of adapters up to {_MOST} are answered")
    tokens, gpu = inputs(model).tokens, model.device
    lanes = [compute_lane(model, each) for each in model.graph.ranks]
    of_weights = gradients(model, lanes)
    if not tokens or gpu is None or not all(of_weights):
        raise UsageError(
            f"{NAME}: no product is seen that makes the gradient of a weight (record_shapes=True "
            "would tell): the model has no linear layers, or they are frozen already"
        )
    least = float(model.lengths()[model.is_compute & (model.lengths() > 0)].min())
    many = max(micro_batches(model), 1)
    length, changed = model.lengths().astype(np.float64), np.zeros(len(model.graph.start), bool)
    adapters: list[int] = []
    adapted, forward_ns = 0, 0.0
    for kernels in of_weights:
        shapes = Counter(_weight(model, kernel) for kernel, _ in kernels)
        adapted = 0
        for kernel, _ in kernels:
            out, into = _weight(model, kernel)
            changed[kernel] = True
            if shapes[out, into] <= many:  # in no layer
                length[kernel] = 0.0
                continue
            adapted += rank * (out + into)
            backward, forward = (
                _adapter_ns(gpu, tokens, rank, (out, into), least, way)
                for way in (_BACKWARD, _FORWARD)
            )
            length[kernel] = backward + forward
            forward_ns += forward / len(of_weights)
            adapters.append(kernel)
    layout = sharded(model) or replicated(model)
    every = layout.reduced_bytes / _BYTES if layout else sum(n for _, n in of_weights[0]) / many
    share = min(adapted / many / max(every, 1.0), 1.0)
    launching = model.graph.activities.call[adapters]
    held = delayed(model, launching, _LAUNCHES * operator_ns(model))
    thin = owned(held.with_lengths(changed, length), share)
    reduces = replicating(model) | (model.is_collective("reduce_scatter") & ~shared_tokens(model))
    thin = thin.with_lengths(reduces, rescaled(thin, reduces, share))
    smallest = int(thin.facts.in_bytes[reduces].min(initial=GRADIENTS))
    less = min(1 / share, max(smallest / GRADIENTS, 1.0))  # seen as gradients by further edits
    thin = replace(thin, facts=smaller(thin.facts, reduces, less), work=math.nan)
    return (
        thin.with_uncertainty("compute", 0.2)
        .with_uncertainty("structure", 0.02)
        .with_assumption(
            f"adapters of rank {rank}, {100 * share:.2g} % of the parameters, on every product of "
            f"layers; their forward passes take {forward_ns / 1e6:.2f} ms of a step"
        )
    )


def _weight(model: StepModel, kernel: int) -> tuple[int, int]:
    """Return the rows and columns of the weight whose gradient a product makes."""
    (rows, _), (_, columns) = matrices(model.facts.dims[kernel])[:2]
    return rows, columns


def _adapter_ns(
    gpu: Gpu, tokens: int, rank: int, weight: tuple[int, int], least: float, way: tuple[int, int]
) -> float:
    """Return the time of an adapter's products one way, which are as wide as its rank, and of
    passes over its result."""
    products, passes = way
    wide = sum(weight) / 2
    width = max(rank, _TILE)
    rate = gpu.achievable_half_tflops * 1e3
    each = max(
        2 * tokens * wide * width / rate, _BYTES * tokens * wide / gpu.achievable_memory_gbps
    )
    moved = passes * _BYTES * tokens * weight[0] / gpu.achievable_memory_gbps
    return products * (each + least) + moved + 2 * least
