"""Recurrent networks: every weight meets every token once, 2 operations; biases are added.

Backward both gradients cost as much as the forward. What the cells do element by element is small
beside that and is not counted.
"""

from functools import partial

from htk.physics.op_costs.call import Cost, Model, OperatorCall, label_type


def _cost_network(call: OperatorCall, hidden: int, both: int, backward: bool = False) -> Cost:
    """input, list of weights and biases, …; places of the first hidden state and of the flag that
    tells both directions."""
    into = call.tensor(0)
    weights = call.listed(1)
    tokens = into.count // max(into.shape[-1], 1)
    size = call.tensor(hidden).shape[-1] * (2 if call.value(both) is True else 1)
    products = sum(w.count for w in weights if len(w.shape) == 2)
    flops = 2 * tokens * products + tokens * sum(w.count for w in weights if len(w.shape) == 1)
    held = sum(w.count for w in weights) * into.element
    moved = into.bytes + held + tokens * size * into.element
    times = 2 if backward else 1
    return Cost(times * flops, times * moved, "recurrent", label_type(into.type), matrix=True)


def _fused_cell(call: OperatorCall) -> Cost:
    """Gates of the input and of the hidden state, the old state, biases: a new state comes out."""
    gates = call.tensor(0)
    state = call.tensor(2)
    moved = sum(t.bytes for t in call.tensors) + 2 * state.bytes + gates.bytes
    return Cost(6 * gates.count, moved, "recurrent", label_type(gates.type))


def _selective_scan(call: OperatorCall) -> Cost:
    """u [b, d, l], steps, A [d, n], B, C, …: nine operations for each element and state."""
    u = call.tensor(0)
    states = call.tensor(2).shape[-1]
    moved = sum(t.bytes for t in call.tensors) + u.bytes
    assumed = "nine operations for each element and state"
    return Cost(9 * u.count * states, moved, "recurrent", label_type(u.type), assumed=assumed)


def _causal_convolution(call: OperatorCall) -> Cost:
    """x [b, d, l], weight [d, width], …: each channel by itself."""
    x = call.tensor(0)
    weight = call.tensor(1)
    moved = 2 * x.bytes + weight.bytes
    return Cost(2 * x.count * weight.shape[-1], moved, "convolution", label_type(x.type))


MODELS: dict[str, Model] = {
    "mamba_ssm::selective_scan_fwd": _selective_scan,
    "causal_conv1d::causal_conv1d_fwd": _causal_convolution,
    "DaoAILab::_causal_conv1d_fwd_cpp": _causal_convolution,
    "aten::_cudnn_rnn": partial(_cost_network, hidden=4, both=13),
    "aten::_cudnn_rnn_backward": partial(_cost_network, hidden=4, both=16, backward=True),
    "aten::miopen_rnn": partial(_cost_network, hidden=3, both=10),
    "aten::miopen_rnn_backward": partial(_cost_network, hidden=4, both=13, backward=True),
    "aten::_thnn_fused_lstm_cell": _fused_cell,
    "aten::_thnn_fused_gru_cell": _fused_cell,
}
