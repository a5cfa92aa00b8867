"""Delays that nothing recorded explains, of a step worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from htk.quantities.graph.build import Graph
from htk.quantities.graph.replay import replay_graph
from htk.quantities.graph.unexplained import keep_unexplained
from tests.htk.whatif.small_step_model import Act, comm, small_model

STEP = (Act("a", 10_000_000), comm("g", 50_000, "all_gather"), Act("b", 9_000, waits=("g",)))


def later(name: str, ns: int) -> tuple[Graph, int]:
    """The step with one activity recorded so much later; and the edge of its launch."""
    graph = small_model(STEP).graph
    acts = graph.activities
    (row,) = (k for k, n in enumerate(acts.name.tolist()) if acts.names[n] == name)
    time = graph.time.copy()
    time[[graph.start[row], graph.end[row]]] += ns
    (launch,) = np.flatnonzero(graph.edges("launch") & (graph.dst == graph.start[row]))
    return replace(graph, time=time), int(launch)


def test_a_late_start_stays_late_and_is_not_observed() -> None:
    """g begins 300 us after its launch, and nothing says why."""
    graph, launch = later("g", 300_000)
    kept = keep_unexplained(graph)
    assert np.flatnonzero(kept.unexplained).tolist() == [launch]
    assert (kept.unexplained[launch], kept.weight[launch]) == (300_000, 300_000)
    assert not kept.observed[launch]
    assert (kept.observed | ~graph.observed).sum() == len(graph.observed) - 1
    (start,) = graph.start[graph.activities.kind == 1]
    before, after = (replay_graph(g, g.weight, g.wrap_weight).time[start] for g in (graph, kept))
    assert after - before == 300_000


@pytest.mark.parametrize("ns", [0, 19_000])
def test_small_delays_are_left(ns: int) -> None:
    graph, _ = later("g", ns)
    kept = keep_unexplained(graph)
    assert not kept.unexplained.any()
    assert (kept.weight == graph.weight).all() and (kept.observed == graph.observed).all()


def test_what_its_stream_explains_is_no_delay() -> None:
    """b comes long after its launch, behind a of 10 ms on its stream."""
    graph, launch = later("b", 0)
    assert graph.time[graph.dst[launch]] - graph.time[graph.src[launch]] == 10_000_000
    assert not keep_unexplained(graph).unexplained.any()
