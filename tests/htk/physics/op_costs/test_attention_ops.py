"""Work of attention: pairs counted one by one, arguments where the libraries' schemas have them."""

import json

import pytest

from htk.physics.op_costs import compute_call_cost
from htk.physics.op_costs.call import Cost

BF16, FP8 = "c10::BFloat16", "c10::Float8_e4m3fn"
HEADS, HEAD = 3, 8


def of(name: str, tensors: dict[int, list[int]], values: dict[int, object], length: int) -> Cost:
    """The cost of a call with tensors and values at these places."""
    dims = [tensors.get(k, []) for k in range(length)]
    longs = {k for k, shape in tensors.items() if len(shape) == 1}
    types = ["int" if k in longs else BF16 if k in tensors else "" for k in range(length)]
    said = [str(values.get(k, "")) for k in range(length)]
    found = compute_call_cost(name, json.dumps(dims), json.dumps(types), json.dumps(said))
    assert isinstance(found, Cost), found
    return found


def counted(queries: int, keys: int, left: int) -> int:
    """Causal, at the bottom right, with a window to the left."""
    own = keys - queries
    return sum(q + own - left <= k <= q + own for q in range(queries) for k in range(keys))


TOKENS = [2, 6, HEADS, HEAD]  # batch, tokens, heads, size
KEYS = [2, 9, 1, HEAD]
WINDOW = 2 * HEADS * counted(6, 9, 3)
FORWARD = {
    "flash_attn::_flash_attn_forward": (5, 6, 7, 11),
    "flash_attn_3::fwd": (24, 25, 26, 34),
    "flash_attn_3::_flash_attn_forward": (24, 25, 26, 34),
    "_vllm_fa3_C::fwd": (24, 25, 26, 30),
    "xformers_flash::flash_fwd": (10, 11, 12, 16),
    "aiter::mha_fwd": (5, 6, 7, 21),
    "aiter::fmha_v3_fwd": (5, 6, 7, 18),
}


@pytest.mark.parametrize(("name", "places"), FORWARD.items())
def test_windows_of_flash_attention(name: str, places: tuple[int, int, int, int]) -> None:
    causal, left, right, length = places
    tensors = {0: TOKENS, 1: KEYS, 2: KEYS}
    found = of(name, tensors, {causal: True, left: 3, right: 0}, length)
    assert found.flops == 4 * WINDOW * HEAD
    assert found.bytes == 2 * (2 * 2 * 6 * HEADS * HEAD + 2 * (2 * 9 * HEAD))
    whole = of(name, tensors, {causal: False, left: -1, right: -1}, length)
    assert whole.flops == 4 * 2 * HEADS * 54 * HEAD
    both = of(name, tensors, {causal: False, left: 2, right: 1}, length)
    pairs = sum(q + 3 - 2 <= k <= q + 3 + 1 for q in range(6) for k in range(9))
    assert both.flops == 4 * 2 * HEADS * pairs * HEAD


BACKWARD = {
    "flash_attn::_flash_attn_backward": (1, 11, 12, 13, 20),
    "flash_attn_3::_flash_attn_backward": (1, 16, 17, 18, 22),
    "flash_attn_3::bwd": (1, 16, 17, 18, 22),
    "xformers_flash::flash_bwd": (2, 13, 14, 15, 18),
    "aiter::mha_bwd": (1, 8, 9, 10, 22),
    "aiter::fmha_v3_bwd": (1, 8, 9, 10, 20),
}


@pytest.mark.parametrize(("name", "places"), BACKWARD.items())
def test_backward_does_five_products_where_the_model_asks_for_four(
    name: str, places: tuple[int, int, int, int, int]
) -> None:
    first, causal, left, right, length = places
    tensors = {first - 1: TOKENS, first: TOKENS, first + 1: KEYS, first + 2: KEYS}
    found = of(name, tensors, {causal: True, left: 3, right: 0}, length)
    assert found.of_model == 2 * 4 * WINDOW * HEAD
    assert found.flops == 5 * found.of_model // 4


RAGGED = {
    "flash_attn::_flash_attn_varlen_forward": ((3, 4), (5, 6), 9, 10, 20),
    "flash_attn_3::fwd": ((7, 8), (12, 13), 24, 25, 34),
    "_vllm_fa2_C::varlen_fwd": ((4, 5), (10, 11), 15, 16, 22),
    "xformers_flash::flash_fwd": ((3, 4), (6, 7), 10, 11, 16),
    "aiter::mha_varlen_fwd": ((3, 4), (5, 6), 12, 13, 29),
    "aten::_flash_attention_forward": ((3, 4), (5, 6), 8, 11, 15),
}


