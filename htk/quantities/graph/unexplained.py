"""Delays that nothing recorded explains, kept as they were.

An activity that starts long after its launch, its stream and all it is known to wait for had some
other cause: work that was not recorded, clocks of CPU and GPU that differ, events that were not
recorded. A graph without it replays too early. Where that makes a replay useless, the delay stays
on the launch, inferred, so that an answer rests on it openly.
"""

from dataclasses import replace

import numpy as np

from htk.base.columns.types import Ints, fill_none
from htk.quantities.graph.build import Graph

_UNEXPLAINED_NS = 20_000
_OF_STEP = 0.01  # of a step so short that this is less


def keep_unexplained(graph: Graph) -> Graph:
    """Return the graph with such delays on its launches; `unexplained` holds them, edge by edge."""
    launch = fill_none(len(graph.time))
    edges = np.flatnonzero(graph.edges("launch"))
    launch[graph.dst[edges]] = edges
    late = graph.time - _find_ready_times(graph)
    least = min(_UNEXPLAINED_NS, _OF_STEP * graph.period_ns)
    heads = graph.start[(late[graph.start] > least) & (launch[graph.start] >= 0)]
    own = launch[heads]
    weight = graph.weight.copy()
    observed = graph.observed.copy()
    unexplained = np.zeros(len(weight), np.int64)
    unexplained[own] = late[heads]
    weight[own] = graph.time[heads] - graph.time[graph.src[own]]
    observed[own] = False
    return replace(graph, weight=weight, observed=observed, unexplained=unexplained)


def _find_ready_times(graph: Graph) -> Ints:
    """Return when each instant could have come, by the observed times of all that it waits for."""
    ready = np.full(len(graph.time), np.iinfo(np.int64).min // 2)
    np.maximum.at(ready, graph.dst, graph.time[graph.src] + graph.weight)
    np.maximum.at(ready, graph.wrap_dst, graph.wrap_seen + graph.wrap_weight)
    return ready
