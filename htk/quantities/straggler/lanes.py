"""Replays a program for many replicas and steps at once, on the replay of execution graphs.

A lane is one replica in one step; lanes of a group (the replicas of a step) meet in data-parallel
communication. An operation's end is a node, and so is each meeting; the weight of an edge is the
duration (or transfer) of the operation that it leads to. Values are [operation, lane] arrays, so
that a program's edges are tiled over the lanes without a loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.quantities.graph.replay import raise_to_longest
from htk.quantities.straggler.program import Program

_KEPT = 4  # tilings of a program
_NODES = 1 << 18  # replayed at once: what fits a processor's cache


@dataclass(frozen=True)
class LaneGraph:
    """A program tiled over groups of lanes."""

    src: Ints
    dst: Ints
    weight: Ints  # of each edge of the program: a row of the weights
    nodes: int


class LaneReplay:
    """Replays of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._edges = _build_edges(program)
        self._graphs: dict[tuple[int, int], LaneGraph] = {}
        last = np.ones(program.operations, bool)
        last[program.tail] = False
        self._last = np.flatnonzero(last)  # nothing waits for these: they end a step

    def ends(self, duration: Ints, delay: Ints | None = None) -> Ints:
        """Return when each operation ends, in ns from the step's start: [operation, group, lane].

        `duration` is that of local operations and the transfer of those that meet; `delay` is how
        long each is launched after all it waits for.
        """
        result = np.empty(duration.shape, np.int64)
        for chosen, time in self._replay_groups(duration, delay):
            result[:, chosen] = time[: len(duration)]
        return result

    def step_times(self, duration: Ints, delay: Ints | None = None) -> Ints:
        """Return how long each group's step takes, in ns."""
        result = np.empty(duration.shape[1], np.int64)
        for chosen, time in self._replay_groups(duration, delay):
            result[chosen] = time[self._last].max(axis=(0, 2))
        return result

    def _replay_groups(self, duration: Ints, delay: Ints | None) -> Iterator[tuple[slice, Ints]]:
        count, groups, lanes = duration.shape
        at_once = max(1, _NODES // (self._edges.nodes * lanes))
        for first in range(0, groups, at_once):
            chosen = slice(first, min(first + at_once, groups))
            size = chosen.stop - chosen.start
            graph = self._find_graph(size, lanes)
            own = duration[:, chosen].reshape(count, size * lanes)
            late = None if delay is None else delay[:, chosen].reshape(count, size * lanes)
            weight = self._edges.weights(own, late)
            time = np.zeros(graph.nodes, np.int64)
            raise_to_longest(time, graph.src, graph.dst, weight.ravel())
            yield chosen, time.reshape(-1, size, lanes)

    def _find_graph(self, groups: int, lanes: int) -> LaneGraph:
        """Return the program tiled so; the last few are kept, and go when the replay does."""
        if (groups, lanes) not in self._graphs:
            if len(self._graphs) == _KEPT:
                del self._graphs[next(iter(self._graphs))]
            self._graphs[groups, lanes] = self._tile_graph(groups, lanes)
        return self._graphs[groups, lanes]

    def _tile_graph(self, groups: int, lanes: int) -> LaneGraph:
        """The program's edges for each lane; a meeting over replicas is one node of a group."""
        edges = self._edges
        width = groups * lanes
        lane = np.arange(width, dtype=np.int64)
        leader = lane - lane % lanes

        def number_nodes(of: Ints) -> Ints:
            shared = edges.shared[of]
            return np.asarray(of[:, None] * width + np.where(shared[:, None], leader, lane)).ravel()

        return LaneGraph(
            number_nodes(edges.src), number_nodes(edges.dst), edges.row, edges.nodes * width
        )


@dataclass(frozen=True)
class _Edges:
    """One replica's edges, by the order of their heads."""

    src: Ints
    dst: Ints
    row: Ints  # whose duration (or, from `operations` on, delay) an edge adds
    scale: NDArray[np.float64]  # 1 - part of the tail that has to be over
    tail: Ints
    local: NDArray[np.bool_]  # the edge ends a local operation: its delay is added as well
    shared: NDArray[np.bool_]  # of each node: one for all lanes of a group
    nodes: int

    def weights(self, duration: Ints, delay: Ints | None) -> Ints:
        """Return the weight of each edge in each lane."""
        count = len(duration)
        own = duration if delay is None else duration + delay * self._local_rows(count)
        rows = np.concatenate([own, np.zeros_like(own[:1]) if delay is None else delay])
        weights = rows[self.row if delay is not None else np.minimum(self.row, count)]
        early = np.flatnonzero(self.scale)
        if len(early):
            spared = self.scale[early, None] * duration[self.tail[early]]
            weights[early] -= np.rint(spared).astype(np.int64)
        return weights

    def _local_rows(self, count: int) -> Ints:
        local = np.zeros((count, 1), np.int64)
        local[self.row[self.local & (self.row < count)]] = 1
        return local


def _build_edges(program: Program) -> _Edges:
    """Return the nodes: the end of each operation, each meeting, and the step's start."""
    count = program.operations
    meetings = len(program.over_replicas)
    origin = count + meetings
    entry = np.where(program.meeting >= 0, count + program.meeting, np.arange(count))
    free = np.setdiff1d(np.arange(count), program.head)
    meets = np.flatnonzero(program.meeting >= 0)
    src = np.concatenate([program.tail, np.full(len(free), origin), count + program.meeting[meets]])
    head = np.concatenate([program.head, free, meets])
    arrives = np.append(program.meeting[head[: len(program.head) + len(free)]] >= 0, meets < 0)
    dst = np.where(arrives, entry[head], head)
    row = np.where(arrives, count + head, head)
    scale = np.concatenate([1 - program.part, np.zeros(len(free) + len(meets))])
    rank = np.empty(origin + 1, np.int64)
    rank[program.order] = np.arange(origin)
    order = order_by(rank[dst])
    shared = np.zeros(origin + 1, bool)
    shared[count:origin] = program.over_replicas
    local = ~arrives & (program.meeting[head] < 0)
    return _Edges(
        src[order],
        dst[order],
        row[order],
        scale[order],
        np.minimum(src, count - 1)[order],
        local[order],
        shared,
        origin + 1,
    )
