"""Exposed communication and idle time of a small step."""

from htk.quantities.graph.exposed import BusyDevices
from tests.htk.whatif.small_step_model import Act, comm, small_model


def test_exposed_communication_and_idle_time_are_means_over_devices() -> None:
    """Rank 0: 0-40 compute, 0-60 comm; rank 1: 0-30 compute, then comm of 60 until 90."""
    graph = small_model(
        [
            Act("a", 40),
            comm("g", 60, "all_gather"),
            Act("b", 30, rank=1),
            comm("h", 60, "all_gather", rank=1, waits=("b",)),
        ]
    ).graph
    times = BusyDevices.from_graph(graph, graph.time)
    assert times.computing == (40 + 30) / 2
    assert times.exposed == ((60 - 40) + 60) / 2
    assert times.idle(100) == 100 - (60 + 90) / 2
    assert times.idle(50) == 0
