"""How the latency of a collective grows with its ranks: hops of a ring or of a tree.

A ring passes on once for each rank but one (an all-reduce twice), and enters each node once, so
that a part of its hops is between nodes. A tree goes down a chain in each node and up and down a
binary tree of nodes; only all-reduces use it, at a part of the ring's bandwidth. The faster one
runs.
"""

from math import log2

# Of the protocol that carries messages of medium size (LL128), by NCCL's tuning tables.
_HOP_NS = 1_900.0
_FAR_HOP_NS = 4_000.0
_TREE_SHARE = 0.8  # of a ring's bandwidth


def hops_ns(kind: str, ranks: int, per_node: int, ring_ns: float) -> float:
    """Return what a collective takes beside moving its bytes round a ring.

    `per_node`: ranks of the group in each node; `ring_ns`: the time for the bytes in a ring.
    """
    if ranks < 2:
        return 0.0
    nodes = max(ranks // max(per_node, 1), 1)
    times = 2 if kind == "all_reduce" else 1
    ring = _ring_ns(ranks, nodes, times)
    if kind != "all_reduce" or nodes < 2:
        return ring
    tree = 2 * ((per_node - 1) * _HOP_NS + log2(nodes) * _FAR_HOP_NS)
    return min(ring, tree + ring_ns * (1 / _TREE_SHARE - 1))


def _ring_ns(ranks: int, nodes: int, times: int) -> float:
    steps = times * (ranks - 1)
    far = steps * nodes / ranks if nodes > 1 else 0.0
    return far * _FAR_HOP_NS + (steps - far) * _HOP_NS
