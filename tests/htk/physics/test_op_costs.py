"""Work of single operators against figures worked out by hand."""

import json

import pytest

from htk.physics.detected import detect_gpu, peak_tflops
from htk.physics.op_costs import compute_call_cost
from htk.physics.op_costs.attention import count_causal_pairs
from htk.physics.op_costs.call import Cost
from tests.htk.physics.op_costs.operator_costs import BF16, FP8, of


@pytest.mark.parametrize(
    ("name", "dims", "flops", "moved"),
    [
        ("aten::mm", [[8, 4], [4, 6]], 2 * 8 * 4 * 6, 2 * (32 + 24 + 48)),
        ("aten::addmm", [[6], [8, 4], [4, 6]], 2 * 192 + 48, 2 * (32 + 24 + 48 + 6)),
        ("aten::bmm", [[3, 8, 4], [3, 4, 6]], 3 * 2 * 192, 3 * 2 * (32 + 24 + 48)),
        ("aten::linear", [[2, 4, 4], [6, 4]], 2 * 192, 2 * (32 + 24 + 48)),
        ("aten::linear", [[8, 4], [6, 4], [6]], 2 * 192 + 48, 2 * (32 + 24 + 48 + 6)),
        ("aten::matmul", [[2, 8, 4], [4, 6]], 2 * 2 * 192, 2 * (64 + 24 + 96)),
        ("aten::_grouped_mm", [[8, 4], [3, 4, 6], [3]], 2 * 192, 2 * (32 + 72 + 48)),
        ("aten::_grouped_mm", [[8, 4], [4, 6], [3]], 2 * 192, 2 * (32 + 24 + 3 * 48)),
        ("aten::_grouped_mm", [[8, 4], [4, 6]], 2 * 192, 2 * (32 + 24 + 48)),
        # columns of the second shared out among three
        ("aten::_grouped_mm", [[3, 8, 4], [4, 6], [3]], 2 * 192, 2 * (96 + 24 + 48)),
        ("aten::dot", [[8], [8]], 2 * 8, 2 * (8 + 8 + 1)),
        ("aten::addr", [[8, 6], [8], [6]], 2 * 48, 2 * (8 + 6 + 48 + 48)),
    ],
)
def test_products(name: str, dims: list, flops: int, moved: int) -> None:
    found = of(name, dims)
    assert (found.flops, found.bytes, found.dtype, found.matrix) == (flops, moved, "bf16", True)


@pytest.mark.parametrize("place", [2, 4])
def test_fp8_product_finds_its_bias_wherever_it_is(place: int) -> None:
    """Operands of a byte, a result of two; scales are no work."""
    dims: list = [[16, 32], [32, 64], [1], [1], []]
    types = [FP8, FP8, "float", "float", ""]
    dims[place], types[place] = [64], BF16
    found = of("aten::_scaled_mm", dims, types=types)
    assert found.flops == 2 * 16 * 32 * 64 + 16 * 64
    assert found.bytes == 16 * 32 + 32 * 64 + 2 * 16 * 64 + 2 * 64
    assert found.dtype == "fp8"


@pytest.mark.parametrize("queries", range(6))
@pytest.mark.parametrize("keys", range(6))
def test_pairs_that_a_causal_mask_leaves(queries: int, keys: int) -> None:
    top_left = sum(k <= q for q in range(queries) for k in range(keys))
    bottom_right = sum(k <= q + keys - queries for q in range(queries) for k in range(keys))
    assert count_causal_pairs(queries, keys, "top left") == top_left
    assert count_causal_pairs(queries, keys, "bottom right") == bottom_right
    assert count_causal_pairs(queries, keys, None) == queries * keys


def test_attention_of_grouped_queries_with_unequal_lengths() -> None:
    q, kv = [2, 8, 3, 64], [2, 2, 5, 64]
    values = ["", "", "", "0.", "True", "False", ""]
    dims = [q, kv, kv, [], [], [], []]
    found = of("aten::_scaled_dot_product_flash_attention", dims, values=values)
    assert found.flops == 4 * 2 * 8 * (1 + 2 + 3) * 64
    assert found.bytes == 2 * (2 * 8 * 3 * 64 * 2 + 2 * (2 * 2 * 5 * 64))
    whole = of(
        "aten::_scaled_dot_product_flash_attention", dims, values=["", "", "", "0.", "False"]
    )
    assert whole.flops == 4 * 2 * 8 * 15 * 64


