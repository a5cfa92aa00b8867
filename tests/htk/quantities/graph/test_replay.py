"""The graph of a small step, worked out on paper, and what must hold of every replay."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.errors import AnalysisError, MissingTable
from htk.quantities.graph.build import build_graph
from htk.quantities.graph.fidelity import judge_steadiest_step
from htk.quantities.graph.replay import (
    critical_pure,
    find_critical_edges,
    longest_pure,
    raise_to_longest,
    replay_graph,
    replayed_period,
)
from tests.htk.quantities.graph.small_step import PERIOD, step_tables
from tests.tables import make


def test_an_untouched_step_replays_as_it_was() -> None:
    graph = build_graph(step_tables(), 1)
    replayed = replay_graph(graph)
    assert (replayed.time == graph.time).all()
    assert replayed.period_ns == graph.period_ns == PERIOD


def test_a_host_bound_step_does_not_get_shorter_with_its_kernels() -> None:
    graph = build_graph(step_tables(), 1)
    weight = graph.weight.copy()
    weight[graph.edges("run")] //= 2
    assert replay_graph(graph, weight).period_ns == PERIOD  # 200 from step to step on the thread
    assert replayed_period(graph, weight) == PERIOD


def test_a_step_grows_once_its_kernels_are_longer_than_the_host_takes() -> None:
    graph = build_graph(step_tables(), 1)
    weight = graph.weight.copy()
    weight[graph.edges("run")] *= 2
    replayed = replay_graph(graph, weight)
    assert replayed.period_ns == 300  # 200 + 100 on the stream, back to back
    assert replayed_period(graph, weight) == 300
    alone = replace(graph, wrap_src=graph.wrap_src[:0])
    alone = replace(alone, wrap_dst=graph.wrap_dst[:0], wrap_weight=graph.wrap_weight[:0])
    alone = replace(alone, wrap_seen=graph.wrap_seen[:0])
    assert replayed_period(alone, weight) == replay_graph(alone, weight).period_ns
    assert (replay_graph(alone, weight).steady == replay_graph(alone, weight).time).all()


def test_the_critical_path_goes_through_the_kernels_that_follow_each_other() -> None:
    graph = build_graph(step_tables(), 1)
    path = find_critical_edges(graph, replay_graph(graph).time)
    runs = path[graph.edges("run")[path]]
    assert graph.weight[runs].tolist() == [100, 50]


@given(st.integers(0, 1 << 32))
def test_the_critical_path_compiled_and_in_python(seed: int) -> None:
    """Every edge of it is tight, leads to the next one's tail, and is the first of such."""
    rng = np.random.default_rng(seed)
    graph = build_graph(step_tables(), 1)
    weight = graph.weight * rng.integers(0, 3, len(graph.weight))
    time = replay_graph(graph, weight).time
    path = find_critical_edges(graph, time, weight)
    node = int(graph.end[np.argmax(time[graph.end])])
    assert path.tolist() == critical_pure(time, graph.src, graph.dst, weight, node).tolist()
    for edge in path.tolist()[::-1]:
        tight = time[graph.src] + weight == time[graph.dst]
        assert edge == np.flatnonzero(tight & (graph.dst == node))[0]
        node = int(graph.src[edge])


def test_a_graph_with_several_steps_passes_the_gate() -> None:
    graph, _, judged = judge_steadiest_step(step_tables(4))
    assert judged.verdict == "trusted"
    assert judged.held_out_error_pct == 0.0
    assert graph.step in (1, 2, 3)


def test_one_step_most_of_whose_launches_are_missing_is_refused() -> None:
    verdict = judge_steadiest_step(step_tables(1))[
        2
    ].verdict  # no correlation is 0: the longer kernel has none
    assert verdict.startswith("refused: only one whole step")
    assert "launches of only 33 % of GPU time were recorded" in verdict


def test_a_trace_of_one_side_has_no_graph() -> None:
    with pytest.raises(MissingTable, match="both sides"):
        build_graph(step_tables() | {"launches": make("launches", [])})


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    nodes = draw(st.integers(2, 12))
    edges = draw(
        st.lists(
            st.tuples(st.integers(0, nodes - 2), st.integers(1, nodes - 1), st.integers(-5, 50)),
            max_size=30,
        )
    )
    upward = sorted((d, s, w) for s, d, w in edges if s < d)
    columns = np.array(upward, np.int64).reshape(-1, 3).T
    dst, src, weight = (np.ascontiguousarray(c) for c in columns)
    return np.zeros(nodes, np.int64), src, dst, weight


@given(graphs())
def test_compiled_and_pure_replay_agree(graph: tuple[np.ndarray, ...]) -> None:
    time, src, dst, weight = graph
    compiled, pure = time.copy(), time.copy()
    raise_to_longest(compiled, src, dst, weight)
    longest_pure(pure, src, dst, weight)
    assert compiled.tolist() == pure.tolist()


@given(graphs(), st.integers(0, 29))
def test_no_shorter_edge_makes_a_longer_step(graph: tuple[np.ndarray, ...], which: int) -> None:
    time, src, dst, weight = graph
    if which >= len(weight):
        return
    shorter = weight.copy()
    shorter[which] -= 10
    before, after = time.copy(), time.copy()
    longest_pure(before, src, dst, weight)
    longest_pure(after, src, dst, shorter)
    assert (after <= before).all()


@pytest.mark.parametrize(
    ("engine", "refusal"), [(raise_to_longest, AnalysisError), (longest_pure, OverflowError)]
)
def test_a_time_beyond_64_bits_is_refused(
    engine: Callable[..., None], refusal: type[Exception]
) -> None:
    ends, weight = np.array([0]), np.array([1 << 62])
    with pytest.raises(refusal):
        engine(np.array([1 << 62, 0]), ends, ends + 1, weight)
