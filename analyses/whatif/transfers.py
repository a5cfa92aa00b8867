"""What part of a transfer is latency, and how it changes with the group."""

import numpy as np
from numpy.typing import NDArray

from htk.analyses.whatif.scene import Scene

Floats = NDArray[np.float64]

# Latency of a collective over NVLink or InfiniBand, ring of few ranks; NCCL's tuning tables put it
# between 5 and 30 us.
LATENCY_NS = 20_000.0


def latency(scene: Scene) -> Floats:
    """Of each collective: no more than its kind's shortest, and no more than is usual."""
    length = scene.lengths().astype(np.float64)
    found = np.full(len(length), LATENCY_NS)
    kinds = np.array([c or "" for c in scene.facts.collective])
    for kind in np.unique(kinds[scene.is_comm]).tolist():  # a few
        mine = scene.is_comm & (kinds == kind) & (length > 0)
        if mine.any():
            found[mine] = min(LATENCY_NS, float(length[mine].min()))
    return found


def rescaled(scene: Scene, chosen: NDArray[np.bool_], ratio: Floats | float) -> Floats:
    """Lengths when the bytes per bandwidth of the chosen change by a ratio."""
    length = scene.lengths().astype(np.float64)
    fixed = np.minimum(latency(scene), length)
    return np.where(chosen, fixed + (length - fixed) * ratio, length)
