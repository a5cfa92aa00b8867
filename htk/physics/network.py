"""What transfers cost by prediction: a latency, and a pace for each level of the network.

The levels are the links between a node's GPUs, the adapters between nodes, and where there are such
the narrower uplinks between pods of nodes. The catalogue gives what links of their kind usually
achieve; a recording that shows a level overrules it. The simulator
has a network of its own, on purpose: what is predicted is not tested against itself.
"""

from dataclasses import dataclass

from htk.base.errors import UsageError
from htk.physics.hardware import Gpu

# Latency of a collective over NVLink or InfiniBand, ring of few ranks; NCCL's tuning tables put it
# between 5 and 30 us. Between nodes, by small collectives of nccl-tests on a few of them.
LATENCY_NS = 20_000.0
ACROSS_NS = 40_000.0
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
    pod: int = 0  # GPUs whose adapters meet without narrowing; 0: all
    beyond: LinkTier | None = None  # between pods, all of a pod's uplinks together
    stride: int = 1  # ranks from one of a data-parallel group to the next

    def latency(self, ranks: int, per_node: int) -> float:
        return (self.across if ranks > per_node else self.within).latency

    def pace(self, ranks: int, per_node: int) -> float:
        """Return ns for a byte on the wire of a group of so many ranks, so many in each node.

        A group with a part of a node's ranks has that part of its adapters; one with more ranks
        in larger nodes has as many more, as each GPU brings its own.
        """
        inside = self.within.ns_per_byte or self.links
        outside = self.across.ns_per_byte or self.adapters or inside
        if outside is None:
            raise UsageError(
                "nothing shows how fast the links are: no transfer of 1 MiB or more was recorded, "
                "and the GPU is not in the catalogue of hardware"
            )
        if ranks <= per_node:
            return inside or outside
        alone = outside * self.node / max(per_node, 1)
        return alone if inside is None else max(alone, inside)

    def exchange_pace(self, ranks: int, per_node: int) -> float:
        """Return ns for a byte on the wire of an all-to-all of so many ranks.

        What leaves the node goes through each GPU's own share of its adapters, while the links
        within it take the rest.
        """
        if ranks <= per_node:
            return self.pace(ranks, per_node)
        inside = self.within.ns_per_byte or self.links or 0.0
        alone = self.pace(ranks, 1)  # a GPU's own share of its node's adapters
        away = share_leaving_node(ranks, per_node)
        return max((1 - away) * inside, away * alone)

    def spread_pace(self, ranks: int, stride: int) -> float:
        """Return ns for a byte on the wire of a group whose ranks are so far from each other."""
        near = self.pace(ranks, self.members(ranks, stride))
        if self.beyond is None or not self.pod or (ranks - 1) * stride < self.pod:
            return near
        per_pod = min(max(self.pod // stride, 1), ranks)
        return max(near, (self.beyond.ns_per_byte or 0.0) * self.pod / per_pod)

    def members(self, ranks: int, stride: int) -> int:
        """Return how many of a group's ranks, so far from each other, share a node."""
        return min(max(self.node // stride, 1), ranks)

    def in_node(self, ranks: int) -> int:
        """Return how many of so many ranks of a data-parallel group share a node."""
        return self.members(ranks, self.stride)

    def group_latency(self, ranks: int) -> float:
        """Return the latency of so many ranks of a data-parallel group, in ns."""
        return self.latency(ranks, self.in_node(ranks))

    def shared(self, ranks: int) -> float:
        """Return ns for a byte of a unit, to gather or reduce it over ranks, node by node."""
        return (ranks - 1) / ranks * self.pace(ranks, self.in_node(ranks))

    def replicas_in_node(self, world: int, shards: int) -> int:
        """Return how many of those that hold the same shard share a node."""
        return self.members(world // shards, self.stride * shards)

    def summed(self, world: int, shards: int) -> float:
        """Return ns for a byte of a unit, to reduce its shards between replicas."""
        replicas = world // shards
        if replicas == 1:
            return 0.0
        per_node = self.replicas_in_node(world, shards)
        return 2 * (replicas - 1) / replicas / shards * self.pace(replicas, per_node)


def share_leaving_node(ranks: int, per_node: int) -> float:
    """Return the share of an all-to-all's messages that leave the sender's node."""
    return (ranks - per_node) / (ranks - 1) if ranks > per_node else 0.0


def usual_links(scale_up_gbps: float | None) -> float | None:
    """Return ns per byte that links of a node usually achieve; None: their rate is not known."""
    return None if scale_up_gbps is None else 1 / (ACHIEVED * scale_up_gbps)


def usual_adapters(gpu: Gpu | None, node: int) -> float | None:
    """Return ns per byte that a node's adapters together usually achieve."""
    return None if gpu is None else 1 / (ACHIEVED * gpu.scale_out_gbps * node)


@dataclass(frozen=True)
class Fabric:
    """A network between nodes, by name: one way, of one GPU's adapter."""

    gbps: float
    achieved: float = ACHIEVED
    latency_ns: float = ACROSS_NS


# Line rates of 25, 50 and 100 GB/s are 200, 400 and 800 Gb/s a GPU. What InfiniBand achieves is
# that of nccl-tests; of the others there was no measurement, and the lower shares are assumed.
FABRICS = {
    "infiniband-hdr": Fabric(25.0),
    "infiniband-ndr": Fabric(50.0),
    "infiniband-xdr": Fabric(100.0),
    "roce-100": Fabric(12.5, 0.65, 50_000.0),
    "roce-200": Fabric(25.0, 0.65, 50_000.0),
    "roce-400": Fabric(50.0, 0.65, 50_000.0),
    "roce-800": Fabric(100.0, 0.65, 50_000.0),
    "efa-p4d": Fabric(6.25, 0.65, 80_000.0),
    "efa-p5": Fabric(50.0, 0.65, 80_000.0),
    "ethernet-100": Fabric(12.5, 0.5, 100_000.0),
}
_ALSO = {"infiniband": "infiniband-ndr", "ndr": "infiniband-ndr", "xdr": "infiniband-xdr",
         "hdr": "infiniband-hdr", "roce": "roce-400", "efa": "efa-p5"}  # fmt: skip
NVL72 = 72  # GPUs that one domain of NVLink joins
NETWORKS = (*FABRICS, "nvl72")


def find_fabric(name: str) -> Fabric:
    """Return the network between nodes of that name."""
    key = _ALSO.get(name.lower(), name.lower())
    if key not in FABRICS:
        raise UsageError(f"no network {name!r}; there are {', '.join(NETWORKS)}")
    return FABRICS[key]


def named_network(name: str) -> tuple[Fabric | None, int | None]:
    """Return the network of that name: what joins nodes, or the GPUs that fast links join."""
    return (None, NVL72) if name.lower() == "nvl72" else (find_fabric(name), None)


def described_network(
    gpu: Gpu,
    domain: int,
    between: Fabric | None = None,
    link_gbps: float | None = None,
    pod: int = 0,
    oversubscription: float = 1.0,
) -> Network:
    """Return the network of GPUs joined by links in domains, by a fabric beyond them, and by
    uplinks of a fraction of that beyond pods; what is left out is the catalogue's."""
    chosen = between or Fabric(gpu.scale_out_gbps)
    links = usual_links(link_gbps or gpu.scale_up_gbps)
    adapters = 1 / (chosen.achieved * chosen.gbps * domain)
    beyond = (
        LinkTier(chosen.latency_ns, oversubscription * adapters * domain / pod) if pod else None
    )
    within = LinkTier(LATENCY_NS, links)
    across = LinkTier(chosen.latency_ns, adapters)
    return Network(within, across, domain, links, adapters, pod, beyond)
