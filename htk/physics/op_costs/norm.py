"""Normalisations and softmax: a few operations for each element, read once and written once."""

from functools import partial

from htk.physics.op_costs.call import Cost, Model, OperatorCall, label_type

# Layer norm: mean 1, variance 2, normalise 2, scale and shift 2; the others alike.
_LAYER = 7
_RMS = 4
_SOFTMAX = 5
_LOG_SOFTMAX = 5


def _cost_forward(call: OperatorCall, per_element: int, family: str = "norm") -> Cost:
    into = call.tensor(0)
    others = sum(t.bytes for t in call.tensors[1:] if t.count < into.count)
    return Cost(per_element * into.count, 2 * into.bytes + others, family, label_type(into.type))


def _cost_backward(call: OperatorCall, per_element: int, family: str = "norm") -> Cost:
    """Reads the gradient and what was kept of the forward; writes the gradient of the input."""
    gradient = call.tensor(0)
    others = sum(t.bytes for t in call.tensors)
    return Cost(
        per_element * gradient.count, others + gradient.bytes, family, label_type(gradient.type)
    )


def _cost_softmax(call: OperatorCall, per_element: int) -> Cost:
    """Half may come out as float (third argument), or as another type."""
    into = call.tensor(0)
    wide = call.value(2) is True and into.element == 2
    moved = into.bytes + into.count * (4 if wide else into.element)
    return Cost(per_element * into.count, moved, "softmax", label_type(into.type))


def _add_rms(call: OperatorCall) -> Cost:
    """input and residual, both read and written, then the weight."""
    into = call.tensor(0)
    residual = call.tensor(1)
    weight = call.tensor(2)
    moved = 2 * (into.bytes + residual.bytes) + weight.bytes
    return Cost((_RMS + 1) * into.count, moved, "norm", label_type(into.type))


def _rms_out(call: OperatorCall) -> Cost:
    out = call.tensor(0)
    into = call.tensor(1)
    weight = call.tensor(2)
    moved = out.bytes + into.bytes + weight.bytes
    return Cost(_RMS * into.count, moved, "norm", label_type(into.type))


def _add_rms_out(call: OperatorCall) -> Cost:
    """result, input, residual, the new residual, weight: each once."""
    moved = sum(t.bytes for t in call.tensors)
    return Cost((_RMS + 1) * call.tensor(0).count, moved, "norm", label_type(call.tensor(0).type))


def _topk_softmax(call: OperatorCall) -> Cost:
    """Weights and numbers of the chosen experts, …, and the scores that they are chosen by."""
    scores = max(call.tensors, key=lambda t: t.count)
    moved = sum(t.bytes for t in call.tensors)
    return Cost(_SOFTMAX * scores.count, moved, "softmax", label_type(scores.type))


def _cost_group_norm(call: OperatorCall) -> Cost:
    return _cost_forward(call, _LAYER)


_BATCH = (
    "native_batch_norm cudnn_batch_norm miopen_batch_norm _native_batch_norm_legit "
    "_batch_norm_with_update _batch_norm_no_update batch_norm_elemt native_layer_norm "
    "native_group_norm instance_norm layer_norm group_norm batch_norm _batch_norm_impl_index"
)
_BATCH_BACKWARD = (
    "native_batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward "
    "batch_norm_backward native_layer_norm_backward native_group_norm_backward "
    "_fused_rms_norm_backward"
)
MODELS: dict[str, Model] = {
    **dict.fromkeys((f"aten::{n}" for n in _BATCH.split()), _cost_group_norm),
    **dict.fromkeys(
        (f"aten::{n}" for n in _BATCH_BACKWARD.split()), partial(_cost_backward, per_element=14)
    ),
    "aten::rms_norm": partial(_cost_forward, per_element=_RMS),
    "aten::_fused_rms_norm": partial(_cost_forward, per_element=_RMS),
    "_C::rms_norm": _rms_out,
    "_C::fused_add_rms_norm": _add_rms,
    "sgl_kernel::fused_add_rmsnorm": _add_rms,
    "sgl_kernel::rmsnorm": _rms_out,
    "aiter::rms_norm": partial(_cost_forward, per_element=_RMS),
    "aiter::rmsnorm": _rms_out,
    "aiter::_groupnorm_run": _cost_group_norm,
    "_moe_C::topk_softmax": _topk_softmax,
    "sgl_kernel::topk_softmax": _topk_softmax,
    "aiter::add_rmsnorm": _add_rms_out,
    "aiter::rmsnorm2d_fwd_with_add_ck": _add_rms_out,
    "aten::_softmax": partial(_cost_softmax, per_element=_SOFTMAX),
    "aten::softmax": partial(_cost_softmax, per_element=_SOFTMAX),
    "aten::_safe_softmax": partial(_cost_softmax, per_element=_SOFTMAX),
    "aten::_masked_softmax": partial(_cost_softmax, per_element=_SOFTMAX),
    "aten::_log_softmax": partial(_cost_softmax, per_element=_LOG_SOFTMAX),
    "aten::log_softmax": partial(_cost_softmax, per_element=_LOG_SOFTMAX),
    "aten::_softmax_backward_data": partial(_cost_backward, per_element=4, family="softmax"),
    "aten::_log_softmax_backward_data": partial(_cost_backward, per_element=4, family="softmax"),
}
