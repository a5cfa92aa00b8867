"""Convolutions: 2 operations for each weight that meets an element, and one for the bias.

Forward every output meets Cin/groups · kernel weights; transposed every input meets
Cout/groups · kernel weights (the weight is [Cin, Cout/groups, …]). Backward each of the gradients
that was asked for costs as much as the forward.
"""

import math
from dataclasses import dataclass
from functools import partial

from htk.physics.op_costs.call import (
    Cost,
    Model,
    OperatorCall,
    Shape,
    Tensor,
    Unrecorded,
    label_type,
)


@dataclass(frozen=True)
class Where:
    """Places of the arguments."""

    stride: int
    padding: int
    dilation: int
    groups: int
    bias: int | None = None
    transposed: int | bool = False  # place of the flag, or always
    output_padding: int | None = None


def _cost_forward(call: OperatorCall, where: Where) -> Cost:
    into = call.tensor(0)
    weight = call.tensor(1)
    length = len(weight.shape) - 2
    transposed = where.transposed
    if transposed is not True and transposed is not False:
        transposed = bool(call.value(transposed, False))
    batch = into.shape[0] if len(into.shape) == length + 2 else 1
    channels = weight.shape[1] * int(call.value(where.groups, 1)) if transposed else weight.shape[0]
    if call.values:
        out = (_transposed_size if transposed else _compute_output_size)(
            call, where, into, weight, length
        )
    else:
        result = _gradient_of_result(call, into).shape
        out = result[-length:]
        channels = result[-length - 1]
    results = batch * channels * math.prod(out)
    flops = 2 * (into.count if transposed else results) * math.prod(weight.shape[1:])
    bias = call.maybe(where.bias) if where.bias is not None else None
    if bias is not None and bias.shape != (channels,):
        bias = None
    moved = into.bytes + weight.bytes + results * into.element
    if bias is not None:
        flops = flops + results
        moved = moved + bias.bytes
    inner = into.shape[-length - 1]
    dims = (("batch", batch), ("channels_in", inner), ("channels_out", channels))
    return Cost(flops, moved, "convolution", label_type(into.type), matrix=True, dims=dims)


def _gradient_of_result(call: OperatorCall, into: Tensor) -> Tensor:
    """Return the gradient that autograd's node was given, which is as large as the result."""
    alike = [t for t in call.tensors[2:] if len(t.shape) == len(into.shape)]
    if not alike or alike[-1].shape[0] != into.shape[0]:
        raise Unrecorded("stride and padding not recorded")
    return alike[-1]


def _compute_output_size(
    call: OperatorCall, where: Where, into: Tensor, weight: Tensor, length: int
) -> Shape:
    stride = call.numbers(where.stride, length, 1)
    dilation = call.numbers(where.dilation, length, 1)
    sizes = zip(into.shape[-length:], weight.shape[2:], stride, dilation, strict=True)
    if call.value(where.padding) == "same":
        return into.shape[-length:]
    padding = call.numbers(where.padding, length, 0)
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for (n, k, s, d), p in zip(sizes, padding, strict=True)
    )


def _transposed_size(
    call: OperatorCall, where: Where, into: Tensor, weight: Tensor, length: int
) -> Shape:
    stride = call.numbers(where.stride, length, 1)
    padding = call.numbers(where.padding, length, 0)
    dilation = call.numbers(where.dilation, length, 1)
    added = (0,) * length
    if where.output_padding is not None:
        added = call.numbers(where.output_padding, length, 0)
    sizes = zip(
        into.shape[-length:], weight.shape[2:], stride, padding, dilation, added, strict=True
    )
    return tuple((n - 1) * s - 2 * p + d * (k - 1) + a + 1 for n, k, s, p, d, a in sizes)


def _cost_backward(call: OperatorCall) -> Cost:
    gradient = call.tensor(0)
    into = call.tensor(1)
    weight = call.tensor(2)
    transposed = bool(call.value(7, False))
    asked = call.value(10, [True, True, False])
    met = into.count if transposed else gradient.count
    once = 2 * met * math.prod(weight.shape[1:])
    moved = 0
    if asked[0]:  # of the input: reads gradient and weight
        moved += gradient.bytes + weight.bytes + into.bytes
    if asked[1]:  # of the weight: reads gradient and input
        moved += gradient.bytes + into.bytes + weight.bytes
    flops = once * (bool(asked[0]) + bool(asked[1]))
    if len(asked) > 2 and asked[2]:
        flops += gradient.count
    return Cost(flops, moved, "convolution", label_type(into.type), matrix=True)


