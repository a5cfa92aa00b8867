"""What a site measured of a GPU, over what the catalogue lets one expect.

Whoever predicts with such rates is surer by `NARROWED`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

# Of a prediction's variance, what jobs of one site do not have in common: of 400 published rows of
# eight sources, the part that is left within a source and GPU.
WITHIN = 0.6
# Of the rest, what stays where rates were recorded: on simulated sites a ninth does, whose other
# efficiencies differ less than those of real ones.
_RATES_LEAVE = 0.5
NARROWED = math.sqrt(WITHIN + (1 - WITHIN) * _RATES_LEAVE)  # times the standard deviation


@dataclass(frozen=True)
class SiteRates:
    """Ratios of one kind of GPU; None: nothing recorded told it."""

    products: float | None = None
    memory: float | None = None
    links: float | None = None  # within a node
    adapters: float | None = None  # between nodes


SiteByGpu = Mapping[str, SiteRates]  # by the catalogue's name
NO_SITE: SiteByGpu = {}