def test_flash_backward_does_more_than_the_model_asks() -> None:
    q = [1, 4, 2, 8]  # batch, tokens, heads, size
    dims = [q, q, q, q, q, [1, 2, 4], [], [], [], [], [], []]
    values = [""] * 11 + ["False"]
    found = of("aten::_flash_attention_backward", dims, values=values)
    assert found.of_model == 2 * (4 * 2 * 16 * 8)
    assert found.flops == 5 * found.of_model // 4


def test_ragged_batch() -> None:
    """Ten tokens in three sequences, the longest of six: the others have two each."""
    q, ends = [10, 2, 8], [4]
    dims = [q, q, q, ends, ends, [], [], [], [], []]
    types = [BF16, BF16, BF16, "int", "int", *[""] * 5]
    values = ["", "", "", "", "", "6", "6", "0.", "", "True"]
    found = of("flash_attn::_flash_attn_varlen_forward", dims, values=values, types=types)
    assert found.flops == 4 * 2 * (21 + 2 * 3) * 8
    assert found.assumed
    even = of(
        "flash_attn::_flash_attn_varlen_forward",
        [[9, 2, 8]] * 3 + dims[3:],
        values=["", "", "", "", "", "3", "3", "0.", "", "False"],
        types=types,
    )
    assert (even.flops, even.assumed) == (4 * 2 * 27 * 8, None)


def conv(dims: list, stride: str, padding: str, transposed: str, groups: str) -> Cost:
    ones = "[1, 1]"
    values = ["", "", "", stride, padding, ones, transposed, "[0, 0]", groups]
    return of("aten::convolution", [*dims, [], [], [], [], [], []], values=values)


def test_convolutions() -> None:
    plain = conv([[2, 4, 8, 8], [6, 4, 3, 3], [6]], "[2, 2]", "[1, 1]", "False", "1")
    assert plain.flops == 2 * (2 * 6 * 4 * 4) * (4 * 9) + 2 * 6 * 4 * 4
    assert plain.bytes == 2 * (2 * 4 * 64 + 6 * 36 + 2 * 6 * 16 + 6)
    grouped = conv([[2, 4, 8, 8], [6, 2, 3, 3], []], "[2, 2]", "[1, 1]", "False", "2")
    assert grouped.flops == 2 * (2 * 6 * 4 * 4) * (2 * 9)


def test_grouped_transposed_convolution() -> None:
    """Weight [Cin, Cout/groups, …]: 4 in, 3·2 = 6 out; 8 becomes (8 − 1)·2 − 2 + 2 + 1 = 15."""
    found = conv([[2, 4, 8, 8], [4, 3, 3, 3], []], "[2, 2]", "[1, 1]", "True", "2")
    assert found.flops == 2 * (2 * 4 * 64) * (3 * 9)
    assert found.bytes == 2 * (2 * 4 * 64 + 4 * 27 + 2 * 6 * 15 * 15)


def test_backward_convolution_counts_the_gradients_asked_for() -> None:
    dims = [[2, 6, 4, 4], [2, 4, 8, 8], [6, 4, 3, 3], *[[]] * 8]
    once = 2 * (2 * 6 * 16) * 36
    for asked, times in (("[True, True, False]", 2), ("[False, True, False]", 1)):
        values = ["", "", "", "[0]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", asked]
        assert of("aten::convolution_backward", dims, values=values).flops == times * once


