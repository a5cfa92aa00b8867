"""Products of servers: scaled, packed, of narrow numbers."""

import pytest

from tests.htk.physics.op_costs.operator_costs import BF16, BYTE, FLOAT, FP8, K, M, N, asked, of

SCALED = M * K + K * N + 2 * M * N


@pytest.mark.parametrize(
    ("name", "dims", "types"),
    [
        ("sgl_kernel::fp8_scaled_mm", [[M, K], [K, N], [M, 1], [1, N], [], []],
         [FP8, FP8, FLOAT, FLOAT, "", ""]),
        ("sgl_kernel::fp8_blockwise_scaled_mm", [[M, K], [K, N], [M, 1], [1, 1], []],
         [FP8, FP8, FLOAT, FLOAT, ""]),
        ("aiter::gemm_a8w8_blockscale", [[M, K], [N, K], [M, 1], [1, 1], [], []],
         [FP8, FP8, FLOAT, FLOAT, "", ""]),
        ("fbgemm::f8f8bf16_rowwise", [[M, K], [N, K], [M], [N], [], []],
         [FP8, FP8, FLOAT, FLOAT, "", ""]),
        ("trtllm::fp8_block_scaling_gemm", [[M, K], [N, K], [1, M], [1, 1]],
         [FP8, FP8, FLOAT, FLOAT]),
        ("_C::cutlass_scaled_mm", [[M, N], [M, K], [K, N], [1], [1], []],
         [BF16, FP8, FP8, FLOAT, FLOAT, ""]),
        ("deep_gemm::fp8_gemm_nt", [[M, K], [M, 1], [N, K], [1, 1], [M, N]],
         [FP8, FLOAT, FP8, FLOAT, BF16]),
    ],
)  # fmt: skip
def test_scaled_products(name: str, dims: list, types: list) -> None:
    found = of(name, dims, types=types)
    assert (found.flops, found.bytes, found.dtype) == (2 * M * K * N, SCALED, "fp8")


def test_two_numbers_in_a_byte() -> None:
    dims = [[M, K // 2], [N, K // 2], [M, 2], [N, 2]]
    found = of("trtllm::nvfp4_gemm", dims, types=[BYTE, BYTE, FP8, FP8])
    assert (found.flops, found.dtype) == (2 * M * K * N, "fp4")
    assert found.bytes == M * K // 2 + K * N // 2 + 2 * M * N
    torch_s = of(
        "aten::_scaled_mm", [[M, K // 2], [K // 2, N]], types=["c10::Float4_e2m1fn_x2"] * 2
    )
    assert (torch_s.flops, torch_s.dtype) == (2 * M * K * N, "fp4")


def test_packed_weights_are_moved_as_they_lie() -> None:
    dims = [[M, K], [], [K // 16, 2 * N], [1, N], [], [], [], [], [64], [], [], [], []]
    types = [BF16, "", "int", BF16, "", "", "", "", "int", "", "", "", ""]
    values = [""] * 9 + ["5", str(M), str(N), str(K)]
    found = of("_C::gptq_marlin_gemm", dims, types=types, values=values)
    assert found.flops == 2 * M * K * N
    assert found.bytes == 2 * M * K + 4 * (K // 16 * 2 * N) + 2 * N + 4 * 64 + 2 * M * N
    assert asked("_C::gptq_marlin_gemm", dims, types) == "shapes incomplete"
    int4 = of(
        "aten::_weight_int4pack_mm",
        [[M, K], [N // 8, K // 128 + 1, 32, 4], [], [K // 32, N, 2]],
        types=[BF16, "int", "", BF16],
    )
    assert int4.flops == 2 * M * K * N


@pytest.mark.parametrize(("gated", "into", "out"), [(True, 1, 2), (True, 2, 2), (False, 2, 2)])
def test_experts_by_hand(gated: bool, into: int, out: int) -> None:
    """40 tokens of 6, of which each takes 2 of 8 experts of 10: all experts are read, and what the
    products give is written and read once more. Of 3 tokens 6 of 8 are read."""
    first = 20 if gated else 10
    types = [FP8 if into == 1 else BF16] * 4 + ["int"]
    for tokens, used in ((40, 1.0), (3, 6 / 8)):
        dims = [[tokens, 6], [8, first, 6], [8, 6, 10], [tokens, 2], [tokens, 2]]
        work = of("vllm::outplace_fused_experts", dims, types=types)
        assert work.flops == 2 * tokens * 2 * 6 * (first + 10)
        weights = used * into * 8 * (first * 6 + 6 * 10)
        between = 2 * tokens * 2 * (first + 10) * out
        assert work.bytes == 2 * into * tokens * 6 + weights + between
