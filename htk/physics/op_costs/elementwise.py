"""Element by element: so many operations for each element of the result, every tensor moved once.

The operations of transcendental functions are counted as one, as hardware counters do not.
"""

import math
from functools import partial

from htk.physics.op_costs.call import (
    TYPES,
    Cost,
    Model,
    OperatorCall,
    Tensor,
    broadcast_shapes,
    dtype_of,
    label_type,
)

# Operations for each element of the result.
_FORWARD = {
    0: "clone contiguous detach positive real imag",
    1: "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos "
    "atan sinh cosh tanh erf erfc erfinv floor ceil round trunc sign sgn frac relu threshold clamp "
    "clamp_min clamp_max hardtanh add sub rsub mul div pow square maximum minimum fmax fmin "
    "remainder fmod atan2 floor_divide true_divide bitwise_and bitwise_or bitwise_xor bitwise_not "
    "logical_and logical_or logical_xor logical_not masked_fill where nan_to_num isnan isinf "
    "isfinite __and__ __or__ __xor__ __lshift__ __rshift__ bitwise_left_shift bitwise_right_shift "
    "conj_physical angle polar complex copysign nextafter xlogy heaviside logaddexp hypot "
    "digamma lgamma i0 sinc trig bernoulli normal uniform random exponential dropout",
    2: "addcmul addcdiv lerp native_dropout leaky_relu prelu _prelu_kernel elu celu selu "
    "_fused_dropout hardsigmoid softshrink hardshrink logit glu",
    4: "sigmoid silu softplus log_sigmoid log_sigmoid_forward hardswish mish",
    8: "gelu",
}
_COMPARISONS = "eq ne lt le gt ge isclose"
_BACKWARD = {
    1: "threshold_backward hardtanh_backward native_dropout_backward masked_scale _masked_scale",
    3: "sigmoid_backward tanh_backward leaky_relu_backward elu_backward hardsigmoid_backward",
    8: "silu_backward softplus_backward log_sigmoid_backward hardswish_backward mish_backward "
    "_prelu_kernel_backward glu_backward",
    16: "gelu_backward",
}


def cost_elementwise(call: OperatorCall, per_element: int = 1, result: str | None = None) -> Cost:
    """Inputs broadcast to the result; `result` is its type where the inputs do not say."""
    inputs = call.tensors
    if not inputs:
        raise LookupError(f"{call.name} has no tensors")
    count = math.prod(broadcast_shapes([t.shape for t in inputs]))
    kind = dtype_of(inputs)
    element = TYPES[result or kind][0]
    moved = sum(t.bytes for t in inputs) + count * element
    return Cost(per_element * count, moved, "elementwise", label_type(kind))


def cost_written(call: OperatorCall) -> Cost:
    """Written first argument, read from the others: out, input, scale, …"""
    count = max(t.count for t in call.tensors)
    moved = sum(t.bytes for t in call.tensors)
    return Cost(count, moved, "elementwise", label_type(dtype_of(call.tensors)))


def _cost_gated(call: OperatorCall) -> Cost:
    """out, input of twice its width: silu of one half times the other."""
    out = call.tensor(0)
    into = call.tensor(1)
    return Cost(5 * out.count, out.bytes + into.bytes, "elementwise", label_type(into.type))


def _cost_rotary(call: OperatorCall) -> Cost:
    """positions, query, key, …: both turned in place."""
    turned: list[Tensor] = [t for t in call.tensors[1:3] if len(t.shape) > 1]
    count = sum(t.count for t in turned)
    moved = call.tensor(0).bytes + 2 * sum(t.bytes for t in turned)
    return Cost(3 * count, moved, "elementwise", label_type(turned[0].type))


def _to_byte(call: OperatorCall) -> Cost:
    """Return each element to a byte, and a scale for each row."""
    into = call.tensor(0)
    rows = into.count // max(into.shape[-1], 1)
    return Cost(
        2 * into.count, into.bytes + into.count + 4 * rows, "elementwise", label_type(into.type)
    )


def _name_both_forms(names: str, model: Model) -> dict[str, Model]:
    """Out of place and in place."""
    return {f"aten::{n}{end}": model for n in names.split() for end in ("", "_")}


MODELS: dict[str, Model] = {
    "_C::static_scaled_fp8_quant": cost_written,
    "sgl_kernel::sgl_per_token_group_quant_fp8": cost_written,
    "sgl_kernel::sgl_per_token_quant_fp8": cost_written,
    "sgl_kernel::sgl_per_tensor_quant_fp8": cost_written,
    "fbgemm::quantize_fp8_per_row": _to_byte,
    "_C::dynamic_scaled_fp8_quant": cost_written,
    "_C::dynamic_per_token_scaled_fp8_quant": cost_written,
    "_C::silu_and_mul": _cost_gated,
    "_C::gelu_and_mul": _cost_gated,
    "sgl_kernel::silu_and_mul": _cost_gated,
    "_C::rotary_embedding": _cost_rotary,
    "sgl_kernel::rotary_embedding": _cost_rotary,
}
for _count, _names in (*_FORWARD.items(), *_BACKWARD.items()):
    MODELS |= _name_both_forms(_names, partial(cost_elementwise, per_element=_count))
MODELS |= _name_both_forms(_COMPARISONS, partial(cost_elementwise, result="bool"))
