"""Communication hidden perfectly, as well as contention lets it, or not at all."""

import numpy as np

from htk.columns.intervals import subtract, union
from htk.columns.types import Floats
from htk.errors import UsageError
from htk.graph.replay import replay
from htk.whatif.contention import factor, share
from htk.whatif.step_model import StepModel

NAME = "overlap"
HELP = (
    "Communication perfectly hidden, hidden but slowing compute down, or serial: perfect, "
    "realistic, serial, today."
)

_PRIOR = 0.189  # of compute beside communication, where the trace does not tell: arXiv 2507.03114


def apply(scene: StepModel, value: str) -> StepModel:
    if value == "today":
        return scene
    if value == "perfect":
        return _hidden(scene)
    if value == "realistic":
        return _realistic(scene)
    if value == "serial":
        return _serial(scene)
    raise UsageError(f"{NAME} {value!r}: perfect, realistic, serial or today")


def _hidden(scene: StepModel) -> StepModel:
    """Nobody waits for a transfer, but a stream carries no more than it can in a step."""
    acts, length = scene.graph.activities, scene.lengths()
    lanes = np.unique(acts.lane[scene.is_comm]).tolist()  # a few a rank
    busy = [int(length[scene.is_comm & (acts.lane == lane)].sum()) for lane in lanes]
    bare = scene.with_lengths(scene.is_comm, 0)
    step = replay(bare.graph, bare.weight, bare.wrap_weight).period_ns
    short = max(busy, default=0) - step
    hidden = bare.add_step_time("communication", short, exposed=short) if short > 0 else bare
    return hidden.with_assumption(
        "no transfer is waited for, though all must go through their streams in a step; a rank "
        "that is late still is waited for"
    )


def _realistic(scene: StepModel) -> StepModel:
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
        .with_uncertainty("compute", 0.3)
        .with_assumption(
            f"compute with communication beside it takes {1 + kappa:.2f} times as long: {source}"
        )
    )


def _beside(scene: StepModel) -> Floats:
    """Share of each device's compute that has communication beside it, if all is hidden."""
    acts, length = scene.graph.activities, scene.lengths()
    phi = np.zeros(len(length))
    for device in np.unique(acts.device).tolist():  # a few
        on_device = acts.device == device
        comm = int(length[on_device & scene.is_comm].sum())
        compute = int(length[on_device & scene.is_compute].sum())
        phi[on_device] = min(comm / max(compute, 1), 1.0)
    return phi


def _serial(scene: StepModel) -> StepModel:
    """The step is longer by what compute hides of communication, on a GPU of the middle."""
    graph, acts = scene.graph, scene.graph.activities
    time = replay(graph, scene.weight, scene.wrap_weight).time
    start, end = time[graph.start], time[graph.end]
    hidden = []
    for device in np.unique(acts.device).tolist():  # a few
        on_device = acts.device == device
        comm = union(start[on_device & scene.is_comm], end[on_device & scene.is_comm])
        compute = union(start[on_device & scene.is_compute], end[on_device & scene.is_compute])
        hidden.append(comm.total - subtract(comm, compute).total)
    alone = float(np.median(hidden))
    return scene.add_step_time("communication", alone, exposed=alone).with_assumption(
        "compute stands still while communication runs"
    )
