"""Bytes of keys and values, as papers state them."""

import pytest

from htk.physics.presets import decoder
from htk.planning.serving.kv_cache import kept_tokens, request_bytes, token_bytes


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        # Table 1 of "Insights into DeepSeek-V3" (2025), in bf16.
        ("deepseek-v3", 70_272), ("llama3-405b", 516_096),
        # 2 · 80 layers · 8 heads · 128 · 2 bytes, and 2 · 32 · 32 · 128 · 2 of plain attention.
        ("llama3-70b", 327_680), ("llama2-7b", 524_288), ("llama3-8b", 131_072),
    ],
)  # fmt: skip
def test_a_token_takes_what_papers_state(name: str, stated: int) -> None:
    assert token_bytes(decoder(name), 2) == stated
    assert token_bytes(decoder(name), 1) == stated / 2
    assert request_bytes(decoder(name), 1000, 2) == 1000 * stated


def test_heads_are_spread_until_each_gpu_has_one() -> None:
    model = decoder("llama3-70b")
    assert [token_bytes(model, 2, t) * t / 327_680 for t in (1, 2, 4, 8)] == [1, 1, 1, 1]
    assert token_bytes(model, 2, 16) * 16 == 2 * 327_680  # each of 8 heads on two GPUs


def test_latent_vectors_are_whole_on_each_gpu() -> None:
    assert token_bytes(decoder("deepseek-v3"), 2, 8) == 70_272


def test_windowed_layers_keep_their_window() -> None:
    model = decoder("gpt-oss-20b")  # 12 of 24 layers look back 128 tokens
    assert kept_tokens(model, 100) == 2400
    assert kept_tokens(model, 1000) == 12 * 1000 + 12 * 128
    each = 2 * 2 * 8 * 64
    assert request_bytes(model, 1000, 2) == each * (12 * 1000 + 12 * 128)


def test_a_state_space_keeps_the_same_whatever_the_length() -> None:
    model = decoder("nemotron-3-nano")
    short, long = (request_bytes(model, n, 2) for n in (1_000, 9_000))
    assert long - short == 8_000 * 6 * 2 * 2 * 2 * 128  # 6 layers of attention, 2 heads
    inner, state, channels = 64 * 64, 128, 64 * 64 + 2 * 8 * 128
    of_states = 23 * (4 * inner * state + 2 * 3 * channels)
    assert short == of_states + 1_000 * 6 * 2 * 2 * 2 * 128
