"""How long things take here. The simulator's own: nothing else may read these functions.

A matrix product picks a tile from a table by its shape and runs in whole waves; its rate, and every
other constant, is drawn from the seed. So what is predicted from a trace cannot have known it.
"""

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from htk.simulate.config import Config

_FLOOR_NS = 1900


@dataclass(frozen=True)
class Gemm:
    ns: int
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


class Times:
    """Durations in ns, without noise."""

    def __init__(self, config: Config) -> None:
        rng = np.random.default_rng([config.seed, 17])
        device = config.device
        best = device.achievable_half_tflops
        if config.precision == "fp32":
            best = device.tf32_tflops or device.fp32_tflops or best / 8
        self._units = device.units
        self._amd = device.vendor == "amd"
        self._rate = best * 1e3 * rng.uniform(0.90, 0.98)  # operations per ns
        self._ramp = rng.uniform(180, 420)  # inner length at which half the rate is reached
        self._memory = device.memory_gbps * rng.uniform(0.76, 0.87)  # bytes per ns
        self._cache = rng.uniform(1.3, 1.8)  # gain of what fits in the cache
        self._attention = rng.uniform(*config.attention)
        self._architecture = device.architecture
        self._intra = (config.intra_gbps or device.scale_up_gbps) * rng.uniform(0.76, 0.84)
        per_node = config.inter_gbps or device.scale_out_gbps * config.gpus_per_node
        self._inter = per_node * rng.uniform(0.90, 0.97)
        self._half = rng.uniform(1.5e6, 4e6)  # message of half the bandwidth
        self._hop = rng.uniform(0.9, 1.2)
        self._bend = rng.uniform(0.75, 1.15)  # how sharply products reach their rate with k
        self._config = config

    def gemm(self, m: int, n: int, k: int, layout: str) -> Gemm:
        tall, wide, share, blocks = self._tile(m, n)
        waves = ceil(blocks / self._units)
        reach = 1 / (1 + (self._ramp / k) ** self._bend)
        wave_ns = 2 * tall * wide * k * self._units / (self._rate * share * reach)
        moved_ns = self._config.element_bytes * (m * k + k * n + m * n) / self._memory
        work_ns = (float(waves * wave_ns) ** 4 + moved_ns**4) ** 0.25  # a rounded roofline
        name = self._gemm_name(tall, wide, layout)
        grid = (ceil(n / wide), ceil(m / tall), 1)
        return Gemm(_FLOOR_NS + round(work_ns), name, grid, (256 if tall > 64 else 128, 1, 1))

    def attention(self, flops: int, moved: int) -> int:
        work = flops / (self._rate * self._attention)
        return _FLOOR_NS + 1500 + round(max(work, moved / self._memory))

    def elementwise(self, moved: int) -> int:
        fast = self._cache if moved < 24e6 else 1.0
        return _FLOOR_NS + round(moved / (self._memory * fast))

    def copy(self, moved: int) -> int:
        """From pinned host memory."""
        return 1400 + round(moved / 22.0)

    def collective(self, wire: int, ranks: int, nodes: int, per_node: int) -> int:
        """Once every rank is there; `per_node` members of the group in each node."""
        given = self._config
        hop = given.intra_latency_us if nodes == 1 else given.inter_latency_us
        latency = 1e3 * hop * self._hop * (1 + log2(ranks))
        rate = self._intra
        if nodes > 1:
            rate = min(rate, self._inter * per_node / given.gpus_per_node)
        return round(latency + (wire + self._half / (1 + wire / self._half)) / rate)

    def _tile(self, m: int, n: int) -> tuple[int, int, float, int]:
        """The largest that still fills half of the device."""
        tiles = self._config.tiles
        found = [(t, w, share, ceil(m / t) * ceil(n / w)) for t, w, share in tiles]
        return next((f for f in found if f[3] >= self._units // 2), found[-1])

    def _gemm_name(self, tall: int, wide: int, layout: str) -> str:
        if self._amd:
            return f"Cijk_Ailk_Bljk_BBS_BH_MT{tall}x{wide}x64_MI16x16x16x1_{layout}"
        if self._architecture == "ampere":
            return f"ampere_bf16_s16816gemm_bf16_{tall}x{wide}_ldg8_f2f_stages_64x3_{layout}"
        return f"nvjet_tst_{tall}x{wide}_64x4_2x1_v_bz_{layout.upper()}"
