"""What everything in a step took, in a fraction of the time that its graph needs."""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import Ints, Mask
from htk.base.mappings import NamedTables
from htk.quantities.graph.build import (
    StepEvents,
    events_to_replay,
    node_order,
    node_times,
    repeat_if_alone,
)
from htk.quantities.graph.edges import KINDS, lengths_of
from htk.quantities.graph.nodes import Activities, LaunchCalls
from htk.quantities.graph.pooled import ALL_AT_HAND, Pooled


@dataclass(frozen=True)
class StepLengths:
    """What everything in a step took, without the order that a replay needs.

    Nodes are numbered as in `htk.quantities.graph.edges`.
    """

    activities: Activities
    calls: LaunchCalls
    window: tuple[int, int]
    src: Ints  # of each edge that holds a length and leads forward
    dst: Ints
    weight: Ints
    kind: Ints
    wrap_dst: Ints  # of edges into the next step
    wrap_weight: Ints
    wrap_seen: Ints
    start: Ints  # nodes, as a graph has them
    end: Ints
    call_start: Ints
    call_end: Ints

    @property
    def period_ns(self) -> int:
        return self.window[1] - self.window[0]

    def edges(self, *kinds: str) -> Mask:
        return np.array([kind in kinds for kind in KINDS])[self.kind]


def step_lengths(tables: NamedTables, step: int) -> StepLengths:
    """Return what `build` finds of a step's lengths, in a fraction of its time."""
    return step_lengths_of(tables, events_to_replay(tables, step))


def step_lengths_of(
    tables: NamedTables, events: StepEvents, pooled: Pooled = ALL_AT_HAND
) -> StepLengths:
    """Return the lengths of a step's events."""
    edges = lengths_of(tables, events.activities, events.calls, events.origin, pooled)
    repeat_if_alone(tables, events, edges)
    src = edges.src
    dst = edges.dst
    time = node_times(events, edges)
    tie_order = node_order(events, edges)
    began = time[src]
    ended = time[dst]
    forward = began < ended
    ties = np.flatnonzero(began == ended)
    forward[ties] = tie_order[src[ties]] < tie_order[dst[ties]]
    activities = np.arange(len(events.activities.start))
    calls = np.arange(len(events.calls.start))
    return StepLengths(
        events.activities,
        events.calls,
        events.window,
        src[forward],
        dst[forward],
        edges.weight[forward],
        edges.kind[forward],
        edges.wrap_dst,
        edges.wrap_weight,
        edges.wrap_seen,
        edges.start(activities),
        edges.end(activities),
        edges.call_start(calls),
        edges.call_end(calls),
    )
