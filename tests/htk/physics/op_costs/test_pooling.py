"""Pooling and resampling by hand."""

import math

import pytest

from htk.physics.op_costs import compute_call_cost
from tests.htk.physics.op_costs.operator_costs import of


@pytest.mark.parametrize(
    ("name", "dims", "values", "flops", "moved"),
    [
        # 9 in 3s without a stride of its own: 3 long; a window of 3
        ("aten::avg_pool1d", [[2, 3, 9], [], []], ["", "[3]", "[]"], 18 * 3, 2 * (54 + 18)),
        # (8 + 2 - 3) // 2 + 1 = 4; (7 - 2) // 1 + 1 = 6
        ("aten::avg_pool2d", [[2, 3, 8, 7], [], [], []], ["", "[3, 2]", "[2, 1]", "[1, 0]"],
         2 * 3 * 24 * 6, 2 * (336 + 144)),
        # dilated by 2 a window of 3 spans 5: (9 - 5) // 1 + 1 = 5, with indices of 8 bytes
        ("aten::max_pool1d_with_indices", [[2, 9], [], [], [], []],
         ["", "[3]", "[1]", "[0]", "[2]"], 10 * 3, 2 * 18 + 10 * (2 + 8)),
        ("aten::adaptive_avg_pool2d", [[2, 3, 8, 8], []], ["", "[2, 5]"], 384, 2 * (384 + 60)),
        ("aten::upsample_bilinear2d", [[2, 3, 4, 4], []], ["", "[8, 9]"],
         7 * 432, 2 * (96 + 432)),
        ("aten::upsample_nearest1d", [[2, 3, 4], []], ["", "[3]"], 24, 2 * (24 + 18)),
        ("aten::grid_sampler_2d", [[2, 3, 8, 8], [2, 4, 5, 2]], [], 7 * 120, 2 * (384 + 80 + 120)),
        ("aten::grid_sampler_3d", [[2, 3, 4, 4, 4], [2, 2, 2, 5, 3]], [],
         15 * 120, 2 * (384 + 120 + 120)),
        # gradient, input and indices in, a gradient like the input out
        ("aten::max_pool2d_with_indices_backward", [[2, 10], [2, 40], [2, 10]], [],
         80, 2 * (20 + 80 + 20)),
    ],
)  # fmt: skip
def test_pooling(name: str, dims: list, values: list, flops: int, moved: int) -> None:
    found = of(name, dims, values=values)
    assert (found.flops, found.bytes, found.family) == (flops, moved, "pooling")


def test_a_size_that_is_not_recorded_is_no_size() -> None:
    name, dims, types = "aten::adaptive_avg_pool2d", "[[2, 3, 8, 8], []]", '["float", ""]'
    assert compute_call_cost(name, dims, types, "[]") == "shapes incomplete"


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max_pool", "avg_pool"])
@pytest.mark.parametrize("strided", [True, False])
def test_windows_of_pools_counted_one_by_one(kind: str, axes: int, strided: bool) -> None:
    """Unlike lengths, kernels, strides and paddings; an index of 8 bytes for each maximum."""
    lengths, kernel, stride = (13, 18, 11)[:axes], (3, 2, 4)[:axes], (2, 3, 1)[:axes]
    padding, dilation = (1, 0, 2)[:axes], (2, 3, 1)[:axes]
    indices = kind == "max_pool"
    if not indices:
        dilation = (1,) * axes
    out = 1
    for n, k, s, p, d in zip(lengths, kernel, stride, padding, dilation, strict=True):
        reach = d * (k - 1) + 1
        out *= len(range(-p, n + p - reach + 1, s if strided else k))
    values = ["", str(list(kernel)), str(list(stride)) if strided else "[]", str(list(padding))]
    values += [str(list(dilation))] if indices else ["True"]
    name = f"aten::{kind}{axes}d" + ("_with_indices" if indices else "")
    work = of(name, [[2, 5, *lengths], [], [], [], []], types="float", values=values)
    assert work.flops == 2 * 5 * out * math.prod(kernel)
    assert work.bytes == 4 * 2 * 5 * math.prod(lengths) + 2 * 5 * out * (12 if indices else 4)


@pytest.mark.parametrize(
    ("name", "size", "each"),
    [
        ("adaptive_avg_pool2d", (3, 7), 1), ("adaptive_max_pool3d", (2, 3, 4), 1),
        ("upsample_nearest1d", (40,), 1), ("upsample_linear1d", (40,), 3),
        ("upsample_bilinear2d", (26, 36), 7), ("upsample_bicubic2d", (26, 36), 35),
        ("upsample_trilinear3d", (26, 36, 22), 15), ("_upsample_bilinear2d_aa", (5, 6), 7),
        ("_upsample_bicubic2d_aa", (5, 6), 35), ("upsample_nearest3d", (26, 36, 22), 1),
    ],
)  # fmt: skip
def test_sizes_that_are_given(name: str, size: tuple[int, ...], each: int) -> None:
    """The larger of what goes in and comes out is worked on."""
    lengths = (13, 18, 11)[: len(size)]
    work = of(f"aten::{name}", [[2, 5, *lengths], []], types="float", values=["", str(list(size))])
    into, out = 10 * math.prod(lengths), 10 * math.prod(size)
    assert (work.flops, work.bytes) == (each * max(into, out), 4 * (into + out))


@pytest.mark.parametrize(("axes", "each"), [(2, 7), (3, 15)])
def test_samples_at_places(axes: int, each: int) -> None:
    """Three channels at 4 · 6 (· 5) places of two images."""
    where = [4, 6, 5][:axes]
    dims = [[2, 3, *[9, 8, 7][:axes]], [2, *where, axes]]
    work = of(f"aten::grid_sampler_{axes}d", dims, types="float")
    out = 2 * 3 * math.prod(where)
    assert work.flops == each * out
    places = 2 * math.prod(where) * axes
    assert work.bytes == 4 * (2 * 3 * math.prod([9, 8, 7][:axes]) + places + out)


def test_gradients_of_pools() -> None:
    """Gradient, input, then (of maxima) indices of 8 bytes."""
    plain = of("aten::avg_pool2d_backward", [[2, 3, 4, 4], [2, 3, 8, 8]], types="float")
    assert (plain.flops, plain.bytes) == (2 * 3 * 64, 4 * (2 * 3 * 16 + 2 * 3 * 64))
    dims = [[2, 3, 4, 4], [2, 3, 8, 8], [], [], [], [], [], [2, 3, 4, 4]]
    types = ["float", "float", "", "", "", "", "", "long int"]
    most = of("aten::max_pool2d_with_indices_backward", dims, types=types)
    assert most.bytes == plain.bytes + 8 * 2 * 3 * 16
