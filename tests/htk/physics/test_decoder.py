"""Decoders by numbers that others publish or that can be counted on paper."""

from dataclasses import replace

import pytest

from htk.base.errors import UsageError
from htk.physics.decoder import (
    Decoder,
    LatentAttention,
    StateSpace,
    attention_flops,
    attention_pairs,
    forward_flops,
    model_flops,
    scan_flops,
    score_flops,
)
from htk.physics.presets import decoder


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
    assert tiny.matrices // tiny.layers == 16 + 8 + 8 + 16 + 3 * 24
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
    expected = tokens * mixtral.matrices + logits + attention
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
    mixer = StateSpace(heads=3, head_dim=4, groups=3, state=5)
    shape = {"layers": 6, "hidden": 8, "heads": 2, "kv_heads": 2, "ffn": 16, "vocab": 50}
    hybrid = Decoder("small", **shape, state_space=mixer, attention_layers=1, ffn_layers=2)
    scan = 256 * (3 * 5 + 12) + 4 * 12 * 5 + 2 * 4 * (12 + 2 * 15)
    assert scan_flops(hybrid) == scan
    assert scan_flops(replace(hybrid, state_space=None)) == 0
    assert attention_flops(hybrid, 2, 10) == 2 * (2 * 16 * 55 + 10 * 3 * scan)
    projected = 2 * 12 + 2 * 15 + 3
    weights = 2 * 8 * (8 + 8) + 2 * 3 * 8 * 16 + 3 * 8 * (projected + 12)
    assert hybrid.matrices == weights
    assert forward_flops(hybrid, 2, 10) == 2 * 20 * (weights + 400) + attention_flops(hybrid, 2, 10)


def test_vectors_of_state_spaces_by_hand() -> None:
    """A norm before each of 6 layers. Of each of the 3 state spaces: a convolution of 4 with its
    bias over the input, B and C; a decay, a skip and a step a head; a norm of what comes out."""
    mixer = StateSpace(heads=3, head_dim=4, groups=3, state=5)
    shape = {"layers": 6, "hidden": 8, "heads": 2, "kv_heads": 2, "ffn": 16, "vocab": 50}
    hybrid = Decoder("small", **shape, state_space=mixer, attention_layers=1, ffn_layers=2)
    convolution = (12 + 15 + 15) * 4 + (12 + 15 + 15)
    assert hybrid.vectors == 6 * 8 + 3 * (convolution + 3 + 3 + 3 + 12)


def test_latent_attention_by_hand() -> None:
    """Hidden 10, three heads: queries of 4 + 2, values of 6, narrow vectors of 7 and of 5."""
    narrow = LatentAttention(query_rank=7, kv_rank=5, nope_dim=4, rope_dim=2, value_dim=6)
    shape = {"layers": 1, "hidden": 10, "heads": 3, "kv_heads": 3, "ffn": 16, "vocab": 50}
    model = Decoder("small", **shape, latent=narrow)
    assert (model.query_width, model.value_width) == (18, 18)
    beside = 10 * (5 + 2) + (5 * 3 * 4 + 5 * 3 * 6) + 3 * 6 * 10  # down, up to k and v, out
    assert model.attention_matrices == 10 * 7 + 7 * 18 + beside
    at_once = replace(model, latent=replace(narrow, query_rank=0))
    assert at_once.attention_matrices == 10 * 18 + beside


def test_vectors_with_biases_by_hand() -> None:
    """Four norms of scale and shift; q 12, k and v 4 each, out 10; 16 inside, 10 out: two layers.
    With gates a norm is a scale, and 16 twice."""
    shape = {"layers": 2, "hidden": 10, "heads": 3, "kv_heads": 1, "ffn": 16, "vocab": 50}
    model = Decoder("small", **shape, head_size=4, gated=False)
    attention = 12 + 4 + 4 + 10
    assert model.vectors == 2 * (2 * 2 * 10 + attention + 16 + 10)
    assert model.root_parameters == 2 * 50 * 10 + 2 * 10
    assert replace(model, biases=False).vectors == 2 * 2 * 10
    assert replace(model, biases=False).root_parameters == 2 * 50 * 10 + 10
    gated = replace(model, gated=True, biases=True)
    assert gated.vectors == 2 * (2 * 10 + attention + 2 * 16 + 10)
    of_three = replace(gated, experts=3, active_experts=1)
    assert of_three.vectors == 2 * (2 * 10 + attention + 3 * (2 * 16 + 10))


def test_the_last_sizes_that_make_a_decoder() -> None:
    """Layers, heads and experts may just be used up; one more is refused."""
    shape = {"layers": 5, "hidden": 8, "heads": 2, "ffn": 16, "vocab": 50}
    mixer = StateSpace(heads=3, head_dim=4, groups=3, state=5)
    mixed = shape | {"state_space": mixer, "attention_layers": 2}
    assert decoder("own", **mixed, ffn_layers=3).state_space_layers == 0
    with pytest.raises(UsageError, match="more than the 5 layers"):
        decoder("own", **mixed, ffn_layers=4)
    experts = shape | {"experts": 3}
    assert decoder("own", **experts, active_experts=3, dense_layers=5).moe_layers == 0
    with pytest.raises(UsageError, match="4 active of 3"):
        decoder("own", **experts, active_experts=4)
    with pytest.raises(UsageError, match="6 dense of 5"):
        decoder("own", **experts, dense_layers=6)
    assert decoder("own", **shape | {"hidden": 9}, head_size=4).query_width == 8
    with pytest.raises(UsageError, match="do not make a decoder"):
        decoder("own", **shape | {"hidden": 9})
    for size in ("layers", "hidden", "heads", "ffn", "vocab"):
        assert getattr(decoder("own", **shape | {"hidden": 2, "heads": 2} | {size: 2}), size) == 2
        with pytest.raises(UsageError, match="do not make a decoder"):
            decoder("own", **shape | {"kv_heads": 1, size: 0})
    with pytest.raises(UsageError, match="do not make a decoder"):
        decoder("own", **shape, head_size=-4)
