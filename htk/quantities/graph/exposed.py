"""Exposed communication and idle time of devices in a replay."""

from dataclasses import dataclass

from htk.base.columns.types import Ints
from htk.quantities.graph.build import Graph
from htk.quantities.graph.overlaps import measure_busy_sets


@dataclass(frozen=True)
class BusyDevices:
    """What the devices of a step do, in ns: sums over all of them, and means of one."""

    devices: int
    computing_ns: int
    computing_or_communicating_ns: int
    busy_ns: int

    @classmethod
    def from_graph(cls, graph: Graph, time: Ints) -> "BusyDevices":
        of_devices = [measure_busy_sets(time, sets) for sets in graph.of_devices]
        by_set = list(zip((0, 0, 0), *of_devices, strict=True))
        return cls(len(of_devices), sum(by_set[0]), sum(by_set[1]), sum(by_set[2]))

    @property
    def exposed_ns(self) -> int:
        """The time of all devices in which communication is exposed."""
        return self.computing_or_communicating_ns - self.computing_ns

    @property
    def computing(self) -> float:
        return self.computing_ns / max(self.devices, 1)

    @property
    def exposed(self) -> float:
        return self.exposed_ns / max(self.devices, 1)

    def idle(self, period: int) -> float:
        """Return how long of a step a device runs nothing."""
        return max(period - self.busy_ns / max(self.devices, 1), 0.0)
