"""How long attention and experts of a decoder's layers take, as measured kernels do."""

from htk.physics.decoder import Decoder
from htk.physics.hardware import Gpu
from htk.physics.kernel_time import time_kernel

# Attention backward took 2.7 times as long as forward by FlashAttention and 3.2 by cuDNN on an H100
# (median of 24 sizes, bench/gpu/recorded/kernels.csv).
ATTENTION_BACKWARD = 2.8
SERVED_SPREAD = "power_law_1.01"  # of tokens over experts, as served text chooses them
_GATED = 3  # matrices of a measured expert
# Formats whose kernels compute as exactly, where the format's own are slower still: libraries lie
# up to three times apart, and an engine takes the fastest.
_OTHERS = {"fp8": ("fp8_block", "bf16"), "fp4": ("fp8", "fp8_block", "bf16")}


def time_attention(model: Decoder, gpu: Gpu, tensor: int, batch: float, seq: float) -> float:
    """Return the time of causal attention forward over whole sequences, of all layers."""
    width = (model.query_width + model.value_width) / 2 / model.heads
    keys = model.heads if model.latent else model.kv_heads
    windowed = min(model.windowed_layers, model.mixers) if model.window else 0
    total = 0.0
    for layers, window in ((model.mixers - windowed, 0), (windowed, model.window)):
        if layers:
            shape = (width, window, batch, max(model.heads / tensor, 1), max(keys / tensor, 1))
            each = time_kernel(gpu, "attention_prefill", "bf16", seq, shape, fastest=True)
            total += layers * each
    return total


def time_experts(
    model: Decoder, gpu: Gpu, number_format: str, tokens: float, spread: str, tensor: int,
    expert_parallel: int = 1,
) -> float:  # fmt: skip
    """Return the time of one layer's experts forward, of tokens spread so: balanced, power_law_…"""
    width = model.expert_input or model.hidden
    shape = (width, model.ffn, tensor, model.active_experts, model.experts, expert_parallel)
    each = min(
        time_kernel(gpu, "experts", f"{kept}/{spread}", tokens, shape, fastest=True)
        for kept in (number_format, *_OTHERS.get(number_format, ()))
    )
    return model.ways / _GATED * each
