"""Exposed communication and idle time of a small step."""

from htk.quantities.graph.exposed import exposed, exposed_and_idle
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
    assert exposed(graph, graph.time) == ((60 - 40) + 60) / 2
    assert exposed_and_idle(graph, graph.time, 100) == (40, 100 - (60 + 90) / 2)
    assert exposed_and_idle(graph, graph.time, 50) == (40, 0)
