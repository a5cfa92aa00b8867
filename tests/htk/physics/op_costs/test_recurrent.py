"""Recurrent networks."""

from tests.htk.physics.op_costs.operator_costs import FLOAT, of


def test_recurrent_networks() -> None:
    """One LSTM layer, both ways, 5 steps of 3 sequences: 4 gates of 7 from inputs of 6."""
    weights = [[28, 6], [28, 7], [28], [28]] * 2
    dims = [[5, 3, 6], weights, [], [], [2, 3, 7], [2, 3, 7], *[[]] * 10]
    types = [FLOAT, "TensorList", "", "", FLOAT, FLOAT, *[""] * 10]
    values = [*[""] * 13, "True", "", ""]
    found = of("aten::_cudnn_rnn", dims, types=types, values=values)
    held = 2 * (28 * 6 + 28 * 7 + 56)
    assert found.flops == 15 * 2 * (2 * (28 * 6 + 28 * 7) + 56)
    assert found.bytes == 4 * (5 * 3 * 6 + held + 15 * 14)
    backward = of("aten::_cudnn_rnn_backward", dims, types=types, values=[*[""] * 16, "True"])
    assert backward.flops == 2 * found.flops


def test_a_causal_convolution_of_each_channel_by_itself() -> None:
    """2 sequences, 6 channels, 10 steps; 4 products and sums for each; read and written once."""
    found = of("causal_conv1d::causal_conv1d_fwd", [[2, 6, 10], [6, 4]])
    assert (found.flops, found.bytes) == (2 * 120 * 4, 2 * (2 * 120 + 24))
