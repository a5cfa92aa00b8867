"""What a transfer costs: a latency, and its bytes at the pace of the network that it crosses."""

import numpy as np

from htk.columns.types import Floats, Mask
from htk.models.bandwidth import algorithm_bytes, factor
from htk.whatif.step_model import StepModel

# Latency of a collective over NVLink or InfiniBand, ring of few ranks; NCCL's tuning tables put it
# between 5 and 30 us.
LATENCY_NS = 20_000.0
ACHIEVED = 0.75  # of a link's rate, by large collectives: nccl-tests on A100, H100
LARGE = 1 << 20  # transfers that show a pace rather than a latency
_GPUS_OF_A_NODE = 8


def latency(scene: StepModel) -> Floats:
    """Of each collective: no more than its kind's shortest, and no more than is usual."""
    length = scene.lengths().astype(np.float64)
    fixed = np.full(len(length), LATENCY_NS)
    kinds = np.array([c or "" for c in scene.facts.collective])
    for kind in np.unique(kinds[scene.is_comm]).tolist():  # a few
        same_kind = scene.is_comm & (kinds == kind) & (length > 0)
        if same_kind.any():
            fixed[same_kind] = min(LATENCY_NS, float(length[same_kind].min()))
    return fixed


def rescaled(scene: StepModel, chosen: Mask, ratio: Floats | float) -> Floats:
    """Lengths when the bytes per bandwidth of the chosen change by a ratio."""
    length = scene.lengths().astype(np.float64)
    fixed = np.minimum(latency(scene), length)
    return np.where(chosen, fixed + (length - fixed) * ratio, length)


def gpus_of_a_node(scene: StepModel) -> int:
    return scene.facts.gpus_per_node or _GPUS_OF_A_NODE


def wire(scene: StepModel) -> Floats:
    """Bytes that a rank sends in each collective; NaN: not known."""
    facts = scene.facts
    sent = np.full(len(facts.collective), np.nan)
    for k in np.flatnonzero(scene.is_comm).tolist():  # some hundreds
        kind, ranks = facts.collective[k] or "", int(facts.group_size[k])
        size = algorithm_bytes(kind, int(facts.in_bytes[k]), int(facts.out_bytes[k]), ranks)
        share = factor(kind, ranks) if ranks > 0 else None
        if size is not None and share is not None:
            sent[k] = size * share
    return sent


def pace(scene: StepModel, ranks: int, per_node: int) -> float:
    """ns for a byte on the wire of a group of so many ranks, so many of them in each node.

    As the large transfers of that level show; else what links of the GPU achieve; a
    group with a part of a node's ranks has that part of its adapters.
    """
    node = gpus_of_a_node(scene)
    across = ranks > per_node
    seen = _seen(scene, across)
    if not across:
        return _within(scene) if seen is None else seen
    full_node = _across(scene) if seen is None else seen
    alone = full_node * node / max(min(per_node, node), 1)
    inside = _seen(scene, False)
    return alone if inside is None else max(alone, inside)


def _seen(scene: StepModel, across: bool) -> float | None:
    """Median pace of the large transfers of a level; across nodes, as if all ranks took part."""
    sent = wire(scene)
    moving = scene.lengths() - latency(scene)
    large = scene.is_comm & (sent >= LARGE) & (moving > 0) & (scene.facts.crosses == across)
    if not large.any():
        return None
    return float(np.median((moving / sent * part(scene, across))[large]))


def part(scene: StepModel, across: bool) -> Floats:
    """Of its nodes' adapters that the group of each collective has."""
    if not across:
        return np.ones(len(scene.facts.per_node))
    node = gpus_of_a_node(scene)
    return np.asarray(np.clip(scene.facts.per_node, 1, node) / node)


def _within(scene: StepModel) -> float:
    links = scene.facts.scale_up_gbps
    if links is not None:
        return 1 / (ACHIEVED * links)
    other = _seen(scene, True)
    return 0.0 if other is None else other


def _across(scene: StepModel) -> float:
    gpu = scene.device
    if gpu is None:
        return _within(scene)
    return 1 / (ACHIEVED * gpu.scale_out_gbps * gpus_of_a_node(scene))
