"""How long collectives take on this cluster, once every rank has arrived. The simulator's own.

A collective runs a ring or a tree with one of three protocols, whichever is fastest. Its bytes are
shared out to channels, which share the links, and go over them in chunks. A ring takes n - 1 steps
(all_reduce twice that), so its latency grows with the ranks; a tree goes up and down a chain in
each node and a binary tree of nodes, so its latency grows with the logarithm of the nodes, and a
chunk has to be small for the first to be through early. A protocol trades bandwidth for the latency
of a step. Latencies are drawn from the seed round those of NCCL's tuning tables
(`src/graph/tuning.cc` of NVIDIA/nccl: a step of LL, LL128, Simple in µs is 0.6, 1.25 to 1.9, 3.4 to
4 over NVLink, 2.7, 4, 14 of a ring between nodes). Chunks are of its buffers of eight steps
(`src/init.cc`, `src/include/device.h` and `collectives.h`): LL has half of 512 threads' 8 lines of
16 bytes, LL128 15/16 of 640 threads' 120 words, Simple four steps of 512 KiB, passed on by two.
"""

from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

import numpy as np

from htk.recording.simulate.chunks import Link, circulated_ns, piped_ns, scattered_ns
from htk.recording.simulate.config import Config

_CHUNKS_A_HOP = 8  # of a tree: as many and more are under way at once


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
    chunk: int  # bytes at most, that one channel has in flight to a neighbour
    slices: int  # parts of a chunk, each of which is passed on as soon as it is there
    far_slices: int  # the same between nodes: adapters send what the GPU has put in one place
    smallest: int  # bytes of a chunk that a tree takes, so that more are under way


class _Span(NamedTuple):
    """Where the members of a group are."""

    ranks: int
    nodes: int
    per_node: int


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
            _Protocol("LL", 1.0, rng.uniform(0.25, 0.40), 32 << 10, 8, 1, 128),
            _Protocol(
                "LL128", rng.uniform(1.6, 2.0), rng.uniform(0.80, 0.92), 576_000, 8, 1, 1 << 10
            ),
            _Protocol("Simple", rng.uniform(3.5, 5.0), 1.0, 2 << 20, 2, 2, 32 << 10),
        )
        self._more = rng.uniform(0.1, 0.3)  # hops that each further peer of an all-to-all costs
        self._channels = 8 * int(rng.integers(1, 5))
        self._busy = rng.uniform(
            0.3, 0.7
        )  # of a hop within a node: what the sender itself takes for a step
        self._known: dict[tuple[str, int, _Span], Transfer] = {}

    def transfer(self, kind: str, wire: int, ranks: int, nodes: int, per_node: int) -> Transfer:
        """Return the time of a collective in which each rank sends `wire` bytes.

        `per_node`: members of its group in each of the nodes.
        """
        call = kind, wire, _Span(ranks, nodes, per_node)
        if call not in self._known:
            self._known[call] = min(
                Transfer(round(self._begin_ns + ns), algorithm, protocol.name)
                for protocol in self._protocols
                for algorithm, ns in self._list_ways(protocol, *call)
            )
        return self._known[call]

    def message(self, size: int, *, far: bool) -> int:
        """Return the time of one message; to another node it takes the rank's own share of the
        adapters."""
        links = (self._own_link(protocol, far=far) for protocol in self._protocols)
        return round(self._begin_ns + min(piped_ns([link], size, 1) for link in links))

    def _list_ways(
        self, protocol: _Protocol, kind: str, wire: int, span: _Span
    ) -> list[tuple[str, float]]:
        """Return the algorithms that a collective can take, and their times."""
        if kind == "all_to_all":
            return [("P2P", self._exchange_ns(protocol, wire, span))]
        ways = [("RING", self._ring_ns(protocol, kind, wire, span))]
        if kind == "all_reduce" and span.nodes > 1:
            ways.append(("TREE", self._tree_ns(protocol, wire, span)))
        return ways

    def _ring_ns(self, protocol: _Protocol, kind: str, wire: int, span: _Span) -> float:
        """A ring enters each node once; each channel leaves it by the adapter of another GPU."""
        steps = {"all_reduce": 2 * (span.ranks - 1), "to_next": 1}.get(kind, span.ranks - 1)
        channels = self._channels_of(span)
        slices = protocol.slices if span.nodes == 1 else protocol.far_slices
        near, far = self._channel_links(protocol, span, busy=self._busy / slices)
        links = [near] if span.nodes == 1 else [near] * (span.per_node - 1) + [far]
        share = wire / steps / channels
        rounds = max(1, ceil(share / protocol.chunk))
        return circulated_ns(links, share / rounds / slices, rounds * steps * slices, slices)

    def _tree_ns(self, protocol: _Protocol, wire: int, span: _Span) -> float:
        """Half of the bytes that a rank sends go up a tree and half down again, over links that
        both ways share."""
        channels = self._channels_of(span)
        near, far = self._channel_links(protocol, span, share=self._tree_share / 2)
        up = [near] * (span.per_node - 1) + [far] * (span.nodes - 1).bit_length()
        share = wire / 2 / channels
        chunk = protocol.chunk / protocol.slices
        while share / chunk < _CHUNKS_A_HOP * len(up) and chunk > protocol.smallest:
            chunk /= 2
        pieces = max(1, ceil(share / chunk))
        return piped_ns(up + up[::-1], share / pieces, pieces)

    def _exchange_ns(self, protocol: _Protocol, wire: int, span: _Span) -> float:
        """Messages to all others at once: each GPU's own share of the adapters takes those that
        leave the node, while its links take the rest."""
        near = self._own_link(protocol, far=False)
        far = self._own_link(protocol, far=True)
        counts = [(near, span.per_node - 1), (far, span.ranks - span.per_node)]
        hop = far.hop_ns if span.nodes > 1 else near.hop_ns
        return scattered_ns(counts, wire / (span.ranks - 1), self._more * hop)

    def _channels_of(self, span: _Span) -> int:
        """Return how many rings there are: between nodes as many through each adapter."""
        if span.nodes == 1:
            return self._channels
        return span.per_node * max(1, round(self._channels / span.per_node))

    def _channel_links(
        self, protocol: _Protocol, span: _Span, share: float = 1.0, busy: float = 0.0
    ) -> tuple[Link, Link]:
        """Return a channel's part of the links within a node and of those to the next one."""
        part = share * protocol.share / self._channels_of(span)
        across = self._inter * span.per_node / self._gpus_per_node
        hop = protocol.step * self._hop_ns
        near = Link(self._intra * part, hop, busy * hop)
        return near, Link(across * part, protocol.step * self._far_hop_ns, busy * hop)

    def _own_link(self, protocol: _Protocol, *, far: bool) -> Link:
        """Return what a message has, to a rank of another node or of its own."""
        rate = self._inter / self._gpus_per_node if far else self._intra
        hop = self._far_hop_ns if far else self._hop_ns
        return Link(rate * protocol.share, protocol.step * hop)
