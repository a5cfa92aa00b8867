"""Edges under construction: every node has one number, every edge its kind."""

import numpy as np

from htk.graph.edges import KINDS, Edges


def test_starts_ends_calls_and_arrivals_have_numbers_of_their_own() -> None:
    edges = Edges(activities=5, calls=3)
    five, three = np.arange(5), np.arange(3)
    nodes = [edges.start(five), edges.end(five), edges.call_start(three), edges.call_end(three)]
    assert sorted(np.concatenate(nodes).tolist()) == list(range(2 * 5 + 2 * 3))
    assert edges.join(np.array([0])).tolist() == [16]


def test_an_edge_keeps_where_its_weight_comes_from() -> None:
    edges = Edges(activities=3, calls=1)
    ends = np.array([3, 4]), np.array([1, 2])
    edges.add("stream", *ends, np.array([0.0, 7.0]), True)
    edges.add("launch", *ends, np.array([5, 6]), np.array([True, False]))
    (_, _, first, stream, seen), (_, _, _, launch, partly) = edges.parts
    assert (KINDS[stream], KINDS[launch]) == ("stream", "launch")
    assert first.dtype == np.int64 and first.tolist() == [0, 7]
    assert seen.tolist() == [True, True] and partly.tolist() == [True, False]
