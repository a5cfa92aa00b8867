"""Laws of kernel time, worked out by hand on an H100: 989 TFLOP/s, 3,350 GB/s."""

import numpy as np
import pytest

from htk.physics.hardware import gpu
from htk.physics.kernel_laws import LAWS

H100 = gpu("h100")


def _time(op: str, number_format: str = "bf16", **sizes: float) -> float:
    arrays = {name: np.array([float(size)]) for name, size in sizes.items()}
    return float(LAWS[op](H100, number_format, arrays)[0])


def test_a_large_product_computes() -> None:
    """By the fastest products that were measured on an H100: 794.5 and 1402.6 TFLOP/s."""
    computing = 2 * 8192**3 / 794.5e3
    assert _time("matmul", m=8192, n=8192, k=8192) == pytest.approx(computing, rel=0.01)
    half = _time("matmul", "fp8", m=8192, n=8192, k=8192)
    assert half == pytest.approx(computing * 794.5 / 1402.6, rel=0.03)


def test_a_product_of_one_row_reads_weights() -> None:
    reading = 2 * 8192 * 8192 / 3350
    assert _time("matmul", m=1, n=8192, k=8192) == pytest.approx(2_000 + reading, rel=0.01)


def test_a_window_bounds_what_a_token_sees() -> None:
    sizes = {"batch": 8, "heads": 32, "kv_heads": 8, "head_dim": 128}
    full = _time("attention_prefill", seq=32_768, window=0, **sizes)
    narrow = _time("attention_prefill", seq=32_768, window=1_024, **sizes)
    pairs = 1_024 * (32_768 - 512) / (32_768**2 / 2)
    assert narrow / full == pytest.approx(pairs, rel=0.1)


def test_decoding_reads_keys_and_values() -> None:
    sizes = {"batch": 64, "heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0}
    reading = 2 * 64 * 8 * 128 * 4096 * 2 / 3350
    assert _time("attention_decode", seq=4096, **sizes) == pytest.approx(reading + 5e3, rel=0.05)


def test_few_tokens_read_the_experts_that_they_take() -> None:
    sizes = {"hidden": 4096, "ffn": 1536, "topk": 8, "experts": 128, "tp": 1, "ep": 1}
    reading = 8 * 3 * 4096 * 1536 * 2 / 3350
    assert _time("experts", tokens=1, **sizes) == pytest.approx(reading + 1e4, rel=0.01)


def test_an_all_reduce_sends_twice_what_a_gather_does() -> None:
    sizes = {"ranks": 8, "bytes": 1e9}
    assert _time("all_gather", **sizes) == pytest.approx(7 / 8 * 1e9 / 450 + 5e3)
    twice = _time("all_reduce", **sizes) - 5e3
    assert twice == pytest.approx(2 * (_time("all_gather", **sizes) - 5e3))
