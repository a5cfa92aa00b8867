"""Flash attention in place of products, a softmax and passes over the scores of all pairs.

The kernel does the products of the recorded attention at a part of the rate of matrix products, and
five products in place of four in its backward pass. Of masked scores half count.
"""

import math

import numpy as np

from htk.base.columns.types import Mask
from htk.base.errors import UsageError
from htk.whatif.host_cost import remove_launches
from htk.whatif.number_format import number_format
from htk.whatif.operator_shapes import Shape, operator_shapes
from htk.whatif.step_model import StepModel

NAME = "attention"
HELP = "Attention as one kernel that keeps no scores: flash."

_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::matmul")
_SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data")
_MASKS = ("aten::masked_fill", "aten::masked_fill_", "aten::where", "aten::tril", "aten::triu")
_RATE = 0.57  # of the fastest matrix product: FlashAttention 2 on A100, in the middle of its sizes
_BACKWARD = 2.5  # times the forward: five products in place of two
_HALF = ("bf16", "fp16", "fp8")  # products of layers in fp8 leave it in half precision


def apply(model: StepModel, value: str) -> StepModel:
    if value != "flash":
        raise UsageError(f"{NAME} {value!r}: it can only be flash")
    scores = score_shape(model)
    if scores is None and model.facts.family.isin("attention").any():
        raise UsageError(f"{NAME} flash: the recorded attention is one kernel already")
    gpu = model.device
    multiplied = number_format(model)
    if scores is None or gpu is None:
        raise UsageError(
            f"{NAME} flash: no softmax over the scores of all pairs is seen (record_shapes=True "
            "would tell), or the GPU is not in the catalogue"
        )
    if multiplied not in _HALF:
        raise UsageError(
            f"{NAME} flash: its kernels take bf16 or fp16, not {multiplied or 'an unknown type'}"
        )
    chosen = kernels_on_scores(model, scores)
    masked = bool((chosen & model.facts.op.isin(*_MASKS)).any())
    pairs = math.prod(scores) / (2 if masked else 1)
    forward = (
        4 * pairs * _find_head_width(model, scores) / (_RATE * gpu.achievable_half_tflops * 1e3)
    )
    ns = np.where(model.facts.backward, _BACKWARD * forward, forward)
    ones = chosen & model.facts.op.isin(*_SOFTMAX)
    words = f"{forward / 1e6:.2f} ms forward and {_BACKWARD:g} times as long backward"
    masks = "half of the scores are masked" if masked else "no mask is seen, so all scores count"
    return (
        remove_launches(model.with_lengths(ones, ns), chosen & ~ones)
        .with_uncertainty("compute", 0.2)
        .with_assumption(f"attention is one kernel, {words}; {masks}")
    )


def score_shape(model: StepModel) -> Shape | None:
    """Return the batch, heads, queries and keys of a softmax over all pairs; None: of none."""
    for op, dims in model.facts.op.pairs_with(model.facts.dims):
        shapes = operator_shapes(dims)
        if op == _SOFTMAX[0] and shapes and len(shapes[0]) == 4:
            return shapes[0]
    return None


def kernels_on_scores(model: StepModel, scores: Shape) -> Mask:
    """Return the kernels that read or write scores: products, and passes over them."""
    many = scores[0] * scores[1]
    pair = scores[2:]

    def is_score_pass(dims: str | None) -> bool:
        return any(shape[-2:] == pair and len(shape) > 2 for shape in operator_shapes(dims))

    def is_batched_product(dims: str | None) -> bool:
        shapes = [shape for shape in operator_shapes(dims) if len(shape) == 3][-2:]
        if len(shapes) < 2 or shapes[0][0] != many:
            return False
        return is_score_pass(dims) or (shapes[0][1], shapes[1][2]) == pair

    facts = model.facts
    products = facts.op.isin(*_PRODUCTS) & facts.dims.where(is_batched_product)
    others = ~facts.family.isin("gemm", "communication") & facts.dims.where(is_score_pass)
    return np.asarray((products | others) & model.is_compute)


def _find_head_width(model: StepModel, scores: Shape) -> int:
    """Return the width of a head, by a product whose result is scores."""
    for op, dims in model.facts.op.pairs_with(model.facts.dims):
        shapes = [shape for shape in operator_shapes(dims) if len(shape) == 3][-2:]
        is_product = op in _PRODUCTS and len(shapes) == 2
        if is_product and (shapes[0][1], shapes[1][2]) == scores[2:]:
            return shapes[0][2]
    raise UsageError(f"{NAME} flash: no product is seen that makes the scores of all pairs")