def test_bytes_where_little_is_computed() -> None:
    softmax = of("aten::_softmax", [[4, 8], [], []], values=["", "-1", "False"])
    assert softmax.bytes == 2 * 2 * 32
    assert of(
        "aten::_softmax", [[4, 8], [], []], values=["", "-1", "True"], types=["c10::Half", "", ""]
    ).bytes == (32 * 2 + 32 * 4)
    assert of("aten::add", [[4, 1, 8], [3, 8]]).bytes == 2 * (32 + 24 + 96)
    assert of("aten::gt", [[4, 8], [4, 8]]).bytes == 2 * 64 + 32
    assert of("aten::copy_", [[4, 8], [4, 8], []], types=["float", BF16, ""]).bytes == 32 * 6
    mean = of("aten::mean", [[4, 8], [], []], values=["", "[-1]", "True"])
    assert (mean.flops, mean.bytes) == (32, 2 * (32 + 4))
    embedding = of("aten::embedding", [[1000, 16], [7]], types=[BF16, "long int"])
    assert embedding.bytes == 2 * 7 * 16 * 2 + 7 * 8
    index = of("aten::index", [[5, 6, 7], [[3]]], types=[BF16, "TensorList"])
    assert index.bytes == 2 * 3 * 42 * 2 + 3 * 8
    pool = of(
        "aten::max_pool2d_with_indices",
        [[1, 2, 8, 8], [], [], [], [], []],
        values=["", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"],
    )
    assert (pool.flops, pool.bytes) == (2 * 16 * 9, 2 * 128 + 32 * 10)
    dilated = of(
        "aten::max_pool2d_with_indices",
        [[3, 2, 9, 8], [], [], [], [], []],
        values=["", "[3, 2]", "[2, 1]", "[1, 0]", "[2, 4]", "False"],
    )
    rows, columns = (9 + 2 * 1 - 2 * 2 - 1) // 2 + 1, (8 + 0 - 4 * 1 - 1) // 1 + 1  # 4 and 4
    assert dilated.flops == 3 * 2 * rows * columns * 6
    assert dilated.bytes == 2 * 3 * 2 * 9 * 8 + 3 * 2 * rows * columns * (2 + 8)


def test_copies_of_sharded_training() -> None:
    """Out of an all-gather's buffer; into it; into that of a reduce-scatter, in float."""
    assert of("fsdp::split_with_sizes_copy", [[64], [], []]).bytes == 2 * 2 * 64
    parts = [[[4], [8]], [12], [], [], []]
    into = of("fsdp::all_gather_copy_in", parts, types=["TensorList", BF16, "", "", ""])
    assert into.bytes == 2 * 2 * 12
    wide = of("fsdp::chunk_cat", [[[4], [8]], [], [], [12]], types=["TensorList", "", "", "float"])
    assert wide.bytes == 12 * 2 + 12 * 4


@pytest.mark.parametrize(
    ("dims", "values"),
    [
        ("[[8, 4]]", "[]"),
        ("[]", "[]"),
        ("[[8, -4], [4, 6]]", "[]"),
        ("__import__('os').abort()", "[]"),
        ("[" * 100_000, "[]"),
        ('{"a": 1}', "nonsense"),
    ],
)
def test_what_cannot_be_read_has_a_reason(dims: str, values: str) -> None:
    types = json.dumps([BF16, BF16])
    assert isinstance(compute_call_cost("aten::mm", dims, types, values), str)
    assert compute_call_cost("aten::mm", None, None, None) == "no shapes recorded"
    assert compute_call_cost("mine::op", "[[1]]", types, None) == "no model"


def test_gpus_by_the_name_that_drivers_give() -> None:
    for name, entry in (
        ("AMD Instinct MI300X VF", "mi300x"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-PG509-200", "a100-40gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100-SXM2-32GB-LS", "v100-32gb"),
        ("AMD Instinct MI210", "mi210"),
        ("NVIDIA GH200 480GB", "gh200"),
    ):
        found = detect_gpu(name)
        assert found is not None
        assert found.name == entry
    assert detect_gpu("NVIDIA GeForce GTX 1080") is None
    assert detect_gpu(None) is None


def test_peaks() -> None:
    h100 = detect_gpu("NVIDIA H100 80GB HBM3")
    assert h100 is not None
    assert peak_tflops(h100, "fp16", matrix=True) == 989
    assert peak_tflops(h100, "fp8", matrix=True) == 1979
    assert peak_tflops(h100, "fp32", matrix=True) == 67
    assert peak_tflops(h100, "fp32", matrix=True, tf32=True) == 494
    assert peak_tflops(h100, "bf16", matrix=False) == 67
