"""A faster or slower network."""

import numpy as np

from htk.analyses.whatif.scene import Scene
from htk.analyses.whatif.transfers import latency
from htk.analyses.whatif.values import factor, pairs

NAME = "network"
HELP = "Bandwidth and latency of collectives by a factor: bandwidth=2x,latency=0.5x."


def apply(scene: Scene, value: str) -> Scene:
    given = pairs(value, NAME, ("bandwidth", "latency"))
    faster = factor(given.get("bandwidth", "1"), "bandwidth")
    slower = factor(given.get("latency", "1"), "latency")
    fixed = latency(scene)
    length = scene.lengths()
    moving = np.maximum(length - fixed, 0)
    new = np.minimum(fixed, length) * slower + moving / faster
    return (
        scene.with_lengths(scene.is_comm, new)
        .doubted("communication", 0.1)
        .said(
            "a transfer is a latency and bytes over bandwidth; the latency is that of the "
            "fastest collective of its kind"
        )
    )
