"""Pairs of queries and keys that a mask leaves, against the mask itself."""

from dataclasses import replace
from typing import Any

import pytest

from htk.physics.op_costs.attention import (
    Mask,
    Places,
    compute_attention_cost,
    count_ragged_pairs,
    mask_of,
)
from htk.physics.op_costs.call import OperatorCall, Tensor


@pytest.mark.parametrize("corner", ["top left", "bottom right"])
@pytest.mark.parametrize("left", [None, 0, 1, 3])
@pytest.mark.parametrize("right", [None, 0, 2])
def test_pairs_against_the_mask_itself(corner: str, left: int | None, right: int | None) -> None:
    for queries in range(7):
        for keys in range(7):
            own = keys - queries if corner == "bottom right" else 0
            counted = sum(
                (left is None or k >= q + own - left) and (right is None or k <= q + own + right)
                for q in range(queries)
                for k in range(keys)
            )
            assert Mask(corner, left, right).pairs(queries, keys) == counted, (queries, keys)


def test_pairs_of_lengths_that_no_memory_holds() -> None:
    """A window of 1,024 keys: all queries but the first see as many."""
    n = 1 << 40
    assert Mask("bottom right", 1023, 0).pairs(n, n) == 1024 * 1025 // 2 + (n - 1024) * 1024


# Two sequences, six heads of 8 that read two heads of keys; 5 queries, 7 keys; values of 4.
HEADS_FIRST = ((2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 4))
TOKENS_FIRST = ((2, 5, 6, 8), (2, 7, 2, 8), (2, 7, 2, 4))
DIMS = {"batch": 2, "heads": 6, "kv_heads": 2, "query_length": 5, "key_length": 7, "head_size": 8}


def call(*shapes: tuple[int, ...], values: Any = (), kind: str = "c10::BFloat16") -> OperatorCall:
    arguments = tuple(Tensor(shape, kind) if shape else None for shape in shapes)
    return OperatorCall("attend", arguments, tuple(values))


@pytest.mark.parametrize(
    ("layout", "shapes"), [("heads first", HEADS_FIRST), ("tokens first", TOKENS_FIRST)]
)
@pytest.mark.parametrize("causal", [True, False])
def test_both_layouts_of_the_same_attention(layout: Any, shapes: Any, causal: bool) -> None:
    """Pairs of each head and sequence: 35, or 1 + 2 + 3 + 4 + 5 of those with a mask."""
    pairs = 15 if causal else 35
    done = compute_attention_cost(
        call(*shapes, values=[None, None, None, causal]), Places(layout, 3)
    )
    forward = 2 * 2 * 6 * pairs * (8 + 4)
    assert (done.flops, done.of_model, done.matrix, done.dtype) == (forward, forward, True, "bf16")
    q, cache, out = 2 * 6 * 5 * 8, 2 * 2 * 7 * (8 + 4), 2 * 6 * 5 * 4
    assert done.bytes == 2 * (q + cache + out)
    assert dict(done.dims) == DIMS and done.assumed is None
    behind = call(shapes[0], *shapes, values=[None, None, None, None, causal])
    back = compute_attention_cost(behind, Places(layout, 4, backward=True))
    assert back.flops == 2 * 2 * 6 * pairs * (3 * 8 + 2 * 4)  # scores twice, and four gradients
    assert (back.of_model, back.matrix) == (2 * forward, True)
    assert back.bytes == 2 * (2 * (q + cache + out)), "all of it, and its gradients"


@pytest.mark.parametrize(("kind", "into", "out"), [
    ("c10::Float8_e4m3fn", 1, 2), ("c10::Half", 2, 2), ("float", 4, 4),
])  # fmt: skip
def test_what_goes_in_as_bytes_comes_out_in_16_bits(kind: str, into: int, out: int) -> None:
    done = compute_attention_cost(call(*HEADS_FIRST, kind=kind), Places("heads first", 3))
    cache = 2 * 2 * 7 * (8 + 4)
    assert done.bytes == into * (2 * 6 * 5 * 8 + cache) + out * 2 * 6 * 5 * 4


def test_one_sequence_has_no_batch() -> None:
    done = compute_attention_cost(
        call(*(shape[1:] for shape in HEADS_FIRST)), Places("heads first", 3)
    )
    assert dict(done.dims) == {name: n for name, n in DIMS.items() if name != "batch"}
    assert done.flops == 2 * 6 * 35 * (8 + 4)


