"""A graph of some ranks waits for the others: a case worked out on paper."""

from pathlib import Path

import numpy as np

from htk.base.columns.types import NO_TIME
from htk.quantities.graph.build import Graph, build_graph, steps_at_hand
from htk.quantities.graph.left_out import LeftOut, RepresentedTables, left_out_of
from htk.quantities.graph.replay import replay_one_step
from htk.quantities.graph.shared_tables import SharedTables
from htk.traces.trace.opening import open_trace
from htk.whatif.representatives import choose_representatives
from tests.htk.whatif.seven_ranks import US, write_seven


def test_the_latest_arrival_is_that_behind_each_leader_at_each_collective() -> None:
    match, leader, arrived = (np.array(c) for c in ([4, 4, 7], [0, 9, 0], [50, 60, 70]))
    left_out = LeftOut(match, leader, arrived, 12, {})
    asked = np.array([7, 4, 4, 7]), np.array([0, 9, 0, 9])
    assert left_out.latest(*asked).tolist() == [70, 60, 50, NO_TIME]
    tables = RepresentedTables({}, left_out)
    assert left_out_of(tables) is left_out_of(SharedTables(tables)) is left_out
    assert left_out_of({}) is None is left_out_of(SharedTables({}))


def test_its_graph_waits_for_those_who_are_left_out(tmp_path: Path) -> None:
    """Rank 6 comes 4 µs after rank 5, whom it follows. Without the gemm of rank 3 all wait for it,
    who is not in the graph: until 54; the transfer takes 30."""
    seven = open_trace(str(write_seven(tmp_path)))
    assert steps_at_hand(choose_representatives(seven).tables) == steps_at_hand(seven.tables)
    few, every = (
        build_graph(tables, 1) for tables in (choose_representatives(seven).tables, seven.tables)
    )
    assert few.ranks == [2, 3, 5]
    assert behind(few) == {2: 0, 3: 0, 5: 4 * US}
    assert not every.weight[every.edges("arrive")].any()
    for graph in (few, every):
        ends = []
        for weight in (graph.weight, without_gemm(graph, 3)):
            time = replay_one_step(graph, weight, graph.wrap_weight, graph.wrap_seen)
            is_comm = graph.activities.kind == 1
            ends.append((time[graph.end[is_comm]] + graph.origin_ns).max())
        assert ends[0] - ends[1] == (62 - 54) * US


def behind(graph: Graph) -> dict[int, int]:
    edge = np.flatnonzero(graph.edges("arrive"))
    rank = {int(node): int(r) for node, r in zip(graph.start, graph.activities.rank, strict=True)}
    return {rank[int(graph.src[e])]: int(graph.weight[e]) for e in edge}


def without_gemm(graph: Graph, rank: int) -> np.ndarray:
    acts = graph.activities
    gemm = acts.names.index("ampere_bf16_gemm")
    weight = graph.weight.copy()
    weight[graph.run_edge[(acts.rank == rank) & (acts.name == gemm)]] = 0
    return weight
