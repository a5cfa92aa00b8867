"""The graph of some ranks of a step, which meets those of the others at collectives.

Everything within a rank depends on its own files and on when its collectives' last members arrive.
So ranks are worked on a part at a time: each says what all have to know (`hear_ranks`), is made
into a graph (`part_of`), cut down to what leads from one collective to the next
(`htk.quantities.graph.cut`), and, once it is known when all collectives begin, replayed by itself
(`replay_with_arrivals`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import Ints, Mask
from htk.base.mappings import NamedTables
from htk.quantities.graph.build import Graph, begins_of, build_of, repeat_if_alone, step_events
from htk.quantities.graph.critical_path import PathEdges, PathEvents, event_numbers
from htk.quantities.graph.edges import Edges, edges_of, lengths_of
from htk.quantities.graph.fidelity import linked_time
from htk.quantities.graph.gate import Figures
from htk.quantities.graph.held_out import with_durations
from htk.quantities.graph.nodes import Steps
from htk.quantities.graph.pooled import Heard, Told
from htk.quantities.graph.replay import edges_waited_for, last_end, replay_one_step
from htk.quantities.graph.shared_tables import SharedTables
from htk.quantities.graph.step_lengths import step_lengths_of

NOWHERE = -1  # a path that begins within the rank


@dataclass(frozen=True)
class StepOfAll:
    """The step of all ranks, the one that it is tested with, and what times count from."""

    steps: Steps
    step: int | None
    held_out: int | None
    origin: int

    @property
    def cycle(self) -> int | None:
        """The step's cycle, as graphs have it."""
        return None if self.step is None else self.steps.cycle_for(self.step)


@dataclass(frozen=True)
class HeardOfStep:
    """What the other parts have to know of a part, for one step."""

    pooled: Heard
    ranks: Ints  # with activities in it
    begins: Ints  # when the first of each begins
    calls: int


def hear_ranks(tables: NamedTables, of_all: StepOfAll) -> list[HeardOfStep]:
    """Return what some ranks tell of the step, and of the one that it is tested with."""
    tables = SharedTables(tables)
    by_step = [_hear_step(tables, of_all, of_all.step, edges_of)]
    if of_all.held_out is not None:
        by_step.append(_hear_step(tables, of_all, of_all.held_out, lengths_of))
    return by_step


def _hear_step(
    tables: NamedTables,
    of_all: StepOfAll,
    step: int | None,
    find: Callable[..., Edges],
) -> HeardOfStep:
    events = step_events(tables, of_all.steps, step, of_all.origin)
    pooled = Heard()
    repeat_if_alone(
        tables, events, find(tables, events.activities, events.calls, events.origin, pooled)
    )
    return HeardOfStep(pooled, *begins_of(events.activities), len(events.calls.start))


@dataclass(frozen=True)
class Weights:
    """The weights of a graph's edges and of those into the next step, and when the tails of these
    came in the step before."""

    edges: Ints
    wraps: Ints
    seen: Ints


@dataclass(frozen=True)
class GraphPart:
    """The graph of some ranks."""

    graph: Graph
    match: Ints  # of each of its collectives that have several members, in whatever part
    weights: tuple[Weights, ...]  # as observed; and with the durations of the held out step
    events: tuple[Ints, Ints]  # see `event_numbers`
    linked: tuple[int, int]  # see `linked_time`


def part_of(tables: NamedTables, of_all: StepOfAll, pooled: Sequence[Told]) -> GraphPart:
    """Return the graph of some ranks; `pooled`: what all parts told, for each of the two steps."""
    tables = SharedTables(tables)
    events = step_events(tables, of_all.steps, of_all.step, of_all.origin)
    graph, match = build_of(tables, events, pooled[0])
    weights = [Weights(graph.weight, graph.wrap_weight, graph.wrap_seen)]
    if of_all.held_out is not None:
        events = step_events(tables, of_all.steps, of_all.held_out, of_all.origin)
        other = step_lengths_of(tables, events, pooled[1])
        weights.append(Weights(*with_durations(graph, other)))
    return GraphPart(graph, match, tuple(weights), event_numbers(tables), linked_time(tables))


@dataclass(frozen=True)
class Replayed:
    """A part, and when each of its nodes comes."""

    part: GraphPart
    time: Ints
    waited_for: Ints  # the edge that each node waits for; -1: none

    @property
    def last(self) -> int:
        """The node that ends last."""
        ends = self.part.graph.end
        return int(ends[np.argmax(self.time[ends])])


def replay_with_arrivals(part: GraphPart, began: Ints) -> Replayed:
    """Replay a part, of which each collective begins when told."""
    graph = part.graph
    time = _time_part(part, part.weights[0], began)
    return Replayed(part, time, edges_waited_for(time, graph.src, graph.dst, graph.weight))


def _time_part(part: GraphPart, weights: Weights, began: Ints) -> Ints:
    return replay_one_step(part.graph, weights.edges, weights.wraps, weights.seen, began=began)


@dataclass(frozen=True)
class PartReplay:
    """Results of replaying a part."""

    figures: Figures
    led_by: Ints  # collectives at which one of its own ranks arrives last
    came_from: Ints  # the collective that the path to each of those comes from; NOWHERE: none
    end_came_from: int  # of the path to its last end


def replay_part(part: GraphPart, began: Sequence[Ints]) -> PartReplay:
    """Return what a part's replay tells; `began`: when collectives begin with each of its
    weights."""
    graph = part.graph
    state = replay_with_arrivals(part, began[0])
    held_out_end = None
    if len(began) > 1:
        held_out_end = last_end(graph, _time_part(part, part.weights[1], began[1]))
    figures = Figures.from_graph(graph, state.time, part.linked, held_out_end)
    from_ = _collectives_before(state)
    edge = state.waited_for[graph.joins]
    own = np.flatnonzero(edge >= 0)
    end = int(from_[state.last]) if len(graph.end) else NOWHERE
    return PartReplay(figures, part.match[own], from_[graph.src[edge[own]]], end)


def _collectives_before(state: Replayed) -> Ints:
    """Return the collective that the path to each node comes from; NOWHERE: none."""
    graph = state.part.graph
    edge = state.waited_for
    before = np.arange(len(edge))
    led = edge >= 0
    led[graph.joins] = False
    before[led] = graph.src[edge[led]]
    while not np.array_equal(further := before[before], before):
        before = further
    match = np.full(len(edge), NOWHERE, np.int64)
    match[graph.joins] = state.part.match
    return match[before]


def list_path_legs(
    part: GraphPart, began: Ints, matches: Sequence[int | None]
) -> list[tuple[PathEdges, PathEvents]]:
    """Return the legs of a path that end with the arrival at these collectives, each back to the
    one before; None: with the last end."""
    graph = part.graph
    state = replay_with_arrivals(part, began)
    node_of = dict(zip(part.match.tolist(), graph.joins.tolist(), strict=True))
    meets: Mask = np.zeros(len(state.time), bool)
    meets[graph.joins] = True
    in_order = []
    for match in matches:
        path = []
        node = state.last if match is None else node_of[match]
        while (edge := int(state.waited_for[node])) >= 0:  # as many as the leg is long
            path.append(edge)
            node = int(graph.src[edge])
            if meets[node]:
                break
        rows = np.array(path[::-1], np.int64)
        edges = PathEdges.from_path(graph, rows, state.time)
        in_order.append((edges, PathEvents.from_path(graph, rows, part.events)))
    return in_order
