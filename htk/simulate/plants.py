"""Things to find: what is wrong on purpose, where, and by how much."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from htk.simulate.config import Config
from htk.simulate.groups import Group
from htk.simulate.instructions import Activity

_FACTORS = {"straggler": 1.25, "slow_link": 2.5, "cpu_bound": 6.0, "regressed_kernel": 1.6}
_STALL_MS = 60.0
_CLOCK_MS = 2.5  # a second host is ahead by so much
_UNLINKED = 40  # the launch, by number, that is not recorded


class Plants:
    """What was not given with a plant is drawn, or usual."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._given = config.planted
        self._drawn = int(np.random.default_rng([config.seed, 41]).integers(0, config.ranks))
        self.regressed = "silu_functor" if config.decoder.gated else "gelu_functor"
        self._regressed_from = self._step("regressed_kernel")
        self._is_regressed = self.has("regressed_kernel")
        self._regressed_by = self._factor("regressed_kernel")

    def has(self, name: str) -> bool:
        return name in self._given

    def gpu_factor(self, step: int) -> NDArray[np.float64]:
        return self._of_rank("straggler", self.has("straggler"))

    def host_factor(self, step: int) -> NDArray[np.float64]:
        return self._of_rank("cpu_bound", self.has("cpu_bound") and step == self._step("cpu_bound"))

    def data_stall_ns(self, step: int) -> NDArray[np.int64]:
        found = np.zeros(self.config.ranks, np.int64)
        if self.has("data_stall") and step == self._step("data_stall"):
            found[self._rank("data_stall")] = self._ns("data_stall", _STALL_MS)
        return found

    def link_factor(self, group: Group) -> NDArray[np.float64]:
        """Groups with a member on the slow node, of those that leave a node if there are several.

        With one node all of its groups are slow.
        """
        found = np.ones(len(group.members))
        if self.has("slow_link") and (group.nodes > 1 or self.config.nodes == 1):
            node = group.table // self.config.gpus_per_node
            found[(node == self._slow_node).any(axis=1)] = self._factor("slow_link")
        return found

    def kernel_factor(self, activity: Activity, step: int) -> float:
        regressed = self._is_regressed and step >= self._regressed_from
        return self._regressed_by if regressed and self.regressed in activity.name else 1.0

    def offset_ns(self, rank: int) -> int:
        """How far a rank's clock is ahead."""
        host = rank // self.config.gpus_per_node
        spread = 1e3 * self.config.clock_offset_us
        own = np.random.default_rng([self.config.seed, 43, rank]).normal(0, spread)
        planted = self._ns("clock_offset", _CLOCK_MS) if self.has("clock_offset") else 0
        return round(own) + host * planted

    def drift_ppm(self, rank: int) -> float:
        spread = self.config.clock_drift_ppm
        return float(np.random.default_rng([self.config.seed, 47, rank]).normal(0, spread))

    def unlinked(self, rank: int) -> int:
        """The launch, by number, that is not recorded; -1: none."""
        here = self.has("unlinked_launch") and rank == self._unlinked_rank
        return int(self._value("unlinked_launch", "launch", _UNLINKED)) if here else -1

    def described(self) -> list[dict[str, Any]]:
        """For the sidecar."""
        return [{"plant": name, **self._described(name)} for name in self._given]

    def _described(self, name: str) -> dict[str, Any]:
        step = self.config.first_step + self._step(name)
        if name == "straggler":
            return {"rank": self._rank(name), "factor": self._factor(name)}
        if name == "slow_link":
            return {"node": self._slow_node, "factor": self._factor(name)}
        if name == "data_stall":
            return {"rank": self._rank(name), "step": step, "ns": self._ns(name, _STALL_MS)}
        if name == "cpu_bound":
            return {"rank": self._rank(name), "step": step, "factor": self._factor(name)}
        if name == "clock_offset":
            return {"ns_by_host": self._ns(name, _CLOCK_MS)}
        if name == "regressed_kernel":
            return {"name": self.regressed, "from_step": step, "factor": self._factor(name)}
        if name == "missing_rank":
            return {"rank": self.config.missing}
        rank = self._unlinked_rank
        return {"rank": rank, "launch": self.unlinked(rank)}

    @property
    def _slow_node(self) -> int:
        return int(self._value("slow_link", "node", self.config.nodes - 1))

    @property
    def _unlinked_rank(self) -> int:
        return int(self._value("unlinked_launch", "rank", self.config.written[0]))

    def _value(self, name: str, key: str, usual: float) -> float:
        return self._given.get(name, {}).get(key, usual)

    def _rank(self, name: str) -> int:
        return int(self._value(name, "rank", self._drawn))

    def _step(self, name: str) -> int:
        """Counted from the first."""
        first = self.config.first_step
        return int(self._value(name, "step", first + self.config.steps // 2)) - first

    def _factor(self, name: str) -> float:
        return self._value(name, "factor", _FACTORS[name])

    def _ns(self, name: str, usual_ms: float) -> int:
        return round(1e6 * self._value(name, "ms", usual_ms))

    def _of_rank(self, name: str, planted: bool) -> NDArray[np.float64]:
        found = np.ones(self.config.ranks)
        if planted:
            found[self._rank(name)] = self._factor(name)
        return found
