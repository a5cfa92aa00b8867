"""What a step works on, as the shapes of its first operators tell."""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from htk.whatif.operator_shapes import Shape, list_matrices, operator_shapes
from htk.whatif.step_model import StepModel

_COPIES = ("aten::copy_", "aten::_to_copy", "aten::clone")
_HEADS_LATER = re.compile(r"aten::_(flash|efficient)_attention")  # batch, length, heads, width


class Inputs(NamedTuple):
    batch: int | None
    tokens: int | None  # of one micro-batch on one rank


def read_inputs(model: StepModel) -> Inputs:
    """From embeddings (indices are batch by length), else from convolutions; of as many votes the
    first counts."""
    return model.once("inputs", lambda: _vote_on_inputs(model))


def _vote_on_inputs(model: StepModel) -> Inputs:
    votes: Counter[tuple[int, int | None]] = Counter()
    for op, dims in model.facts.op.pairs_with(model.facts.dims):
        if not dims:
            continue
        shapes = operator_shapes(dims)
        if op in ("aten::embedding", "aten::index_select") and len(shapes) > 1:
            for shape in shapes[1:]:
                if len(shape) == 2:
                    votes[shape[0], shape[0] * shape[1]] += 10
        attention = op is not None and "attention" in op and "backward" not in op
        if attention and shapes and len(shapes[0]) == 4:
            length = 1 if _HEADS_LATER.match(op or "") else 2
            votes[shapes[0][0], shapes[0][0] * shapes[0][length]] += 5
        convolution = op is not None and "conv" in op and "backward" not in op
        if convolution and shapes and len(shapes[0]) >= 4:
            votes[shapes[0][0], None] += 1
    if not votes:
        return Inputs(None, None)
    return Inputs(*votes.most_common(1)[0][0])


def sums_over_tokens(model: StepModel) -> NDArray[np.bool_]:
    """Matrix products whose inner dimension is tokens: they make gradients of weights."""
    tokens = read_inputs(model).tokens
    if tokens is None:
        return np.zeros(len(model.facts.dims), bool)
    return model.facts.dims.where(lambda dims: dims and _find_inner_size(dims) == tokens)


def copies_samples(model: StepModel) -> NDArray[np.bool_]:
    """Return the copies by the copy engines, of inputs or activations, whose shapes begin with the
    batch or the tokens of a micro-batch."""
    leading = {size for size in read_inputs(model) if size}

    def begins_with_samples(dims: str | None) -> bool:
        return any(shape and shape[0] in leading for shape in operator_shapes(dims))

    copies = model.facts.op.where(lambda op: op in _COPIES) & ~model.is_compute
    return np.asarray(copies & model.facts.dims.where(begins_with_samples))


def copies_weights(model: StepModel) -> NDArray[np.bool_]:
    """Return the copies of matrices shaped like the weights of products.

    Such are autocast's casts of parameters and of their gradients.
    """
    tokens = read_inputs(model).tokens
    if tokens is None:
        return np.zeros(len(model.facts.dims), bool)
    weights: set[Shape] = set()
    for dims in model.facts.dims.distinct:
        shapes = list_matrices(dims)
        if len(shapes) == 2 and shapes[0][0] == tokens and shapes[0][1] == shapes[1][0]:
            weights |= {shapes[1], shapes[1][::-1]}
    weights = {shape for shape in weights if tokens not in shape}

    def is_weight(dims: str | None) -> bool:
        shapes = [shape for shape in operator_shapes(dims) if shape]
        return bool(shapes) and weights.issuperset(shapes)

    copies = model.facts.op.where(lambda op: op in _COPIES)
    return np.asarray(copies & model.facts.dims.where(is_weight))


def _find_inner_size(dims: str) -> int | None:
    shapes = list_matrices(dims)
    return shapes[0][1] if shapes else None
