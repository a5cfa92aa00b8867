"""How long things take here. The simulator's own: nothing else may read these functions.

Every rate is drawn from the seed, so what is predicted from a trace cannot have known it.
"""

import numpy as np

from htk.recording.simulate.config import Config
from htk.recording.simulate.network import ClusterNetwork, Transfer
from htk.recording.simulate.products import Gemm, ProductTimes

__all__ = ["Gemm", "Times"]

_FLOOR_NS = 1900


class Times:
    """Durations in ns, without noise."""

    def __init__(self, config: Config) -> None:
        rng = np.random.default_rng([config.seed, 17])
        device = config.device
        best = device.achievable_half_tflops
        if config.precision == "tf32":
            best = 0.8 * device.tf32_tflops if device.tf32_tflops else best / 2
        elif config.precision == "fp32":
            # So that large products reach what was measured on an H100, 49 of its 67 TFLOP/s.
            best = 0.83 * (device.fp32_matrix_tflops or device.fp32_tflops or best / 12)
        self._rate = best * 1e3 * rng.uniform(0.90, 0.98)  # operations per ns
        self._memory = device.memory_gbps * rng.uniform(0.76, 0.87)  # bytes per ns
        self._cache = rng.uniform(1.3, 1.8)  # gain of what fits in the cache
        self._attention = rng.uniform(*config.attention_rate)
        if config.precision != "bf16":  # for which there are no flash kernels
            self._attention /= 5.5 * self._rate / (device.achievable_half_tflops * 1e3)
        self._products = ProductTimes(config, self._rate, self._memory)
        self._network = ClusterNetwork(config)

    def gemm(self, m: int, n: int, k: int, layout: str) -> Gemm:
        product = self._products.timed(m, n, k, layout)
        return Gemm(_FLOOR_NS + product.ns, product.name, product.grid, product.block)

    def attention(self, flops: int, moved: int) -> int:
        work = flops / (self._rate * self._attention)
        return _FLOOR_NS + 1500 + round(max(work, moved / self._memory))

    def elementwise(self, moved: int) -> int:
        fast = self._cache if moved < 24e6 else 1.0
        return _FLOOR_NS + round(moved / (self._memory * fast))

    def copy(self, moved: int) -> int:
        """From pinned host memory."""
        return 1400 + round(moved / 22.0)

    def collective(self, kind: str, wire: int, ranks: int, nodes: int, per_node: int) -> Transfer:
        """Once every rank is there; `per_node` members of the group in each node."""
        return self._network.transfer(kind, wire, ranks, nodes, per_node)

    def message(self, size: int, *, far: bool) -> int:
        """From one rank to another, once both are there; `far`: of another node."""
        return self._network.message(size, far=far)
