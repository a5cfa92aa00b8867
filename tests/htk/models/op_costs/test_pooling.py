"""Pooling and resampling by hand."""

import pytest

from htk.models.op_costs import cost
from tests.htk.models.op_costs.operator_costs import of


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
    assert cost(name, dims, types, "[]") == "shapes incomplete"
