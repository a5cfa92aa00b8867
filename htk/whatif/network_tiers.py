"""The levels of a network, within nodes and between them, as a recording's transfers show each."""

import numpy as np

from htk.physics.network import (
    ACROSS_NS,
    LATENCY_NS,
    LinkTier,
    Network,
    usual_adapters,
    usual_links,
)
from htk.physics.site_rates import NARROWED
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import LARGE, compute_wire_bytes, gpus_of_a_node, share_adapters

_GOOD_TO = 0.05  # the length of a transfer: contention, chance


def link_tier(model: StepModel, across: bool) -> LinkTier:
    """Latency as usual as transfers of several sizes allow, and the pace that is left.

    Least squares over the median length of each size, which is good to so many percent; that the
    latency is the usual one, to as much as that.
    """
    level = "between nodes" if across else "in nodes"
    return model.once(f"links {level}", lambda: _link_tier(model, across), of_lengths=True)


def _link_tier(model: StepModel, across: bool) -> LinkTier:
    usual = ACROSS_NS if across else LATENCY_NS
    sent = compute_wire_bytes(model) / share_adapters(model, across)
    length = model.lengths().astype(np.float64)
    measured = model.is_comm & (sent > 0) & (length > 0) & (model.facts.crosses == across)
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
    ns_per_byte = float(slope) if sizes[-1] >= LARGE and slope > 0 else None
    return LinkTier(float(fixed), ns_per_byte)


def read_network(model: StepModel) -> Network:
    """Return both levels as the step's transfers show them, beside what the catalogue has."""
    node = gpus_of_a_node(model)
    links = usual_links(model.facts.scale_up_gbps)
    adapters = usual_adapters(model.device, node)
    return Network(
        link_tier(model, False),
        link_tier(model, True),
        node,
        None if links is None else links / (_site_ratio(model, False) or 1.0),
        None if adapters is None else adapters / (_site_ratio(model, True) or 1.0),
    )


def site_words(model: StepModel, across: bool) -> str:
    """Return what of a level this site measured, where the recording shows nothing of it; ""."""
    ratio = _site_ratio(model, across)
    if ratio is None or link_tier(model, across).ns_per_byte is not None:
        return ""
    level = "adapters between nodes" if across else "links within a node"
    return f"{level} by this site's recordings, {ratio:.2f} of what is usual"


def _site_ratio(model: StepModel, across: bool) -> float | None:
    if across:
        return model.site_rates(model.device).adapters
    return model.site_rates(model.facts.device).links


def site_narrows(model: StepModel, across: bool) -> float:
    """Return how many times narrower a level's rate is for what the site measured of it."""
    return NARROWED if site_words(model, across) else 1.0
