"""Communication hidden perfectly, or not at all."""

import numpy as np

from htk.analyses.whatif.scene import Scene
from htk.errors import UsageError

NAME = "overlap"
HELP = "Communication perfectly hidden, or serial: perfect, serial, today."


def apply(scene: Scene, value: str) -> Scene:
    if value == "today":
        return scene
    if value == "perfect":
        length = np.where(scene.facts.single, 0, 0)
        return scene.with_lengths(scene.is_comm, length).said(
            "no transfer is waited for; a rank that is late still is"
        )
    if value == "serial":
        return _serial(scene)
    raise UsageError(f"{NAME} {value!r}: perfect, serial or today")


def _serial(scene: Scene) -> Scene:
    """What was hidden adds to the compute that hid it."""
    graph = scene.graph
    acts = graph.activities
    length = scene.lengths().astype(np.float64)
    for device in np.unique(acts.device).tolist():  # a few
        compute = np.flatnonzero(scene.is_compute & (acts.device == device))
        for comm in np.flatnonzero(scene.is_comm & (acts.device == device)).tolist():
            low = np.maximum(acts.start[compute], acts.start[comm])
            hidden = np.maximum(np.minimum(acts.end[compute], acts.end[comm]) - low, 0)
            length[compute] += hidden
    return scene.with_lengths(scene.is_compute, length).said(
        "compute stands still while communication runs"
    )
