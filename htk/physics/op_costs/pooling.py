"""Pooling and resampling: an operation for each element that a window meets."""

import math
from functools import partial

from htk.physics.op_costs.call import Cost, Model, OperatorCall, Shape, label_type


def _cost_pool(call: OperatorCall, axes: int, indices: bool) -> Cost:
    """input, kernel, stride, padding, …"""
    into = call.tensor(0)
    kernel = call.numbers(1, axes, 1)
    stride = call.numbers(2, axes, 0)
    padding = call.numbers(3, axes, 0)
    dilation = call.numbers(4, axes, 1) if indices else (1,) * axes
    out = tuple(
        (n + 2 * p - d * (k - 1) - 1) // (s or k) + 1
        for n, k, s, p, d in zip(into.shape[-axes:], kernel, stride, padding, dilation, strict=True)
    )
    count = math.prod(into.shape[:-axes]) * math.prod(out)
    moved = into.bytes + count * (into.element + (8 if indices else 0))
    return Cost(count * math.prod(kernel), moved, "pooling", label_type(into.type))


def _cost_backward(call: OperatorCall) -> Cost:
    """Gradient and input come in, a gradient like the input goes out."""
    gradient = call.tensor(0)
    into = call.tensor(1)
    index = sum(t.bytes for t in call.tensors[2:])
    moved = gradient.bytes + into.bytes + index
    return Cost(max(gradient.count, into.count), moved, "pooling", label_type(into.type))


def _cost_resized(call: OperatorCall, axes: int, each: int) -> Cost:
    """To a size that is given: adaptive pooling, interpolation."""
    into = call.tensor(0)
    size: Shape = call.numbers(1, axes, 0)
    if not all(size):
        raise LookupError("the size is not recorded")
    out = math.prod(into.shape[:-axes]) * math.prod(size)
    moved = into.bytes + out * into.element
    return Cost(each * max(into.count, out), moved, "pooling", label_type(into.type))


def _cost_sampled(call: OperatorCall) -> Cost:
    """input [n, c, …], places [n, …, axes]: each result from its neighbours, linearly."""
    into = call.tensor(0)
    places = call.tensor(1)
    axes = places.shape[-1]
    out = into.shape[1] * (places.count // max(axes, 1))
    each = _EACH_SAMPLE[axes]
    moved = into.bytes + places.bytes + out * into.element
    return Cost(each * out, moved, "pooling", label_type(into.type))


_EACH_SAMPLE = {2: 7, 3: 15}  # as upsampling
_UPSAMPLE = {"nearest": 1, "linear": 3, "bilinear": 7, "trilinear": 15, "bicubic": 35}
_AXES = {"linear": (1,), "bilinear": (2,), "trilinear": (3,), "bicubic": (2,), "nearest": (1, 2, 3)}
MODELS: dict[str, Model] = {
    "aten::grid_sampler_2d": _cost_sampled,
    "aten::grid_sampler_3d": _cost_sampled,
    "aten::_upsample_bilinear2d_aa": partial(_cost_resized, axes=2, each=7),
    "aten::_upsample_bicubic2d_aa": partial(_cost_resized, axes=2, each=35),
    **{
        f"aten::max_pool{n}d_with_indices": partial(_cost_pool, axes=n, indices=True)
        for n in (1, 2, 3)
    },
    **{f"aten::avg_pool{n}d": partial(_cost_pool, axes=n, indices=False) for n in (1, 2, 3)},
    **{
        f"aten::{name}{n}d_backward": _cost_backward
        for name in ("max_pool", "avg_pool", "adaptive_avg_pool", "_adaptive_avg_pool")
        for n in (1, 2, 3)
    },
    **{f"aten::max_pool{n}d_with_indices_backward": _cost_backward for n in (2, 3)},
    **{
        f"aten::{name}{n}d": partial(_cost_resized, axes=n, each=1)
        for name in ("adaptive_avg_pool", "_adaptive_avg_pool", "adaptive_max_pool")
        for n in (1, 2, 3)
    },
    **{
        f"aten::upsample_{name}{n}d": partial(_cost_resized, axes=n, each=each)
        for name, each in _UPSAMPLE.items()
        for n in _AXES[name]
    },
}
