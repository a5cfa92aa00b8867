"""Graphs of some ranks, cut down, tell when collectives begin as one graph of all ranks does."""

import random
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.cut import _find_ways, begins_of_collectives
from htk.quantities.graph.part import Weights

EARLIEST = -(1 << 61)
MEETING = -1  # in place of a rank


@dataclass(frozen=True)
class Drawn:
    """A job whose nodes are in an order in which all edges lead on."""

    rank: list[int]  # of each node
    edges: list[tuple[int, int, int]]  # tail, head, length; of one rank, or to and from meetings

    @classmethod
    def by(cls, dice: random.Random) -> "Drawn":
        ranks = dice.randint(1, 4)
        rank = [0, *(dice.randint(-1, ranks - 1) for _ in range(dice.randint(1, 40)))]
        pairs = [sorted(dice.sample(range(len(rank)), 2)) for _ in range(3 * len(rank))]
        within = [
            (a, b)
            for a, b in pairs
            if (rank[a] == rank[b] != MEETING) or (rank[a] == MEETING) != (rank[b] == MEETING)
        ]
        arrivals = {(rank[a], b) for a, b in within if rank[b] == MEETING}
        edges = [
            (a, b, dice.randint(-2, 9))
            for a, b in within
            if rank[a] != MEETING or (rank[b], a) in arrivals  # who leaves has arrived
        ]
        return cls(rank, sorted(edges, key=lambda edge: edge[1]))

    def graph(self, whose: set[int]) -> tuple[Any, np.ndarray, Weights]:
        """Return the graph of some ranks, the meetings in it, and its weights."""
        edges = [(a, b, w) for a, b, w in self.edges if whose & {self.rank[a], self.rank[b]}]
        met = sorted({b for _, b, _ in edges if self.rank[b] == MEETING})
        nodes = sorted({k for k, rank in enumerate(self.rank) if rank in whose} | set(met))
        number = {node: k for k, node in enumerate(nodes)}
        columns = [(number[a], number[b], w) for a, b, w in edges]
        src, dst, weight = np.array(columns, np.int64).reshape(-1, 3).T.copy()
        time, none = np.array(nodes, np.int64), np.empty(0, np.int64)
        led = np.isin(np.arange(len(nodes)), dst)
        joins = np.array([number[node] for node in met], np.int64)
        graph = SimpleNamespace(
            time=time, src=src, dst=dst, pinned=np.where(led, EARLIEST, time), wrap_dst=none,
            call_start=none, call_end=none, joins=joins,
        )  # fmt: skip
        return graph, np.array(met, np.int64), Weights(weight, none, none)


@given(st.integers(0, 1 << 32))
def test_meetings_begin_when_one_graph_of_all_says(seed: int) -> None:
    job = Drawn.by(random.Random(seed))
    ranks = sorted(set(job.rank) - {MEETING})
    whole, met, weights = job.graph(set(ranks))
    time = whole.pinned.copy()
    for tail, head, length in zip(whole.src, whole.dst, weights.edges, strict=True):
        time[head] = max(time[head], time[tail] + length)
    told: Any = SimpleNamespace(match=met, last=whole.time[whole.joins])
    for parts in ([{rank} for rank in ranks], [set(ranks[:2]), set(ranks[2:])]):
        ways = [_find_ways(*job.graph(part)) for part in parts]
        assert begins_of_collectives(ways, told).tolist() == time[whole.joins].tolist()


def test_only_what_waits_for_several_is_left_between_two_meetings() -> None:
    """A meeting, 300 nodes one after the other, one that waits for two of them, and a meeting."""
    chain = [(k, k + 1, 2) for k in range(1, 302)]
    job = Drawn([0, MEETING, *[0] * 302, MEETING], [
        (0, 1, 1), *chain, (100, 303, 7), (303, 304, 5),
    ])  # fmt: skip
    edges = sorted([*job.edges, (302, 303, 2)], key=lambda edge: edge[1])
    ways = _find_ways(*Drawn(job.rank, edges).graph({0}))
    assert ways.time.tolist() == []  # both ways to it begin at the meeting: the longer one counts
    assert ways.match[ways.src].tolist() == [1] and ways.match[ways.dst].tolist() == [304]
    assert ways.length.tolist() == [2 * 302 + 5] and ways.begin.tolist()[0] == 1
