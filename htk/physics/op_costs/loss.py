"""Losses: operations for each element of the predictions."""

from functools import partial

from htk.physics.op_costs.call import Cost, Model, OperatorCall, label_type


def _cost_picked(call: OperatorCall) -> Cost:
    """Negative log likelihood: one prediction for each target."""
    scores = call.tensor(0)
    target = call.tensor(1)
    return Cost(
        target.count, target.count * scores.element + target.bytes, "loss", label_type(scores.type)
    )


def _picked_backward(call: OperatorCall) -> Cost:
    """Writes a gradient for every prediction."""
    scores = call.tensor(1)
    target = call.tensor(2)
    return Cost(target.count, scores.bytes + target.bytes, "loss", label_type(scores.type))


def _cost_reduced(call: OperatorCall, per_element: int) -> Cost:
    """Predictions and targets, to one number."""
    scores = call.tensor(0)
    moved = sum(t.bytes for t in call.tensors)
    return Cost(per_element * scores.count, moved, "loss", label_type(scores.type))


def _whole_backward(call: OperatorCall, per_element: int) -> Cost:
    scores = call.tensor(1)
    moved = sum(t.bytes for t in call.tensors) + scores.bytes
    return Cost(per_element * scores.count, moved, "loss", label_type(scores.type))


def _cross_entropy(call: OperatorCall) -> Cost:
    """Log-softmax and likelihood together."""
    scores = call.tensor(0)
    target = call.tensor(1)
    return Cost(5 * scores.count, 2 * scores.bytes + target.bytes, "loss", label_type(scores.type))


_WHOLE = {
    "mse_loss": 3,
    "l1_loss": 3,
    "smooth_l1_loss": 5,
    "huber_loss": 5,
    "binary_cross_entropy": 7,
    "binary_cross_entropy_with_logits": 9,
    "kl_div": 4,
}
MODELS: dict[str, Model] = {
    "aten::cross_entropy_loss": _cross_entropy,
    **{f"aten::nll_loss{n}": _cost_picked for n in ("", "_forward", "2d_forward", "_nd")},
    **{f"aten::nll_loss{n}": _picked_backward for n in ("_backward", "2d_backward")},
    **{f"aten::{n}": partial(_cost_reduced, per_element=k) for n, k in _WHOLE.items()},
    **{f"aten::{n}_backward": partial(_whole_backward, per_element=k) for n, k in _WHOLE.items()},
}
