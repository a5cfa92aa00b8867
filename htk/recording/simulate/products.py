"""How long matrix products take on this GPU. The simulator's own, unlike what predictions assume.

The library picks the tile that it expects to be fastest, and splits the inner dimension of
products with few blocks. Blocks of older architectures run in waves, of which the last, partial
one is faster than its blocks alone would be; on Hopper and Blackwell persistent blocks share the
work evenly. Tiles are read again from memory when they leave the cache, the rate is reached with
the inner dimension by a curve that the seed draws, and a GPU slows down while it works hard.
"""

from dataclasses import dataclass
from math import ceil, exp

import numpy as np

from htk.recording.simulate.config import Config

_PERSISTENT = ("hopper", "blackwell")
_LEAST_INNER = 1024  # of a part of a split product


@dataclass(frozen=True)
class Gemm:
    ns: int
    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


@dataclass(frozen=True)
class _Tiling:
    """How a product is cut into blocks."""

    tall: int
    wide: int
    rate: float  # of this tile, relative to the best
    rows: int  # of blocks
    columns: int
    parts: int  # of the inner dimension

    @property
    def blocks(self) -> int:
        return self.rows * self.columns * self.parts


class ProductTimes:
    """`rate`: operations per ns of the best tile; `memory`: bytes per ns."""

    def __init__(self, config: Config, rate: float, memory: float) -> None:
        rng = np.random.default_rng([config.seed, 13])
        self._config = config
        self._rate = rate
        self._memory = memory
        self._units = config.device.units
        self._persistent = config.device.architecture in _PERSISTENT
        self._fill_ns = float(rng.uniform(500, 1400))  # of a block's pipeline
        self._ramp = float(rng.uniform(180, 420))  # inner length at which half the rate is reached
        if config.precision == "fp32":  # vector units get less far while a block loads its first
            self._ramp *= rate / (1e3 * config.device.achievable_half_tflops)
        self._bend = float(rng.uniform(0.75, 1.15))  # how sharply it is reached
        self._lone = float(rng.uniform(0.55, 0.90))  # of a wave, the time of one with few blocks
        self._swath = int(rng.integers(4, 13))  # tiles side by side whose operands stay cached
        self._corner = float(rng.uniform(2.5, 5.0))  # how sharply the roofline bends
        self._throttled = float(rng.uniform(0.02, 0.10))  # slower once power is limited
        self._warm_ns = float(rng.uniform(60e3, 400e3))  # until it is

    def timed(self, m: int, n: int, k: int, layout: str) -> Gemm:
        """Return the kernel of an (m, k) by (k, n) product."""
        tiling = min(self._list_tilings(m, n, k), key=lambda t: self._expect_time(t, k))
        work = self._compute_ns(tiling, k) ** self._corner
        moved = self._memory_ns(tiling, m, n, k) ** self._corner
        calm = (work + moved) ** (1 / self._corner)
        busy = calm * (1 + self._throttled * (1 - exp(-calm / self._warm_ns)))
        threads = 256 if tiling.tall > 64 else 128
        return Gemm(
            round(self._fill_ns + busy),
            self._name(tiling.tall, tiling.wide, layout),
            self._find_grid(tiling),
            (threads, 1, 1),
        )

    def _list_tilings(self, m: int, n: int, k: int) -> list[_Tiling]:
        cut = []
        for tall, wide, rate in self._config.tiles:
            rows = ceil(m / tall)
            columns = ceil(n / wide)
            parts = 1
            while 2 * parts * rows * columns <= self._units and k >= 2 * parts * _LEAST_INNER:
                parts *= 2
            cut.append(_Tiling(tall, wide, rate, rows, columns, parts))
        return cut

    def _expect_time(self, tiling: _Tiling, k: int) -> float:
        """By whole waves at the tile's rate: what a library's heuristic knows."""
        waves = ceil(tiling.blocks / self._units)
        return waves * tiling.tall * tiling.wide * k / tiling.parts / tiling.rate

    def _compute_ns(self, tiling: _Tiling, k: int) -> float:
        inner = k / tiling.parts
        reached = 1 / (1 + float((self._ramp / inner) ** self._bend))
        block = 2 * tiling.tall * tiling.wide * inner * self._units
        wave_ns = block / (self._rate * tiling.rate * reached)
        waves = tiling.blocks / self._units
        if self._persistent:
            return wave_ns * max(waves, self._lone)
        full_waves = int(waves)
        rest = waves - full_waves
        return wave_ns * (full_waves + (self._lone + (1 - self._lone) * rest if rest else 0.0))

    def _memory_ns(self, tiling: _Tiling, m: int, n: int, k: int) -> float:
        left = m * k * ceil(tiling.columns / self._swath)
        right = k * n * ceil(tiling.rows / self._swath)
        moved = self._config.element_bytes * (left + right + m * n)
        summed = 8 * m * n * (tiling.parts - 1)  # partial results, written and read
        return (moved + summed) / self._memory

    def _find_grid(self, tiling: _Tiling) -> tuple[int, int, int]:
        if self._persistent and tiling.blocks > self._units:
            return self._units, 1, 1
        return tiling.columns, tiling.rows, tiling.parts

    def _name(self, tall: int, wide: int, layout: str) -> str:
        device = self._config.device
        if self._config.precision != "bf16":
            return self._name_of_single_precision(tall, wide, layout)
        if device.vendor == "amd":
            return f"Cijk_Ailk_Bljk_BBS_BH_MT{tall}x{wide}x64_MI16x16x16x1_{layout}"
        if device.architecture == "ampere":
            return f"ampere_bf16_s16816gemm_bf16_{tall}x{wide}_ldg8_f2f_stages_64x3_{layout}"
        return f"nvjet_tst_{tall}x{wide}_64x4_2x1_v_bz_{layout.upper()}"

    def _name_of_single_precision(self, tall: int, wide: int, layout: str) -> str:
        """As `Times` takes its rate: of matrix units for TF32."""
        device = self._config.device
        if device.vendor == "amd":
            return f"Cijk_Ailk_Bljk_S_B_MT{tall}x{wide}x16_MI16x16x4x1_{layout}"
        if self._config.precision == "fp32":
            return f"{device.architecture}_sgemm_{tall}x{wide}_{layout}"
        sm = "sm80" if device.architecture == "ampere" else "sm90"
        return f"{sm}_xmma_gemm_f32f32_tf32f32_f32_{layout}_n_tilesize{tall}x{wide}x32_cublas"
