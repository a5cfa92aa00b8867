"""The compiled replay of steps that follow each other against the one in Python."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.errors import AnalysisError
from htk.quantities.graph.build import Graph, build_graph
from htk.quantities.graph.replay import (
    NEVER,
    periods_beside,
    repeated_pure,
    replay_graph,
    replayed_period,
)
from htk.traces.trace.opening import open_trace
from tests.htk.quantities.graph.small_step import step_tables

SMALL = build_graph(step_tables())


def pure(graph: Graph, weight: np.ndarray, wraps: np.ndarray) -> tuple[list[int], list[int], int]:
    first, again = np.empty((2, len(graph.time)), np.int64)
    _, period, _ = repeated_pure(graph, weight, wraps, (first, again))
    return first.tolist(), again.tolist(), period


def assert_alike(graph: Graph, weight: np.ndarray, wraps: np.ndarray, more: np.ndarray) -> None:
    found = replay_graph(graph, weight, wraps)
    first, again, period = pure(graph, weight, wraps)
    assert (found.time.tolist(), found.repeated.tolist(), found.period_ns) == (first, again, period)
    assert found.first_end == max(first[k] for k in graph.end.tolist())
    assert replayed_period(graph, weight, wraps) == period
    both = tuple(pure(graph, weight + moved, wraps)[2] for moved in (more, -more))
    assert periods_beside(graph, weight, more, wraps) == both


@given(st.data())
def test_any_weights_give_the_same_times(data: st.DataObject) -> None:
    def drawn(count: int, low: int, high: int) -> np.ndarray:
        lengths = st.lists(st.integers(low, high), min_size=count, max_size=count)
        return np.array(data.draw(lengths), np.int64)

    many = len(SMALL.weight)
    weight, more = drawn(many, -100, 10**6), drawn(many, -(10**5), 10**5)
    gone = drawn(many, 0, 9) == 0
    weight[gone], more[gone] = NEVER, 0
    assert len(SMALL.wrap_src)
    assert_alike(SMALL, weight, drawn(len(SMALL.wrap_weight), -100, 10**6), more)


def test_a_recorded_step_and_one_that_does_not_repeat() -> None:
    graph = build_graph(open_trace("sample_traces/simulated/llama2-7b").tables)
    more = np.arange(len(graph.weight)) % 7 * 100
    assert_alike(graph, graph.weight, graph.wrap_weight, more)
    none = np.empty(0, np.int64)
    alone = replace(graph, wrap_src=none, wrap_dst=none, wrap_weight=none, wrap_seen=none)
    both = [replayed_period(alone, graph.weight + moved) for moved in (more, -more)]
    assert [*periods_beside(alone, graph.weight, more, none)] == both


def test_nodes_that_are_not_there_and_times_too_long_are_refused() -> None:
    beyond = np.full(len(SMALL.weight), len(SMALL.time))
    no_more = np.zeros(len(SMALL.weight), np.int64)
    arguments = SMALL.weight, no_more, SMALL.wrap_weight
    for name in ("src", "dst"):
        with pytest.raises(IndexError):
            periods_beside(replace(SMALL, **{name: beyond}), *arguments)
    for name in ("end", "wrap_src", "wrap_dst"):
        nodes = getattr(SMALL, name).copy()
        nodes[-1] = len(SMALL.time)
        with pytest.raises(IndexError):
            periods_beside(replace(SMALL, **{name: nodes}), *arguments)
    long = np.full(len(SMALL.weight), (1 << 63) - 1)
    with pytest.raises(AnalysisError, match="292 years"):
        periods_beside(SMALL, long, no_more, SMALL.wrap_weight)
    with pytest.raises(ValueError, match="length"):
        periods_beside(SMALL, SMALL.weight[:-1], no_more, SMALL.wrap_weight)