@pytest.mark.parametrize(("kind", "pairs"), [
    (0, 5 * 7), (1, 1 + 2 + 3 + 4 + 5), (2, 3 + 4 + 5 + 6 + 7), (None, 5 * 7),
])  # fmt: skip
def test_the_corner_by_the_type_of_mask(kind: int | None, pairs: int) -> None:
    places = Places("tokens first", 0, mask_type=True)
    assert mask_of(call((1,), values=[kind]), places).pairs(5, 7) == pairs


@pytest.mark.parametrize(("values", "left", "right"), [
    ([2, 1], 2, 1), ([0, 0], 0, 0), ([-1, 3], None, 3), ([3, -1], 3, None), ([True, 2], None, 2),
    ([None, None], None, None),
])  # fmt: skip
def test_windows_of_two_arguments_or_of_one_list(
    values: list[Any], left: int | None, right: int | None
) -> None:
    apart = Places("tokens first", 9, "bottom right", windows=(0, 1))
    assert mask_of(call((1,), values=values), apart) == Mask("bottom right", left, right)
    together = Places("tokens first", 9, "bottom right", pair=0)
    assert mask_of(call((1,), values=[[*values, 5]]), together) == Mask("bottom right", left, right)
    causal = replace(apart, causal=2)
    assert mask_of(call((1,), values=[*values, True]), causal) == Mask("bottom right", left, 0)
    bare = Places("tokens first", 9)
    assert mask_of(call((1,), values=values), bare) == Mask("top left", None, None)


@pytest.mark.parametrize(("keys", "left"), [(1, 0), (2, 1), (64, 63), (0, None), (-1, None)])
def test_a_window_of_so_many_keys_holds_the_querys_own(keys: int, left: int | None) -> None:
    places = Places("tokens first", 9, window=0)
    assert mask_of(call((1,), values=[keys]), places) == Mask("top left", left, None)


def test_a_ragged_batch_is_one_longest_and_others_alike() -> None:
    """13 queries and 22 keys: 6 and 9 in one sequence, 3 and 6 in each of the two others."""
    assert count_ragged_pairs(13, 22, 3, (6, 9), Mask("top left")) == 6 * 9 + 2 * 3 * 6
    assert count_ragged_pairs(13, 22, 3, (6, 9), Mask("bottom right", None, 0)) == (
        sum(range(4, 10)) + 2 * sum(range(4, 7))
    )
    assert count_ragged_pairs(6, 9, 1, (6, 9), Mask("top left")) == 54
    assert count_ragged_pairs(6, 9, 2, (6, 9), Mask("top left")) == 54, "the other is empty"


@pytest.mark.parametrize(("longest", "lengths", "guessed"), [
    ((4, 6), ((4, 6), (4, 6), (4, 6)), False),  # all alike
    ((None, None), ((4, 6), (4, 6), (4, 6)), False),  # not recorded
    ((6, 8), ((6, 8), (3, 5), (3, 5)), True),
    ((99, 99), ((12, 18), (0, 0), (0, 0)), True),  # no more than there are
])  # fmt: skip
def test_lengths_of_a_ragged_batch(longest: Any, lengths: Any, guessed: bool) -> None:
    """12 queries and 18 keys of three sequences, six heads."""
    shapes = ((12, 6, 8), (18, 2, 8), (18, 2, 4), (4,), (4,))
    places = Places("tokens first", 9, lengths=(3, 4), longest=(5, 6))
    done = compute_attention_cost(call(*shapes, values=[None] * 5 + list(longest)), places)
    assert done.flops == 2 * 6 * sum(q * k for q, k in lengths) * (8 + 4)
    assert (done.assumed is not None) == guessed
    alone = compute_attention_cost(call(*shapes[:3], (2,), (2,), values=[None] * 7), places)
    assert alone.flops == 2 * 6 * 12 * 18 * (8 + 4)


def test_a_paged_cache_is_not_guessed() -> None:
    places = Places("tokens first", 9, pages=3)
    with pytest.raises(LookupError, match="paged cache"):
        compute_attention_cost(call(*TOKENS_FIRST, (4, 4)), places)
    assert compute_attention_cost(call(*TOKENS_FIRST, ()), places).flops == 2 * 2 * 6 * 35 * 12
