"""Convolutions: both gradients, also of transposed ones."""

import math

import pytest

from tests.htk.models.op_costs.operator_costs import FLOAT, asked, of

GRADIENT, INPUT, WEIGHT = [2, 6, 4, 4], [2, 4, 8, 8], [6, 4, 3, 3]
ONCE = 2 * (2 * 6 * 16) * 36  # every element of the gradient meets 4·9 weights


@pytest.mark.parametrize(
    ("part", "size", "other"), [("input", INPUT, WEIGHT), ("weight", WEIGHT, INPUT)]
)
def test_each_gradient_of_a_convolution_on_its_own(part: str, size: list, other: list) -> None:
    dims = [[], GRADIENT, other, *[[]] * 7]
    values = [str(size), *[""] * 9]
    found = of(f"aten::cudnn_convolution_backward_{part}", dims, types=FLOAT, values=values)
    assert found.flops == ONCE
    assert found.bytes == 4 * sum(math.prod(s) for s in (GRADIENT, INPUT, WEIGHT))
    assert asked(f"aten::cudnn_convolution_backward_{part}", dims, ["", FLOAT, FLOAT]) == (
        "shapes incomplete"
    )


def test_both_gradients_where_the_parts_tell_too_little() -> None:
    dims = [INPUT, GRADIENT, WEIGHT, *[[]] * 8]
    both = of("aten::cudnn_convolution_backward", dims, types=FLOAT)
    assert (both.flops, bool(both.assumed)) == (2 * ONCE, True)
    values = [*[""] * 10, "[False, True]"]
    one = of("aten::cudnn_convolution_backward", dims, types=FLOAT, values=values)
    assert (one.flops, one.assumed) == (ONCE, None)


def test_gradients_of_a_transposed_convolution() -> None:
    """Weight [Cin 4, Cout 6, 3, 3]: every element of the input meets 6·9 weights."""
    into, weight, gradient = [2, 4, 4, 4], [4, 6, 3, 3], [2, 6, 9, 9]
    once = 2 * (2 * 4 * 16) * 54
    dims = [[], gradient, into]
    found = of(
        "aten::cudnn_convolution_transpose_backward_weight",
        dims,
        types=FLOAT,
        values=[str(weight), "", ""],
    )
    assert found.flops == once
    values = ["", "", "[0, 0]", "[2, 2]", "[1, 1]", "1"]
    back = of(
        "aten::cudnn_convolution_transpose_backward_input",
        [gradient, weight, [], [], [], []],
        types=FLOAT,
        values=values,
    )
    assert back.flops == once
