"""Communication hidden perfectly, as well as contention lets it, or not at all."""

import numpy as np

from htk.analyses.whatif.contention import factor, share
from htk.analyses.whatif.insert import held_to
from htk.analyses.whatif.scene import Floats, Scene
from htk.errors import UsageError

NAME = "overlap"
HELP = (
    "Communication perfectly hidden, hidden but slowing compute down, or serial: perfect, "
    "realistic, serial, today."
)

_PRIOR = 0.189  # of compute beside communication, where the trace does not tell: arXiv 2507.03114


def apply(scene: Scene, value: str) -> Scene:
    if value == "today":
        return scene
    if value == "perfect":
        return _hidden(scene)
    if value == "realistic":
        return _realistic(scene)
    if value == "serial":
        return _serial(scene)
    raise UsageError(f"{NAME} {value!r}: perfect, realistic, serial or today")


def _hidden(scene: Scene) -> Scene:
    """Nobody waits for a transfer, but a stream carries no more than it can in a step."""
    first, total = [], []
    acts, length = scene.graph.activities, scene.lengths()
    for lane in np.unique(acts.lane[scene.is_comm]).tolist():  # a few a rank
        mine = np.flatnonzero(scene.is_comm & (acts.lane == lane))
        first.append(int(mine[np.argmin(acts.start[mine])]))
        total.append(int(length[mine].sum()))
    held = held_to(scene, np.array(first, np.int64), np.array(total, np.int64))
    return held.with_lengths(scene.is_comm, 0).said(
        "no transfer is waited for, though all must go through their streams in a step; a rank "
        "that is late still is waited for"
    )


def _realistic(scene: Scene) -> Scene:
    """The same, and compute is slower for as long as transfers run beside it."""
    fitted = factor(scene)
    kappa = fitted or _PRIOR
    length = scene.lengths().astype(np.float64)
    slower = 1 + kappa * _beside(scene)
    if not fitted:  # what the replay settles by itself is only what the trace told
        slower = np.maximum(slower / (1 + kappa * share(scene, scene.graph.time)), 1.0)
    source = "fitted to the trace" if fitted else "usual; the trace does not tell"
    return (
        _hidden(scene)
        .with_lengths(scene.is_compute, length * slower)
        .doubted("compute", 0.3)
        .said(f"compute with communication beside it takes {1 + kappa:.2f} times as long: {source}")
    )


def _beside(scene: Scene) -> Floats:
    """Share of each device's compute that has communication beside it, if all is hidden."""
    acts, length = scene.graph.activities, scene.lengths()
    found = np.zeros(len(length))
    for device in np.unique(acts.device).tolist():  # a few
        mine = acts.device == device
        comm = int(length[mine & scene.is_comm].sum())
        compute = int(length[mine & scene.is_compute].sum())
        found[mine] = min(comm / max(compute, 1), 1.0)
    return found


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
