"""How long collectives take on this cluster, once every rank has arrived. The simulator's own.

A collective runs a ring or a tree with one of three protocols, whichever is fastest. A ring takes
n - 1 steps (all_reduce twice that), so its latency grows with the ranks; a tree goes down a chain
in each node and up and down a binary tree of nodes, so its latency grows with the logarithm of
the nodes. A protocol trades bandwidth for the latency of a step. All constants are drawn from the
seed round those that NCCL's tuning tables give.
"""

from dataclasses import dataclass
from math import log2
from typing import NamedTuple

import numpy as np

from htk.recording.simulate.config import Config


class Transfer(NamedTuple):
    """The fastest way that a collective can take."""

    ns: int
    algorithm: str
    protocol: str


@dataclass(frozen=True)
class _Protocol:
    name: str
    step: float  # latency of a step, times the lowest
    share: float  # of the links' bandwidth


class ClusterNetwork:
    """Links of a cluster."""

    def __init__(self, config: Config) -> None:
        rng = np.random.default_rng([config.seed, 19])
        device = config.device
        self._gpus_per_node = config.gpus_per_node
        self._begin_ns = rng.uniform(4000, 9000)  # to set up a collective
        self._hop_ns = 1e3 * config.intra_latency_us * rng.uniform(0.85, 1.15)
        self._far_hop_ns = 1e3 * config.inter_latency_us * rng.uniform(0.85, 1.15)
        self._intra = (config.intra_gbps or device.scale_up_gbps) * rng.uniform(0.76, 0.84)
        per_node = config.inter_gbps or device.scale_out_gbps * config.gpus_per_node
        self._inter = per_node * rng.uniform(0.90, 0.97)
        self._tree_share = rng.uniform(0.70, 0.88)  # of a ring's bandwidth
        self._protocols = (
            _Protocol("LL", 1.0, rng.uniform(0.25, 0.40)),
            _Protocol("LL128", rng.uniform(1.6, 2.0), rng.uniform(0.80, 0.92)),
            _Protocol("Simple", rng.uniform(3.5, 5.0), 1.0),
        )
        self._more = rng.uniform(0.1, 0.3)  # hops that each further peer of an all-to-all costs

    def transfer(self, kind: str, wire: int, ranks: int, nodes: int, per_node: int) -> Transfer:
        """Return the time of a collective in which each rank sends `wire` bytes.

        `per_node`: members of its group in each of the nodes.
        """
        if kind == "all_to_all":
            return self._all_to_all(wire, ranks, nodes, per_node)
        rate = self._intra
        if nodes > 1:
            rate = min(rate, self._inter * per_node / self._gpus_per_node)
        shapes = [("RING", self._ring_ns(kind, ranks, nodes), 1.0)]
        if kind == "all_reduce" and nodes > 1:
            shapes.append(("TREE", self._tree_ns(nodes, per_node), self._tree_share))
        return min(
            Transfer(
                round(
                    self._begin_ns + protocol.step * hops + wire / (rate * share * protocol.share)
                ),
                algorithm,
                protocol.name,
            )
            for algorithm, hops, share in shapes
            for protocol in self._protocols
        )

    def message(self, size: int, *, far: bool) -> int:
        """Return the time of one message; to another node it takes the rank's own share of the
        adapters."""
        rate = self._inter / self._gpus_per_node if far else self._intra
        hop = self._far_hop_ns if far else self._hop_ns
        return min(
            round(self._begin_ns + protocol.step * hop + size / (rate * protocol.share))
            for protocol in self._protocols
        )

    def _ring_ns(self, kind: str, ranks: int, nodes: int) -> float:
        """A ring enters each node once, so that a part of its hops is as long as links between
        nodes are."""
        steps = {"all_reduce": 2 * (ranks - 1), "to_next": 1}.get(kind, ranks - 1)
        far = steps * nodes / ranks if nodes > 1 else 0.0
        return far * self._far_hop_ns + (steps - far) * self._hop_ns

    def _all_to_all(self, wire: int, ranks: int, nodes: int, per_node: int) -> Transfer:
        """Messages to all others at once: each GPU's own share of the adapters takes those that
        leave the node, while its links take the rest."""
        away = (ranks - per_node) / (ranks - 1)
        within = wire * (1 - away) / self._intra
        across = wire * away / (self._inter / self._gpus_per_node)
        hop = self._far_hop_ns if nodes > 1 else self._hop_ns
        return min(
            Transfer(
                round(
                    self._begin_ns
                    + protocol.step * hop * (1 + self._more * (ranks - 2))
                    + max(within, across) / protocol.share
                ),
                "P2P",
                protocol.name,
            )
            for protocol in self._protocols
        )

    def _tree_ns(self, nodes: int, per_node: int) -> float:
        return 2 * ((per_node - 1) * self._hop_ns + log2(nodes) * self._far_hop_ns)
