"""Things to find: what is wrong on purpose, where, and by how much."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.simulate.config import Config
from htk.simulate.groups import Group
from htk.simulate.instructions import Activity

_STRAGGLER, _SLOW_LINK, _REGRESSED = 1.25, 2.5, 1.6
_STALL_NS = 60_000_000
_CPU_BOUND = 6.0
_CLOCK_NS = 2_500_000  # a second host is ahead by so much
UNLINKED = 40  # the launch, by number, that is not recorded


class Plants:
    def __init__(self, config: Config) -> None:
        self.config = config
        self._rng = np.random.default_rng([config.seed, 41])
        self.rank = int(self._rng.integers(0, config.ranks))
        self.step = config.steps // 2
        self.node = config.nodes - 1
        self.regressed = "silu_functor" if config.decoder.gated else "gelu_functor"

    def has(self, name: str) -> bool:
        return name in self.config.plants

    def gpu_factor(self, step: int) -> NDArray[np.float64]:
        return self._of_rank(self.has("straggler"), _STRAGGLER)

    def host_factor(self, step: int) -> NDArray[np.float64]:
        return self._of_rank(self.has("cpu_bound") and step == self.step, _CPU_BOUND)

    def data_stall_ns(self, step: int) -> NDArray[np.int64]:
        found = np.zeros(self.config.ranks, np.int64)
        if self.has("data_stall") and step == self.step:
            found[self.rank] = _STALL_NS
        return found

    def link_factor(self, group: Group) -> NDArray[np.float64]:
        """Groups with a member on the slow node, of those that leave a node if there are several.

        With one node all of its groups are slow.
        """
        found = np.ones(len(group.members))
        if self.has("slow_link") and (group.nodes > 1 or self.config.nodes == 1):
            node = group.table // self.config.gpus_per_node
            found[(node == self.node).any(axis=1)] = _SLOW_LINK
        return found

    def kernel_factor(self, activity: Activity, step: int) -> float:
        regressed = self.has("regressed_kernel") and step >= self.step
        return _REGRESSED if regressed and self.regressed in activity.name else 1.0

    def offset_ns(self, rank: int) -> int:
        """How far a rank's clock is ahead."""
        host = rank // self.config.gpus_per_node
        spread = 1e3 * self.config.clock_offset_us
        own = np.random.default_rng([self.config.seed, 43, rank]).normal(0, spread)
        return round(own) + (host * _CLOCK_NS if self.has("clock_offset") else 0)

    def drift_ppm(self, rank: int) -> float:
        spread = self.config.clock_drift_ppm
        return float(np.random.default_rng([self.config.seed, 47, rank]).normal(0, spread))

    def described(self) -> list[dict[str, Any]]:
        """For the sidecar."""
        step = self.config.first_step + self.step
        every: dict[str, dict[str, Any]] = {
            "straggler": {"rank": self.rank, "factor": _STRAGGLER},
            "slow_link": {"node": self.node, "factor": _SLOW_LINK},
            "data_stall": {"rank": self.rank, "step": step, "ns": _STALL_NS},
            "cpu_bound": {"rank": self.rank, "step": step, "factor": _CPU_BOUND},
            "clock_offset": {"ns_by_host": _CLOCK_NS},
            "regressed_kernel": {"name": self.regressed, "from_step": step, "factor": _REGRESSED},
            "missing_rank": {"rank": self.config.ranks - 1},
            "unlinked_launch": {"rank": self.config.written[0], "launch": UNLINKED},
        }
        return [{"plant": name, **every[name]} for name in self.config.plants]

    def _of_rank(self, planted: bool, factor: float) -> NDArray[np.float64]:
        found = np.ones(self.config.ranks)
        if planted:
            found[self.rank] = factor
        return found
