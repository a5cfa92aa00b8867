"""Hops of rings and trees, by hand."""

import pytest

from htk.physics.collective_latency import hops_ns


def test_a_ring_in_a_node_passes_on_once_for_each_rank_but_one() -> None:
    assert hops_ns("all_gather", 8, 8, 0) == 7 * 1900
    assert hops_ns("all_reduce", 8, 8, 0) == 14 * 1900


def test_a_ring_enters_each_node_once() -> None:
    # 15 steps; of 16 links of the ring 4 lead to another node
    assert hops_ns("reduce_scatter", 16, 4, 0) == pytest.approx(15 * (4 * 4000 + 12 * 1900) / 16)


def test_small_all_reduces_of_many_nodes_go_by_a_tree() -> None:
    # 7 links of a chain in the node and 4 levels of 16 nodes, up and down
    assert hops_ns("all_reduce", 128, 8, 0) == 2 * (7 * 1900 + 4 * 4000)
    # which costs bandwidth: a quarter more for the bytes, so that large ones go by a ring
    ring = 2 * 127 * (16 * 4000 + 112 * 1900) / 128
    assert hops_ns("all_reduce", 128, 8, 100_000) == 2 * (7 * 1900 + 4 * 4000) + 25_000
    assert hops_ns("all_reduce", 128, 8, 10e6) == pytest.approx(ring)


def test_alone_nobody_waits() -> None:
    assert hops_ns("all_reduce", 1, 1, 1e6) == 0


def test_two_ranks_and_two_nodes() -> None:
    assert hops_ns("all_gather", 2, 2, 0) == 1900
    assert hops_ns("all_gather", 2, 1, 0) == 4000
    # Half of the ring's 6 steps are between nodes; a tree has one in each, and one between.
    assert hops_ns("all_reduce", 4, 2, 0) == min(3 * 4000 + 3 * 1900, 2 * (1900 + 4000))
    assert hops_ns("all_reduce", 4, 2, 1e9) == 3 * 4000 + 3 * 1900
    assert hops_ns("all_gather", 3, 8, 0) == 2 * 1900, "less than a node"
    assert hops_ns("all_gather", 4, 0, 0) == 3 * 4000, "nothing known of nodes: each its own"
