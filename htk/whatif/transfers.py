"""Transfers of a step: their latency, their bytes on the wire, and what makes them longer."""

import numpy as np

from htk.columns.types import Floats, Mask
from htk.models.bandwidth import algorithm_bytes, factor
from htk.models.network import LATENCY_NS
from htk.whatif.step_model import StepModel

LARGE = 1 << 20  # transfers that show a pace rather than a latency
_GPUS_OF_A_NODE = 8


def latency(model: StepModel) -> Floats:
    """Of each collective: no more than its kind's shortest, and no more than is usual."""
    length = model.lengths().astype(np.float64)
    fixed = np.full(len(length), LATENCY_NS)
    kinds = model.facts.collective.codes
    for kind in np.unique(kinds[model.is_comm]).tolist():  # a few
        same_kind = model.is_comm & (kinds == kind) & (length > 0)
        if same_kind.any():
            fixed[same_kind] = min(LATENCY_NS, float(length[same_kind].min()))
    return fixed


def rescaled(model: StepModel, chosen: Mask, ratio: Floats | float) -> Floats:
    """Lengths when the bytes per bandwidth of the chosen change by a ratio."""
    length = model.lengths().astype(np.float64)
    fixed = np.minimum(latency(model), length)
    return np.where(chosen, fixed + (length - fixed) * ratio, length)


def gpus_of_a_node(model: StepModel) -> int:
    return model.facts.gpus_per_node or _GPUS_OF_A_NODE


def wire(model: StepModel) -> Floats:
    """Return the bytes that a rank sends in each collective; NaN: not known."""
    facts = model.facts
    sent = np.full(len(facts.collective), np.nan)
    for k in np.flatnonzero(model.is_comm).tolist():  # some hundreds
        kind, ranks = facts.collective[k] or "", int(facts.group_size[k])
        size = algorithm_bytes(kind, int(facts.in_bytes[k]), int(facts.out_bytes[k]), ranks)
        share = factor(kind, ranks) if ranks > 0 else None
        if size is not None and share is not None:
            sent[k] = size * share
    return sent


def part(model: StepModel, across: bool) -> Floats:
    """Of its nodes' adapters that the group of each collective has."""
    if not across:
        return np.ones(len(model.facts.per_node))
    node = gpus_of_a_node(model)
    return np.asarray(np.clip(model.facts.per_node, 1, node) / node)
