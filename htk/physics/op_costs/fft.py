"""Fast Fourier transforms: 5·N·log2(n) operations for N complex numbers, half that for real ones.

n is the product of the lengths of the transformed axes. Numbers go in and come out once.
"""

import math

from htk.physics.op_costs.call import Cost, Model, OperatorCall, Shape, Tensor, label_type


def _cost_transform(
    call: OperatorCall, elements: int, lengths: Shape, per_element: float, moved: int
) -> Cost:
    flops = round(per_element * elements * math.log2(max(math.prod(lengths), 1)))
    return Cost(flops, moved, "fft", label_type(call.tensor(0).type))


def _list_axes(call: OperatorCall, into: Tensor) -> list[int]:
    axes = call.value(1)
    if not isinstance(axes, list) or not axes:
        raise LookupError("the transformed axes are not recorded")
    return [int(a) % len(into.shape) for a in axes]


def _cost_complex(call: OperatorCall) -> Cost:
    into = call.tensor(0)
    lengths = tuple(into.shape[a] for a in _list_axes(call, into))
    return _cost_transform(call, into.count, lengths, 5, 2 * into.bytes)


def _from_real(call: OperatorCall) -> Cost:
    """Onesided (fourth argument): half of the last axis and one come out."""
    into = call.tensor(0)
    axes = _list_axes(call, into)
    last = into.shape[axes[-1]]
    kept = last // 2 + 1 if call.value(3, True) is True else last
    out = into.count // max(last, 1) * kept
    lengths = tuple(into.shape[a] for a in axes)
    return _cost_transform(call, into.count, lengths, 2.5, into.bytes + out * 2 * into.element)


def _to_real(call: OperatorCall) -> Cost:
    """The last axis comes out as long as the fourth argument says."""
    into = call.tensor(0)
    axes = _list_axes(call, into)
    last = int(call.value(3, 0))
    if last <= 0:
        raise LookupError("the length of the result is not recorded")
    out = into.count // max(into.shape[axes[-1]], 1) * last
    lengths = (*(into.shape[a] for a in axes[:-1]), last)
    return _cost_transform(call, out, lengths, 2.5, into.bytes + out * into.element // 2)


MODELS: dict[str, Model] = {
    "aten::_fft_c2c": _cost_complex,
    "aten::_fft_r2c": _from_real,
    "aten::_fft_c2r": _to_real,
}
