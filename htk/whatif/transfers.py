"""The transfers of a step: their latency, their bytes on the wire, and what makes them longer."""

import math

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import Floats, Mask
from htk.physics.bandwidth import algorithm_bytes, find_bus_factor
from htk.physics.network import LATENCY_NS
from htk.whatif.step_model import StepModel

LARGE = 1 << 20  # transfers that show a pace rather than a latency
_GPUS_OF_A_NODE = 8


def find_latencies(model: StepModel) -> Floats:
    """Return each collective's latency, in ns: the usual one, or its kind's shortest if less."""
    length = model.lengths().astype(np.float64)
    fixed = np.full(len(length), LATENCY_NS)
    kinds = model.facts.collective.codes
    for kind in np.unique(kinds[model.is_comm]).tolist():  # a few
        same_kind = model.is_comm & (kinds == kind) & (length > 0)
        if same_kind.any():
            fixed[same_kind] = min(LATENCY_NS, float(length[same_kind].min()))
    return fixed


def rescale_transfers(model: StepModel, chosen: Mask, ratio: Floats | float) -> Floats:
    """Return lengths, in ns, when the bytes per bandwidth of the chosen change by a ratio."""
    length = model.lengths().astype(np.float64)
    fixed = np.minimum(find_latencies(model), length)
    return np.where(chosen, fixed + (length - fixed) * ratio, length)


def gpus_of_a_node(model: StepModel) -> int:
    return model.facts.gpus_per_node or _GPUS_OF_A_NODE


def compute_wire_bytes(model: StepModel) -> Floats:
    """Return the bytes that a rank sends in each collective; NaN: not known."""
    facts = model.facts
    sent = np.full(len(facts.collective), np.nan)
    own = np.flatnonzero(model.is_comm)
    columns = (facts.collective.codes, facts.in_bytes, facts.out_bytes, facts.group_size)
    alike = Groups.by_keys([column[own] for column in columns])
    of_alike = [
        _count_sent(facts.collective.distinct[code] or "", *rest)
        for code, *rest in alike.keys.tolist()
    ]
    sent[own] = np.array(of_alike, np.float64)[alike.group_ids]
    return sent


def _count_sent(kind: str, in_bytes: int, out_bytes: int, ranks: int) -> float:
    size = algorithm_bytes(kind, in_bytes, out_bytes, ranks)
    share = find_bus_factor(kind, ranks) if ranks > 0 else None
    return math.nan if size is None or share is None else size * share


def share_adapters(model: StepModel, across: bool) -> Floats:
    """Return the share of its nodes' adapters that each collective's group uses.

    A ring passes from node to node through all of its members' adapters at once; in an all-to-all
    each member's own takes what it sends out of the node.
    """
    facts = model.facts
    if not across:
        return np.ones(len(facts.per_node))
    node = gpus_of_a_node(model)
    ring = np.maximum(facts.per_node, 1) / node  # more than 1 in nodes that an edit enlarged
    leave = (facts.group_size - facts.per_node) / np.maximum(facts.group_size - 1, 1)
    alone = 1 / (node * np.where(facts.crosses, leave, 1.0))
    return np.where(model.is_collective("all_to_all"), alone, ring)
