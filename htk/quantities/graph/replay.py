"""Replays an execution graph: when does each instant come, given the weights of the edges?

An edge says: not before its tail plus its weight. Edges are in the order of their heads, and
tails come first, so one pass settles everything. Edges into the next step repeat the step until
its period is steady; CPU work that runs ahead of the GPU is so accounted for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from htk.base.columns.types import Ints, fill_none
from htk.base.errors import AnalysisError
from htk.quantities.graph.build import Graph

NEVER = -(1 << 62)  # the weight of an edge that an edit removed
_PASSES = 24
_STEADY = 1e-4  # of the period


@dataclass(frozen=True)
class Replay:
    time: Ints  # of each node
    first_end: int  # end of the step when it follows the observed one
    period_ns: int  # once steady
    repeated: Ints  # of each node, in a step that follows one like it
    later_ns: int  # how much later than the observed one that step began

    @cached_property
    def steady(self) -> Ints:
        """Return the times of a step that follows one like it where the observed one began."""
        return self.repeated - self.later_ns if self.later_ns else self.repeated


def replay_graph(
    graph: Graph, weight: Ints | None = None, wrap_weight: Ints | None = None
) -> Replay:
    """Replay with these weights; without any, the untouched step."""
    weight = graph.weight if weight is None else weight
    wraps = graph.wrap_weight if wrap_weight is None else wrap_weight
    if not len(graph.wrap_src):
        time = replay_one_step(graph, weight, wraps, graph.wrap_seen)
        end = int(time[graph.end].max())
        return Replay(time, end, _measure_lone_period(graph, time, end), time, 0)
    time, again = np.empty((2, len(graph.time)), np.int64)
    end, period, last = _repeat_step(graph, weight, wraps, (time, again))
    return Replay(time, end, period, again, last - period - graph.window[0])


def replayed_period(graph: Graph, weight: Ints, wrap_weight: Ints | None = None) -> int:
    """Return the period of `replay_graph` alone, in ns."""
    wraps = graph.wrap_weight if wrap_weight is None else wrap_weight
    if not len(graph.wrap_src):
        time = replay_one_step(graph, weight, wraps, graph.wrap_seen)
        return _measure_lone_period(graph, time, int(time[graph.end].max()))
    time = np.empty(len(graph.time), np.int64)
    return _repeat_step(graph, weight, wraps, (time, time))[1]


def periods_beside(graph: Graph, weight: Ints, more: Ints, wrap_weight: Ints) -> tuple[int, int]:
    """Return the periods with so much more than these weights and with so much less, in ns."""
    try:
        from htk.base.native._replay import repeated_beside
    except ImportError:
        return _beside_pure(graph, weight, more, wrap_weight)
    if not len(graph.wrap_src):
        return _beside_pure(graph, weight, more, wrap_weight)
    with _adding_times():
        periods: tuple[int, int] = repeated_beside(
            _list_replay_arrays(graph, weight, wrap_weight),
            graph.wrap_seen,
            *_find_replay_end(graph),
            more,
        )
    return periods


def _beside_pure(graph: Graph, weight: Ints, more: Ints, wrap_weight: Ints) -> tuple[int, int]:
    """Return the periods with more and with less, replayed one after the other."""
    both = (weight + more, weight - more)
    plus, minus = (replayed_period(graph, moved, wrap_weight) for moved in both)
    return plus, minus


def _measure_lone_period(graph: Graph, time: Ints, end: int) -> int:
    """Return the period of a step that does not repeat itself."""
    begin = int(time[graph.start].min())  # what comes before the first activity is not in it
    moved = begin - int(graph.time[graph.start].min())
    return end - graph.window[0] - moved


def _repeat_step(
    graph: Graph, weight: Ints, wraps: Ints, times: tuple[Ints, Ints]
) -> tuple[int, int, int]:
    """Return the end of the first step, the period once it is steady, and the last end; `times`:
    where those of the first step go, and those of the following ones."""
    try:
        from htk.base.native._replay import repeated
    except ImportError:
        return repeated_pure(graph, weight, wraps, times)
    seen = graph.wrap_seen.copy()
    with _adding_times():
        ends_and_period: tuple[int, int, int] = repeated(
            _list_replay_arrays(graph, weight, wraps), seen, *_find_replay_end(graph), *times
        )
    return ends_and_period


@contextmanager
def _adding_times() -> Iterator[None]:
    """Say in words that times of the block add up to more than 64 bits count."""
    try:
        yield
    except OverflowError:
        raise AnalysisError(
            "times that follow each other add up to more than 292 years; a time of the recording, "
            "or a change, is too large"
        ) from None


def _list_replay_arrays(graph: Graph, weight: Ints, wraps: Ints) -> tuple[Ints, ...]:
    """Return a graph as the compiled replay takes it."""
    ends = graph.ends_by_time  # one behind the other in memory
    fixed = graph.pinned, graph.src, graph.dst, ends, graph.wrap_src, graph.wrap_dst
    return tuple(np.ascontiguousarray(values) for values in (*fixed, weight, wraps))


def _find_replay_end(graph: Graph) -> tuple[int, int, float]:
    return graph.window[0], _PASSES, _STEADY


def repeated_pure(
    graph: Graph, weight: Ints, wraps: Ints, times: tuple[Ints, Ints]
) -> tuple[int, int, int]:
    """Repeat a step in Python until its period is steady."""
    first, again = times
    replay_one_step(graph, weight, wraps, graph.wrap_seen, first)
    first_end = last = int(first[graph.end].max())
    period = last - graph.window[0]
    seen = first[graph.wrap_src]
    for _ in range(_PASSES):
        replay_one_step(graph, weight, wraps, seen, again)
        seen = again[graph.wrap_src]
        end = int(again[graph.end].max())
        before = period
        period = end - last
        last = end
        if abs(period - before) <= _STEADY * max(period, 1):
            break
    return first_end, period, last


def replay_one_step(
    graph: Graph,
    weight: Ints,
    wrap_weight: Ints,
    seen: Ints,
    into: Ints | None = None,
    began: Ints | None = None,
) -> Ints:
    """Return one step, after one whose last instants came when `seen` says; in `into`, if given.

    `began`: of a graph of some ranks, when the last of all ranks has arrived at each collective.
    """
    time = np.empty(len(graph.time), np.int64) if into is None else into
    time[:] = graph.pinned
    if began is not None:
        time[graph.joins] = began
    np.maximum.at(time, graph.wrap_dst, seen + wrap_weight)
    raise_to_longest(time, graph.src, graph.dst, weight)
    return time


def raise_to_longest(time: Ints, src: Ints, dst: Ints, weight: Ints) -> None:
    """Raise each head to its tail plus the weight, edge by edge, in place."""
    try:
        from htk.base.native import _replay
    except ImportError:
        engine = longest_pure
    else:
        engine = _replay.longest
    with _adding_times():
        engine(time, src, dst, np.ascontiguousarray(weight))


def longest_pure(time: Ints, src: Ints, dst: Ints, weight: Ints) -> None:
    """Raise each head in Python: an edge needs what the edges before it settled."""
    times = time.tolist()
    for tail, head, length in zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True):
        reached = times[tail] + length
        if reached > times[head]:
            times[head] = reached
    time[:] = times


def find_critical_edges(graph: Graph, time: Ints, weight: Ints | None = None) -> Ints:
    """The edges that bound the step, first to last: from its last end back to its beginning."""
    weight = graph.weight if weight is None else weight
    node = int(graph.end[np.argmax(time[graph.end])])
    try:
        from htk.base.native import _replay
    except ImportError:
        return critical_pure(time, graph.src, graph.dst, weight, node)
    path = np.empty(len(time), np.int64)  # it meets no node twice
    edges = np.ascontiguousarray(graph.src), np.ascontiguousarray(graph.dst)
    many = _replay.critical(time, *edges, np.ascontiguousarray(weight), node, path)
    return path[:many][::-1].copy()


def critical_pure(time: Ints, src: Ints, dst: Ints, weight: Ints, node: int) -> Ints:
    """The edges that bound the step in Python, from a node back to the beginning."""
    path = []
    edge_into = edges_waited_for(time, src, dst, weight).data
    tail_of = src.data
    while (edge := edge_into[node]) >= 0:  # as many as the path is long
        path.append(edge)
        node = tail_of[edge]
    return np.array(path[::-1], np.int64)


def last_end(graph: Graph, time: Ints) -> int:
    """Return when the last activity ends; NEVER: there is none."""
    return int(time[graph.end].max(initial=NEVER))


def edges_waited_for(time: Ints, src: Ints, dst: Ints, weight: Ints) -> Ints:
    """Return the edge that each node waits for, of several the first; -1: none."""
    tight = np.flatnonzero(time[src] + weight == time[dst])
    edge = fill_none(len(time))
    edge[dst[tight[::-1]]] = tight[::-1]
    return edge