@pytest.mark.parametrize(("name", "places"), RAGGED.items())
def test_ragged_batches_with_windows(name: str, places: tuple) -> None:
    """Three sequences of five tokens each, every query sees itself and one before."""
    lengths, longest, causal, left, length = places
    q = [15, HEADS, HEAD]
    tensors = {0: q, 1: q, 2: q, lengths[0]: [4], lengths[1]: [4]}
    values = {longest[0]: 5, longest[1]: 5, causal: True, left: 1, left + 1: 0}
    found = of(name, tensors, values, length)
    assert (found.flops, found.assumed) == (4 * 3 * HEADS * (1 + 4 * 2) * HEAD, None)


@pytest.mark.parametrize(
    ("name", "table", "length"),
    [("flash_attn_3::fwd", 14, 34), ("_vllm_fa2_C::varlen_fwd", 8, 22)],
)
def test_a_paged_cache_tells_no_lengths(name: str, table: int, length: int) -> None:
    q = [15, HEADS, HEAD]
    with pytest.raises(AssertionError, match="shapes incomplete"):
        of(name, {0: q, 1: [40, 16, 1, HEAD], 2: [40, 16, 1, HEAD], table: [3]}, {}, length)


@pytest.mark.parametrize(
    ("name", "mask", "window", "length"),
    [
        ("aten::_efficient_attention_forward", 9, 13, 14),
        ("xformers::efficient_attention_forward_cutlass", 9, 12, 13),
    ],
)
def test_a_window_that_counts_the_querys_own_key(
    name: str, mask: int, window: int, length: int
) -> None:
    """A window of 4: a query sees itself and three before."""
    tensors = {0: TOKENS, 1: KEYS, 2: KEYS}
    found = of(name, tensors, {mask: 2, window: 4}, length)
    assert found.flops == 4 * WINDOW * HEAD
    top_left = sum(q - 3 <= k <= q for q in range(6) for k in range(9))
    assert of(name, tensors, {mask: 1, window: 4}, length).flops == (
        4 * 2 * HEADS * top_left * HEAD
    )
    assert of(name, tensors, {mask: 0}, length).flops == 4 * 2 * HEADS * 54 * HEAD


def test_flash_attention_of_narrow_numbers_has_its_causal_argument_elsewhere() -> None:
    """q, k, v, three scales, dropout, is_causal, …; without scales: q, k, v, dropout, is_causal."""
    q = [2, HEADS, 5, HEAD]
    name = "aten::_scaled_dot_product_flash_attention"
    dims = [q, q, q, [1], [1], [1], [], [], [], []]
    types = [FP8] * 3 + ["float"] * 3 + [""] * 4
    for causal, pairs in (("True", 15), ("False", 25)):
        values = ["", "", "", "", "", "", "0.", causal, "False", ""]
        found = compute_call_cost(name, json.dumps(dims), json.dumps(types), json.dumps(values))
        assert isinstance(found, Cost)
        assert (found.flops, found.dtype) == (4 * 2 * HEADS * pairs * HEAD, "fp8")
        assert found.bytes == 3 * 2 * HEADS * 5 * HEAD + 2 * (2 * HEADS * 5 * HEAD)


def test_attention_over_pages_that_indices_name() -> None:
    """Two sequences of three queries each over ten keys, of which the longest has six."""
    q, cache = [6, HEADS, HEAD], [100, 1, HEAD]
    tensors = {0: q, 1: cache, 2: cache, 3: [3], 4: [3], 5: [10]}
    found = of("aiter::mha_batch_prefill", tensors, {6: 3, 7: 6, 12: True, 13: -1, 14: -1}, 18)
    pairs = counted(3, 6, 99) + counted(3, 4, 99)
    assert found.flops == 4 * HEADS * pairs * HEAD
    assert found.bytes == 2 * (2 * 6 * HEADS * HEAD + 10 * 2 * HEAD)


def test_functions_round_flash_attention_hold_both_windows_in_one_argument() -> None:
    found = of("FlashAttnFunc", {0: TOKENS, 1: KEYS, 2: KEYS}, {5: True, 6: [3, 0]}, 12)
    assert found.flops == 4 * WINDOW * HEAD
