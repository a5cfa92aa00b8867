"""What transfers cost by prediction: a latency, and a pace for each level of the network.

The levels are the links between a node's GPUs and the adapters between nodes. The catalogue gives
what links of their kind usually achieve; a recording that shows a level overrules it. The simulator
has a network of its own, on purpose: what is predicted is not tested against itself.
"""

from dataclasses import dataclass

from htk.models.hardware import Gpu

# Latency of a collective over NVLink or InfiniBand, ring of few ranks; NCCL's tuning tables put it
# between 5 and 30 us. Between nodes, by small collectives of nccl-tests on a few of them.
LATENCY_NS, ACROSS_NS = 20_000.0, 40_000.0
ACHIEVED = 0.75  # of a link's rate, by large collectives: nccl-tests on A100, H100


@dataclass(frozen=True)
class LinkTier:
    """A level of the network: what each transfer costs, and a byte on the wire.

    `ns_per_byte`: of a group with all ranks of its nodes; None: nothing shows it.
    """

    latency: float
    ns_per_byte: float | None


@dataclass(frozen=True)
class Network:
    """Both levels: as a recording shows them, and what the catalogue has for those it does not."""

    within: LinkTier
    across: LinkTier
    node: int  # GPUs
    links: float | None = None  # ns per byte within a node, of what the catalogue has
    adapters: float | None = None  # and between nodes, all of a node's together

    def latency(self, ranks: int, per_node: int) -> float:
        return (self.across if ranks > per_node else self.within).latency

    def pace(self, ranks: int, per_node: int) -> float:
        """Return ns for a byte on the wire of a group of so many ranks, so many in each node.

        A group with a part of a node's ranks has that part of its adapters.
        """
        inside = self.within.ns_per_byte or self.links
        if ranks <= per_node:
            return inside or self.across.ns_per_byte or 0.0
        outside = self.across.ns_per_byte or self.adapters or inside or 0.0
        alone = outside * self.node / max(min(per_node, self.node), 1)
        return alone if inside is None else max(alone, inside)

    def shared(self, ranks: int) -> float:
        """Return ns for a byte of a unit, to gather or reduce it over ranks, node by node."""
        return (ranks - 1) / ranks * self.pace(ranks, min(ranks, self.node))

    def summed(self, world: int, shards: int) -> float:
        """Return ns for a byte of a unit, to reduce its shards between replicas."""
        replicas = world // shards
        if replicas == 1:
            return 0.0
        per_node = max(self.node // shards, 1) if world > self.node else replicas
        return 2 * (replicas - 1) / replicas / shards * self.pace(replicas, per_node)


def usual_links(scale_up_gbps: float | None) -> float | None:
    """Return ns per byte that links of a node usually achieve; None: their rate is not known."""
    return None if scale_up_gbps is None else 1 / (ACHIEVED * scale_up_gbps)


def usual_adapters(gpu: Gpu | None, node: int) -> float | None:
    """Return ns per byte that a node's adapters together usually achieve."""
    return None if gpu is None else 1 / (ACHIEVED * gpu.scale_out_gbps * node)


def usual_network(gpu: Gpu, node: int) -> Network:
    """Return what the catalogue alone tells."""
    links, adapters = usual_links(gpu.scale_up_gbps), usual_adapters(gpu, node)
    within, across = LinkTier(LATENCY_NS, links), LinkTier(ACROSS_NS, adapters)
    return Network(within, across, node, links, adapters)
