"""Convolutions: both gradients, also of transposed ones."""

import math

import pytest

from tests.htk.physics.op_costs.operator_costs import FLOAT, asked, of

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


# The arguments behind input and weight, as PyTorch's native_functions.yaml has them.
SCHEMAS = {
    "conv2d": "bias stride padding dilation groups",
    "conv_transpose2d": "bias stride padding output_padding groups dilation",
    "convolution": "bias stride padding dilation transposed output_padding groups",
    "_convolution": "bias stride padding dilation transposed output_padding groups benchmark",
    "convolution_overrideable": "bias stride padding dilation transposed output_padding groups",
    "cudnn_convolution": "padding stride dilation groups benchmark",
    "cudnn_convolution_relu": "bias stride padding dilation groups",
    "miopen_convolution": "bias padding stride dilation groups benchmark",
    "miopen_depthwise_convolution": "bias padding stride dilation groups benchmark",
    "cudnn_convolution_transpose": "padding output_padding stride dilation groups benchmark",
    "miopen_convolution_transpose": "bias padding output_padding stride dilation groups benchmark",
    "_conv_depthwise2d": "kernel_size bias stride padding dilation",
    "_slow_conv2d_forward": "kernel_size bias stride padding",
    "thnn_conv2d": "kernel_size bias stride padding",
}


def _windows(n: int, k: int, stride: int, padding: int, dilation: int) -> int:
    """Count the places of a window within a padded length, one by one."""
    reach = dilation * (k - 1) + 1
    return sum(1 for first in range(-padding, n + padding - reach + 1, stride))


WAYS = [
    (name, upward)
    for name, arguments in SCHEMAS.items()
    for upward in ((False, True) if "transposed" in arguments else ("transpose" in name,))
]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("name", "upward"), WAYS)
def test_every_argument_is_read_where_its_schema_has_it(
    name: str, upward: bool, biased: bool
) -> None:
    """Unlike numbers everywhere: 2 images of 6 channels, 13 by 18, in 3 groups, kernels 3 by 2."""
    arguments = SCHEMAS[name].split()
    groups = 3 if "groups" in arguments else 1
    chosen = {"stride": [2, 3], "padding": [1, 4], "dilation": [3, 2], "output_padding": [1, 2],
              "groups": groups, "transposed": upward, "benchmark": True,
              "kernel_size": [3, 2]}  # fmt: skip
    dilation = chosen["dilation"] if "dilation" in arguments else [1, 1]
    weight = [6, 5, 3, 2] if upward else [9, 6 // groups, 3, 2]
    channels = 5 * groups if upward else 9
    dims: list = [[2, 6, 13, 18], weight]
    values = ["", ""]
    for argument in arguments:
        dims.append([channels] if argument == "bias" and biased else [])
        values.append("" if argument == "bias" else str(chosen[argument]))
    work = of(f"aten::{name}", dims, types=FLOAT, values=values)
    if upward:
        out = [
            (n - 1) * s + d * (k - 1) + 1 - 2 * p + a
            for n, s, d, k, p, a in zip(
                (13, 18), (2, 3), dilation, (3, 2), (1, 4), (1, 2), strict=True
            )
        ]
    else:
        out = [
            _windows(n, k, s, p, d)
            for n, k, s, p, d in zip((13, 18), (3, 2), (2, 3), (1, 4), dilation, strict=True)
        ]
    results = 2 * channels * math.prod(out)
    meet = 2 * 6 * 13 * 18 * 5 if upward else results * (6 // groups)
    has_bias = biased and "bias" in arguments
    assert work.flops == 2 * meet * 3 * 2 + results * has_bias
    moved = 2 * 6 * 13 * 18 + math.prod(weight) + results + channels * has_bias
    assert work.bytes == 4 * moved
    assert dict(work.dims) == {"batch": 2, "channels_in": 6, "channels_out": channels}


def test_values_that_a_convolution_leaves_out_are_the_usual_ones() -> None:
    """Strides and dilations of 1, no padding; "same" keeps the size; one image without a batch."""
    weight, left_out = [9, 6, 3, 2], [""] * 7
    bare = of("aten::conv2d", [[2, 6, 13, 18], weight], types=FLOAT, values=left_out)
    assert bare.flops == 2 * (2 * 9 * 11 * 17) * 36
    same = of("aten::conv2d", [[2, 6, 13, 18], weight, [], [], [], [], []], types=FLOAT,
              values=["", "", "", "[1, 1]", "same", "[1, 1]", "1"])  # fmt: skip
    assert same.flops == 2 * (2 * 9 * 13 * 18) * 36
    single = of("aten::conv2d", [[6, 13, 18], weight], types=FLOAT, values=left_out)
    assert single.flops == 2 * (9 * 11 * 17) * 36
    assert dict(single.dims) == {"batch": 1, "channels_in": 6, "channels_out": 9}
    upward = of(
        "aten::conv_transpose2d", [[2, 6, 13, 18], [6, 5, 3, 2]], types=FLOAT, values=left_out
    )
    assert upward.bytes == 4 * (2 * 6 * 13 * 18 + 6 * 5 * 6 + 2 * 5 * 15 * 19)


def test_without_any_value_only_the_gradient_tells_the_result() -> None:
    dims = [[2, 6, 13, 18], [9, 6, 3, 2], []]
    assert asked("aten::conv2d", dims, [FLOAT, FLOAT, ""]) == "stride and padding not recorded"
    told = of("aten::conv2d", [*dims, [2, 9, 7, 8]], types=FLOAT)
    assert told.flops == 2 * (2 * 9 * 7 * 8) * 36


@pytest.mark.parametrize("wanted", [[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
@pytest.mark.parametrize("upward", [False, True])
def test_the_gradients_that_are_asked_for(wanted: list[int], upward: bool) -> None:
    """Of a transposed one each element of the input meets the weights, else of the gradient."""
    big, small = [2, 6, 13, 18], [2, 9, 6, 8]
    weight = [9, 6, 3, 2]
    gradient, into = (big, small) if upward else (small, big)
    flags = str([bool(w) for w in wanted])
    values = ["", "", "", "[9]", "[2, 2]", "[0, 0]", "[1, 1]", str(upward), "[0, 0]", "1", flags]
    work = of("aten::convolution_backward", [gradient, into, weight, *[[]] * 8], types=FLOAT,
              values=values)  # fmt: skip
    once = 2 * math.prod(small) * 6 * 3 * 2
    assert work.flops == (wanted[0] + wanted[1]) * once + wanted[2] * math.prod(gradient)
    each = sum(math.prod(shape) for shape in (gradient, into, weight))
    assert work.bytes == 4 * (wanted[0] + wanted[1]) * each
