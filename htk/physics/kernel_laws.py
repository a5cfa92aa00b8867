"""Laws of kernel time: what a data sheet says of an operation, before anything was measured.

The atlas keeps what measured kernels took over these, so a law has to have the right shape rather
than the right height. Sizes are arrays; times are in ns.
"""

from collections.abc import Callable, Mapping

import numpy as np

from htk.base.columns.types import Floats
from htk.physics.hardware import OF_PEAK, Gpu

Sizes = Mapping[str, Floats]
# Of a format: the units that multiply it, bytes of an activation, bytes of a weight.
FORMATS: Mapping[str, tuple[str, float, float]] = {
    "bf16": ("bf16", 2, 2),
    "fp8": ("fp8", 1, 1),
    "fp8_block": ("fp8", 1, 1),
    "fp4": ("fp4", 0.5625, 0.5625),
    "int8_weights": ("bf16", 2, 1),
    "int4_weights": ("bf16", 2, 0.5625),
    "fp4_weights": ("bf16", 2, 0.53125),
    "tf32": ("tf32", 4, 4),
    "fp32": ("fp32", 4, 4),
}
_MEASURED_UNITS = ("bf16", "fp8")
_RESULT_BYTES = 2
_STARTS_NS = {"matmul": 2e3, "attention": 5e3, "experts": 1e4, "collective": 5e3}
_NO_WINDOW = 2.0**40
_SENT = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "alltoall": 1.0}


def operations_a_ns(gpu: Gpu, number_format: str) -> float:
    """Return the rate of the fastest product of a format; of 16 bits where it has no such units."""
    units = FORMATS[number_format][0]
    peak: float | None = getattr(gpu, f"{units}_tflops")
    if peak is None:
        return 1e3 * gpu.achievable_half_tflops
    measured = gpu.achievable_tflops(units) if units in _MEASURED_UNITS else None
    return 1e3 * (measured or OF_PEAK * peak)


def time_products(
    gpu: Gpu, number_format: str, sizes: Sizes, groups: Floats | float = 1.0
) -> Floats:
    """Return the time of a product of m rows by k, and k by n columns; of so many groups of rows,
    each with columns of its own."""
    m = sizes["m"]
    n = sizes["n"]
    k = sizes["k"]
    _, operand, weight = FORMATS[number_format]
    computing = 2 * m * n * k / operations_a_ns(gpu, number_format)
    moved = operand * m * k + groups * weight * k * n + _RESULT_BYTES * m * n
    return np.hypot(computing, moved / gpu.memory_gbps) + _STARTS_NS["matmul"]


def _count_seen(sizes: Sizes) -> Floats:
    window = np.where(sizes["window"] > 0, sizes["window"], _NO_WINDOW)
    return np.minimum(sizes["seq"], window)


def time_prefill(gpu: Gpu, number_format: str, sizes: Sizes) -> Floats:
    """Return the time of causal attention over whole prompts."""
    batch = sizes["batch"]
    seq = sizes["seq"]
    heads = sizes["heads"]
    width = sizes["head_dim"]
    seen = _count_seen(sizes)
    pairs = seen * (seq - seen / 2)
    computing = 4 * batch * heads * width * pairs / operations_a_ns(gpu, number_format)
    moved = 4 * batch * seq * width * (heads + sizes["kv_heads"])
    return np.hypot(computing, moved / gpu.memory_gbps) + _STARTS_NS["attention"]


def time_decode(gpu: Gpu, number_format: str, sizes: Sizes) -> Floats:
    """Return the time of attention of one token each over what is cached."""
    seen = _count_seen(sizes)
    width = sizes["head_dim"]
    cached = 2 * sizes["batch"] * sizes["kv_heads"] * width * seen
    computing = 4 * sizes["batch"] * sizes["heads"] * width * seen / operations_a_ns(gpu, "bf16")
    moved = FORMATS[number_format][1] * cached
    return np.hypot(computing, moved / gpu.memory_gbps) + _STARTS_NS["attention"]


def time_experts(gpu: Gpu, number_format: str, sizes: Sizes) -> Floats:
    """Return the time of a rank's gated experts for the tokens that all ranks send around."""
    tokens = sizes["tokens"]
    hidden = sizes["hidden"]
    topk = sizes["topk"]
    width = sizes["ffn"] / sizes["tp"]
    weight = FORMATS[number_format][2]
    rows = tokens * topk / sizes["ep"]
    taken = 1 - (1 - np.minimum(topk / sizes["experts"], 1.0)) ** tokens
    own = np.maximum(sizes["experts"] / sizes["ep"] * taken, 1.0)
    computing = 6 * rows * hidden * width / operations_a_ns(gpu, number_format)
    moved = 3 * weight * own * hidden * width + 2 * rows * (3 * hidden + 3 * width)
    return np.hypot(computing, moved / gpu.memory_gbps) + _STARTS_NS["experts"]


def _time_collective(name: str) -> Callable[[Gpu, str, Sizes], Floats]:
    def time_collective(gpu: Gpu, number_format: str, sizes: Sizes) -> Floats:
        """Return the time of a collective within a node."""
        ranks = sizes["ranks"]
        sent = _SENT[name] * (ranks - 1) / ranks * sizes["bytes"]
        return sent / gpu.scale_up_gbps + _STARTS_NS["collective"]

    return time_collective


LAWS: Mapping[str, Callable[[Gpu, str, Sizes], Floats]] = {
    "matmul": time_products,
    "attention_prefill": time_prefill,
    "attention_decode": time_decode,
    "experts": time_experts,
    **{name: _time_collective(name) for name in _SENT},
}
