"""The levels of a network, within nodes and between them, as a recording's transfers show each."""

from dataclasses import dataclass

import numpy as np

from htk.whatif.step_model import StepModel
from htk.whatif.transfers import ACHIEVED, LARGE, LATENCY_NS, gpus_of_a_node, part, wire

ACROSS_NS = 40_000.0  # latency between nodes, by small collectives of nccl-tests on a few of them
_GOOD_TO = 0.05  # the length of a transfer: contention, chance


@dataclass(frozen=True)
class LinkTier:
    """A level of the network as its transfers show it: what each costs, and a byte on the wire.

    `ns_per_byte`: of a group with all ranks of its nodes; None: the recording shows nothing of it.
    """

    latency: float
    ns_per_byte: float | None


def link_tier(scene: StepModel, across: bool) -> LinkTier:
    """Latency as usual as transfers of several sizes allow, and the pace that is left.

    Least squares over the median length of each size, which is good to so many percent; that the
    latency is the usual one, to as much as that.
    """
    usual = ACROSS_NS if across else LATENCY_NS
    sent, length = wire(scene) / part(scene, across), scene.lengths().astype(np.float64)
    measured = scene.is_comm & (sent > 0) & (length > 0) & (scene.facts.crosses == across)
    sizes = np.unique(sent[measured])
    if not len(sizes):
        return LinkTier(usual, None)
    middle = np.array([np.median(length[measured & (sent == size)]) for size in sizes])
    sure = _GOOD_TO * middle
    terms = np.vstack([np.column_stack([1 / sure, sizes / sure]), [1 / usual, 0.0]])
    fixed, slope = np.linalg.lstsq(terms, np.append(middle / sure, 1.0), rcond=None)[0]
    if not 0 <= fixed <= middle.min() or slope <= 0:
        fixed = min(usual, float(middle.min()))
        slope = float(np.median((middle - fixed) / sizes))
    return LinkTier(float(fixed), float(slope) if sizes[-1] >= LARGE and slope > 0 else None)


@dataclass(frozen=True)
class Network:
    """Both levels."""

    within: LinkTier
    across: LinkTier
    node: int  # GPUs
    links: float | None  # ns per byte within a node, of what the catalogue has
    adapters: float | None  # and between nodes

    def latency(self, ranks: int, per_node: int) -> float:
        return (self.across if ranks > per_node else self.within).latency

    def pace(self, ranks: int, per_node: int) -> float:
        """ns for a byte on the wire of a group of so many ranks, so many of them in each node."""
        inside = self.within.ns_per_byte
        if ranks <= per_node:
            return inside or self.links or self.across.ns_per_byte or 0.0
        full_node = self.across.ns_per_byte or self.adapters or inside or self.links or 0.0
        alone = full_node * self.node / max(min(per_node, self.node), 1)
        return alone if inside is None else max(alone, inside)

    def shared(self, ranks: int) -> float:
        """ns for a byte of a unit, to gather or reduce it over so many ranks, node by node."""
        return (ranks - 1) / ranks * self.pace(ranks, min(ranks, self.node))

    def summed(self, world: int, shards: int) -> float:
        """ns for a byte of a unit, to reduce its shards between replicas."""
        replicas = world // shards
        if replicas == 1:
            return 0.0
        per_node = max(self.node // shards, 1) if world > self.node else replicas
        return 2 * (replicas - 1) / replicas / shards * self.pace(replicas, per_node)


def network(scene: StepModel) -> Network:
    links, gpu = scene.facts.scale_up_gbps, scene.device
    node = gpus_of_a_node(scene)
    return Network(
        link_tier(scene, False),
        link_tier(scene, True),
        node,
        None if links is None else 1 / (ACHIEVED * links),
        None if gpu is None else 1 / (ACHIEVED * gpu.scale_out_gbps * node),
    )
