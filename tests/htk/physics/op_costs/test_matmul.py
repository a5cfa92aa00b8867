"""Work of matrix products, convolutions, transforms and recurrent networks, by hand."""

import math

import numpy as np
import pytest

from tests.htk.physics.op_costs.operator_costs import BF16, FLOAT, K, M, N, asked, of


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([3, 1, 4, 5], [1, 6, 5, 7]),
        ([3, 6, 4, 5], [5, 7]),
        ([4, 5], [3, 6, 5, 7]),
        ([5], [3, 5, 7]),
        ([3, 4, 5], [5]),
        ([5], [5]),
        ([4, 5], [5, 7]),
        ([2, 4, 5], [2, 5, 7]),
    ],
)
def test_matmul_broadcasts_both_batches(a: list[int], b: list[int]) -> None:
    """As NumPy does: each result is a sum of five products."""
    out = math.prod(np.matmul(np.ones(a), np.ones(b)).shape)
    found = of("aten::matmul", [a, b])
    assert found.flops == 2 * out * 5
    assert found.bytes == 2 * (math.prod(a) + math.prod(b) + out)


@pytest.mark.parametrize(("beta", "added"), [("1", 1), ("0.5", 1), ("0", 0), ("0.", 0), ("", 1)])
def test_what_beta_0_leaves_out(beta: str, added: int) -> None:
    """[8,128,64] x [8,64,32]: with beta 0 the input is neither read nor added."""
    dims = [[8, 128, 32], [8, 128, 64], [8, 64, 32], [], []]
    found = of("aten::baddbmm", dims, values=["", "", "", beta, "1"])
    results, product = 8 * 128 * 32, 2 * 8 * 128 * 64 * 32
    assert found.flops == product + added * results
    assert found.bytes == 2 * (8 * 128 * 64 + 8 * 64 * 32 + results + added * results)
    plain = of("aten::addmm", [[N], [M, K], [K, N], [], []], values=["", "", "", beta, "1"])
    assert plain.flops == 2 * M * K * N + added * M * N


def test_addbmm_adds_the_batch_up() -> None:
    dims = [[128, 32], [8, 128, 64], [8, 64, 32], [], []]
    found = of("aten::addbmm", dims, values=["", "", "", "1", "1"])
    assert found.flops == 2 * 8 * 128 * 64 * 32 + 128 * 32
    assert found.bytes == 2 * (8 * 128 * 64 + 8 * 64 * 32 + 2 * 128 * 32)


@pytest.mark.parametrize("name", ["vllm::outplace_fused_experts", "aiter::fused_moe"])
def test_experts_of_each_token(name: str) -> None:
    """Five tokens, two of eight experts each: hidden 6, inner 4 with a gate beside it."""
    dims = [[5, 6], [8, 8, 6], [8, 6, 4], [5, 2], [5, 2]]
    found = of(name, dims, types=[BF16, BF16, BF16, FLOAT, "int"])
    assert found.flops == 2 * 5 * 2 * (6 * 8 + 4 * 6)
    used = 2 * (8 * 8 * 6 + 8 * 6 * 4)  # ten choices of eight: all of them
    assert found.bytes == 2 * 2 * 30 + used + 2 * 5 * 2 * (8 + 4) * 2
    assert found.assumed


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("vllm::moe_forward", "sizes of experts"),
        ("trtllm::attention", "lengths of requests"),
        ("vllm::unified_attention_with_output", "lengths of requests"),
        ("_vllm_fa4_C::unknown", "no model"),
    ],
)
def test_operators_that_do_not_tell_their_sizes_have_a_reason(name: str, reason: str) -> None:
    assert reason in str(asked(name, [[4, 8]], [BF16]))


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("_Linear", [[N, K], [2, M, K], [N], []]),
        ("_LayerNormLinear", [[2, M, K], [K], [K], [N, K], [], [N]]),
    ],
)
def test_linear_layers_of_transformer_engine(name: str, dims: list) -> None:
    found = of(name, dims)
    assert found.flops == 2 * 2 * M * K * N
    assert found.bytes == 2 * (2 * M * K + K * N + 2 * M * N)


@pytest.mark.parametrize(
    ("name", "dims", "types", "values", "flops", "moved"),
    [
        ("aten::_local_scalar_dense", [[1000]], [FLOAT], [], 0, 4),
        ("aten::_cdist_forward", [[2, 5, 3], [2, 7, 3]], [FLOAT] * 2, [],
         3 * 2 * 5 * 7 * 3, 4 * 2 * (15 + 21 + 35)),
        ("aten::histc", [[64], [], [], []], [FLOAT, "", "", ""], ["", "10", "0", "1"],
         64, 4 * 74),
        ("aten::grid_sampler_2d", [[2, 3, 8, 8], [2, 4, 5, 2]], [FLOAT] * 2, [],
         7 * 2 * 3 * 20, 4 * (384 + 80 + 120)),
        ("aten::_upsample_bicubic2d_aa", [[1, 2, 8, 8], [], []], [FLOAT, "", ""],
         ["", "[4, 4]", "False"], 35 * 128, 4 * (128 + 32)),
        ("mamba_ssm::selective_scan_fwd", [[2, 4, 8], [2, 4, 8], [4, 16]], [BF16, BF16, FLOAT],
         [], 9 * 64 * 16, 2 * 64 * 3 + 4 * 64),
        ("causal_conv1d::causal_conv1d_fwd", [[2, 4, 8], [4, 3]], [BF16] * 2, [],
         2 * 64 * 3, 2 * (2 * 64 + 12)),
        ("_moe_C::topk_softmax", [[5, 2], [5, 2], [5, 2], [5, 8]], [FLOAT, "int", "int", BF16],
         [], 5 * 40, 3 * 40 + 80),
        ("fbgemm::quantize_fp8_per_row", [[4, 64], []], [BF16, ""], [], 512, 512 + 256 + 16),
    ],
)  # fmt: skip
def test_smaller_operators(
    name: str, dims: list, types: list, values: list, flops: int, moved: int
) -> None:
    found = of(name, dims, types=types, values=values)
    assert (found.flops, found.bytes) == (flops, moved)


def test_bytes_in_and_int32_out() -> None:
    product = of("aten::_int_mm", [[64, 128], [128, 256]], types="signed char")
    assert product.bytes == 64 * 128 + 128 * 256 + 4 * 64 * 256


def test_a_complex_product_is_four_products_and_four_sums() -> None:
    product = of("aten::mm", [[64, 128], [128, 256]], types="c10::complex<float>")
    assert product.flops == 8 * 64 * 128 * 256
    assert product.bytes == 8 * (64 * 128 + 128 * 256 + 64 * 256)
