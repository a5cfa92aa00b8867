"""Decoders by numbers that others publish or that can be counted on paper."""

from dataclasses import replace

import pytest

from htk.errors import UsageError
from htk.models.decoder import (
    Decoder,
    StateSpace,
    attention_flops,
    attention_pairs,
    decoder,
    forward_flops,
    model_flops,
    scan_flops,
    score_flops,
)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Sums over the published checkpoints' tensors.
        ("llama2-7b", 6_738_415_616),
        ("llama2-13b", 13_015_864_320),
        ("llama3-8b", 8_030_261_248),
    ],
)
def test_parameters_of_published_models(name: str, parameters: int) -> None:
    assert decoder(name).parameters == parameters


def test_a_decoder_small_enough_to_count() -> None:
    """Hidden 4, two heads, one of keys and values: q 16, k 8, v 8, o 16; three of 4 by 6; norms."""
    tiny = decoder("tiny", layers=1, hidden=4, heads=2, kv_heads=1, ffn=6, vocab=10, gated=True)
    assert tiny.layer_matrices == 16 + 8 + 8 + 16 + 3 * 24
    assert tiny.layer_parameters == 120 + 8
    assert tiny.root_parameters == 40 + 40 + 4


def test_a_mixture_of_experts_works_with_those_that_a_token_takes() -> None:
    """Mixtral 8x7B: 46.7 billion parameters, of which a token uses 12.9 (Jiang et al., 2024)."""
    sizes = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000}
    sizes |= {"gated": True}
    mixtral = decoder("mixtral", experts=8, active_experts=2, **sizes)
    assert mixtral.parameters == 46_702_792_704  # sum over the published checkpoint's tensors
    idle = 32 * 6 * 3 * 4096 * 14336
    assert mixtral.parameters - idle == pytest.approx(12.9e9, rel=0.005)
    tokens, logits, attention = 2 * 3, 2 * 3 * 32000 * 4096, 32 * 4 * 4096 * (1 + 2 + 3)
    expected = tokens * 32 * mixtral.layer_matrices + logits + attention
    assert forward_flops(mixtral, 1, 3) == expected


def test_kv_heads_are_as_many_as_heads_unless_said() -> None:
    assert decoder("own", layers=1, hidden=8, heads=2, ffn=8, vocab=9).kv_heads == 2


@pytest.mark.parametrize(
    ("queries", "keys", "causal", "pairs"),
    [(3, 3, True, 6), (4, 2, True, 1 + 2 + 2 + 2), (2, 4, True, 1 + 2), (3, 5, False, 15)],
)
def test_attention_pairs(queries: int, keys: int, causal: bool, pairs: int) -> None:
    assert attention_pairs(queries, keys, causal) == pairs


def test_work_of_a_step_by_hand() -> None:
    """3 tokens: matrices 2·3·120, logits 2·3·10·4, attention 4·4·(1+2+3) operations."""
    tiny = decoder("tiny", layers=1, hidden=4, heads=2, kv_heads=1, ffn=6, vocab=10, gated=True)
    assert forward_flops(tiny, 1, 3) == 720 + 240 + 96
    assert model_flops(tiny, 2, 3) == 2 * 3 * (720 + 240 + 96)


@pytest.mark.parametrize(
    "given", [{"heads": 3}, {"layers": 0}, {"kv_heads": 5}, {"active_experts": 2}]
)
def test_what_makes_no_decoder_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        decoder("llama2-7b", **given)


def test_an_unknown_model_says_which_there_are() -> None:
    with pytest.raises(UsageError, match="llama2-7b"):
        decoder("llama9")


def test_windowed_layers_look_back_so_far() -> None:
    """Two of three layers see 4 tokens back: 1 + 2 + 3 + 7 · 4 pairs of ten tokens, else 55."""
    shape = {"layers": 3, "hidden": 8, "heads": 2, "kv_heads": 1, "ffn": 16, "vocab": 50}
    windowed = Decoder("small", **shape, head_size=6, window=4, windowed_layers=2)
    assert score_flops(windowed, 10) == 2 * (12 + 12) * (55 + 2 * 34)
    assert score_flops(replace(windowed, window=0), 10) == 2 * 24 * 3 * 55
    assert score_flops(replace(windowed, windowed_layers=9), 10) == 2 * 24 * 3 * 34
    assert score_flops(replace(windowed, window=99), 10) == 2 * 24 * 3 * 55


def test_scans_of_state_spaces_by_hand() -> None:
    """Of a token: 256 within its chunk for B, C and the input; state in and out; convolution 4."""
    mixer = StateSpace(heads=3, head_dim=4, groups=2, state=5)
    shape = {"layers": 6, "hidden": 8, "heads": 2, "kv_heads": 2, "ffn": 16, "vocab": 50}
    hybrid = Decoder("small", **shape, state_space=mixer, attention_layers=1, ffn_layers=2)
    scan = 256 * (2 * 5 + 12) + 4 * 12 * 5 + 2 * 4 * (12 + 2 * 10)
    assert scan_flops(hybrid) == scan
    assert attention_flops(hybrid, 2, 10) == 2 * (2 * 16 * 55 + 10 * 3 * scan)
    projected = 2 * 12 + 2 * 10 + 3
    weights = 2 * 8 * (8 + 8) + 2 * 3 * 8 * 16 + 3 * 8 * (projected + 12)
    assert hybrid.matrices == weights
    assert forward_flops(hybrid, 2, 10) == 2 * 20 * (weights + 400) + attention_flops(hybrid, 2, 10)
