"""Elementwise operators by hand: inputs broadcast to the result, in and out once."""

import pytest

from tests.htk.physics.op_costs.operator_costs import BF16, of


@pytest.mark.parametrize(
    ("name", "dims", "types", "flops", "moved"),
    [
        ("aten::mul", [[4, 1, 8], [3, 8]], BF16, 96, 2 * (32 + 24 + 96)),
        ("aten::mul_", [[4, 8], [8]], BF16, 32, 2 * (32 + 8 + 32)),
        ("aten::gt", [[4, 8], [8]], "float", 32, 4 * (32 + 8) + 32),
        ("aten::gelu_backward", [[4, 8], [4, 8]], BF16, 16 * 32, 2 * 3 * 32),
        # silu of one half times the other
        ("_C::silu_and_mul", [[4, 8], [4, 16]], BF16, 5 * 32, 2 * (32 + 64)),
        # positions of 8 bytes; query and key turned in place
        ("_C::rotary_embedding", [[7], [7, 16], [7, 4], [100, 8]],
         ["long int", BF16, BF16, BF16], 3 * 7 * 20, 8 * 7 + 2 * 2 * 7 * 20),
        ("sgl_kernel::rotary_embedding", [[7], [7, 16], [4]], ["long int", BF16, BF16],
         3 * 7 * 16, 8 * 7 + 2 * 2 * 7 * 16),
        # a byte each, and a scale of 4 for each of 4 rows
        ("fbgemm::quantize_fp8_per_row", [[4, 8]], BF16, 2 * 32, 2 * 32 + 32 + 4 * 4),
        ("_C::static_scaled_fp8_quant", [[4, 8], [4, 8], [1]],
         ["c10::Float8_e4m3fn", BF16, "float"], 32, 32 + 64 + 4),
    ],
)  # fmt: skip
def test_elementwise(name: str, dims: list, types: str | list, flops: int, moved: int) -> None:
    found = of(name, dims, types=types)
    assert (found.flops, found.bytes, found.family) == (flops, moved, "elementwise")
