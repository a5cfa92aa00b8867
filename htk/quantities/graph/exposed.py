"""Exposed communication and idle time of devices in a replay."""

from htk.base.columns.types import Ints
from htk.quantities.graph.build import Graph
from htk.quantities.graph.overlaps import busy


def exposed(graph: Graph, time: Ints) -> float:
    """Return the exposed communication, mean over devices, in ns."""
    return exposed_ns(graph, time) / max(len(graph.of_devices), 1)


def exposed_ns(graph: Graph, time: Ints) -> int:
    compute, also_comm, _ = _busy(graph, time)
    return also_comm - compute


def exposed_and_idle(graph: Graph, time: Ints, period: int) -> tuple[float, float]:
    """Return the exposed communication, and the time of a step in which a device runs nothing; mean
    over devices, in ns."""
    devices = max(len(graph.of_devices), 1)
    compute, also_comm, anything = _busy(graph, time)
    return (also_comm - compute) / devices, max(period - anything / devices, 0.0)


def computing(graph: Graph, time: Ints) -> float:
    """Return how long a device computes, mean over devices, in ns."""
    return _busy(graph, time)[0] / max(len(graph.of_devices), 1)


def _busy(graph: Graph, time: Ints) -> tuple[int, int, int]:
    """Return how long devices compute, compute or communicate, and do anything, in ns."""
    of_devices = [busy(time, sets) for sets in graph.of_devices]
    compute, also_comm, anything = (
        sum(lengths) for lengths in zip((0, 0, 0), *of_devices, strict=True)
    )
    return compute, also_comm, anything