def _cudnn_backward(call: OperatorCall) -> Cost:
    """input, gradient, weight, …: both gradients, by parts that are operators of their own."""
    into = call.tensor(0)
    gradient = call.tensor(1)
    weight = call.tensor(2)
    mask = call.value(10)
    asked = mask if isinstance(mask, list) and len(mask) >= 2 else [True, True]
    each = 2 * gradient.count * math.prod(weight.shape[1:])
    parts = bool(asked[0]) + bool(asked[1])
    moved = parts * (into.bytes + gradient.bytes + weight.bytes)
    assumed = None if isinstance(mask, list) else "gradients of input and weight"
    return Cost(parts * each, moved, "convolution", label_type(into.type), True, assumed=assumed)


def _one_gradient(call: OperatorCall, of_weight: bool, transposed: bool = False) -> Cost:
    """Size of what comes out, gradient, and the input or the weight, whichever goes in."""
    size = call.value(0)
    gradient = call.tensor(1)
    other = call.tensor(2)
    if not isinstance(size, list) or not all(isinstance(n, int) for n in size):
        raise LookupError("the size of the gradient is not recorded")
    out = math.prod(size)
    weight = size if of_weight else list(other.shape)
    met = other.count if transposed else gradient.count
    moved = gradient.bytes + other.bytes + out * other.element
    flops = 2 * met * math.prod(weight[1:])
    return Cost(flops, moved, "convolution", label_type(other.type), matrix=True)


def _build_conv_model(where: Where) -> Model:
    return partial(_cost_forward, where=where)


_PLAIN = Where(3, 4, 5, 6, bias=2)
_GENERAL = Where(3, 4, 5, 8, bias=2, transposed=6, output_padding=7)
_CUDNN = Where(3, 2, 4, 5)
_MIOPEN = Where(4, 3, 5, 6, bias=2)
_UPWARD = Where(3, 4, 7, 6, bias=2, transposed=True, output_padding=5)

MODELS: dict[str, Model] = {
    **dict.fromkeys((f"aten::conv{n}d" for n in (1, 2, 3)), _build_conv_model(_PLAIN)),
    **dict.fromkeys((f"aten::conv_transpose{n}d" for n in (1, 2, 3)), _build_conv_model(_UPWARD)),
    "aten::convolution": _build_conv_model(_GENERAL),
    "aten::_convolution": _build_conv_model(_GENERAL),
    "aten::convolution_overrideable": _build_conv_model(_GENERAL),
    "aten::cudnn_convolution": _build_conv_model(_CUDNN),
    "aten::cudnn_convolution_relu": _build_conv_model(_PLAIN),
    "aten::miopen_convolution": _build_conv_model(_MIOPEN),
    "aten::miopen_depthwise_convolution": _build_conv_model(_MIOPEN),
    "aten::cudnn_convolution_transpose": _build_conv_model(
        Where(4, 2, 5, 6, transposed=True, output_padding=3)
    ),
    "aten::miopen_convolution_transpose": _build_conv_model(
        Where(5, 3, 6, 7, bias=2, transposed=True, output_padding=4)
    ),
    "aten::_conv_depthwise2d": _build_conv_model(Where(4, 5, 6, 99, bias=3)),
    "aten::_slow_conv2d_forward": _build_conv_model(Where(4, 5, 99, 99, bias=3)),
    "aten::thnn_conv2d": _build_conv_model(Where(4, 5, 99, 99, bias=3)),
    "aten::convolution_backward": _cost_backward,
    "aten::cudnn_convolution_backward": _cudnn_backward,
    "aten::miopen_convolution_backward": _cudnn_backward,
    **{
        f"aten::{library}_convolution_backward_{part}": partial(
            _one_gradient, of_weight=part == "weight"
        )
        for library in ("cudnn", "miopen")
        for part in ("input", "weight")
    },
    "aten::cudnn_convolution_transpose_backward_weight": partial(
        _one_gradient, of_weight=True, transposed=True
    ),
    "aten::cudnn_convolution_transpose_backward_input": _build_conv_model(_CUDNN),
}

# The forward call of each node of autograd: the node's gradient has the size of the call's result.
FORWARD = {
    f"{node}{number}": name
    for node, name in (
        ("ConvolutionBackward", "aten::convolution"),
        ("CudnnConvolutionBackward", "aten::cudnn_convolution"),
        ("CudnnConvolutionTransposeBackward", "aten::cudnn_convolution_transpose"),
        ("MiopenConvolutionBackward", "aten::miopen_convolution"),
        ("ThnnConv2DBackward", "aten::thnn_conv2d"),
        ("SlowConv2DBackward", "aten::_slow_conv2d_forward"),
    )
    for number in ("", "0")
}
FORWARDS = frozenset(n for n, model in MODELS.items() if getattr(model, "func", 0) is _cost_forward)
