"""Layers of decoders: attention by pairs of tokens, experts by the fastest of their kernels."""

from dataclasses import replace

import pytest

from htk.physics.hardware import gpu
from htk.physics.kernel_time import time_kernel
from htk.physics.layer_time import time_attention, time_experts
from htk.physics.presets import decoder

H100 = gpu("h100")


def test_attention_is_that_of_each_layer_and_its_window() -> None:
    model = decoder("gpt-oss-120b")  # every second layer looks back 128 tokens
    each = [
        time_kernel(H100, "attention_prefill", "bf16", 8192, (64, w, 2, 8, 1), fastest=True)
        for w in (0, 128)
    ]
    assert each[1] < 0.3 * each[0]
    assert time_attention(model, H100, 8, 2, 8192) == pytest.approx(18 * each[0] + 18 * each[1])


def test_attention_costs_pairs_of_tokens() -> None:
    model = decoder("llama3-70b")
    short, long = (time_attention(model, H100, 1, 1, seq) for seq in (8192, 16384))
    assert 3.3 < long / short <= 4.0
    assert time_attention(model, H100, 8, 1, 16384) < 0.2 * long


def test_experts_take_the_fastest_kernel_that_is_as_exact() -> None:
    model = decoder("qwen3-235b-a22b")
    wide, narrow = (
        time_experts(model, H100, kept, 4096, "balanced", 4) for kept in ("bf16", "fp8")
    )
    shape = (4096, 1536, 4, 8, 128, 1)
    by_block = time_kernel(H100, "experts", "fp8_block/balanced", 4096, shape, fastest=True)
    assert narrow <= by_block and narrow <= wide
    two = replace(model, gated=False)  # two matrices, not three
    assert time_experts(two, H100, "bf16", 4096, "balanced", 4) == pytest.approx(2 * wide / 3)
