"""Communication hidden perfectly, as well as contention lets it, or not at all."""

import numpy as np

from htk.columns.types import Floats, Ints
from htk.errors import UsageError
from htk.graph.replay import replay
from htk.whatif.contention import factor, of_transfers, share
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import linked

NAME = "overlap"
HELP = (
    "Communication perfectly hidden, hidden but slowing compute down, or serial: perfect, "
    "realistic, serial, today."
)

USUAL_CONTENTION = (
    0.189  # of compute beside communication, where the trace does not tell: arXiv 2507.03114
)

_FITTED = 0.25  # one sigma of a fitted factor, relative
_TRANSFERS = 0.5  # and of how much quicker transfers are with nothing beside them


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
    """Return the same, and compute is slower for as long as transfers run beside it."""
    fitted = factor(scene)
    kappa = fitted or USUAL_CONTENTION
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
    """Communication runs on the compute stream, in the order in which both were launched."""
    if not scene.is_comm.any():
        return scene
    slower, beside = of_transfers(scene)
    alone = scene.lengths() / (1 + slower * beside)
    turns = _in_turn(scene.with_lengths(scene.is_comm, alone))
    turns = turns.without(turns.graph.edges("capacity"))  # nothing runs beside to make room for
    return (
        turns.with_uncertainty("communication", _TRANSFERS)
        .with_uncertainty("contention", _contention_sigma(scene))
        .with_assumption(
            "compute stands still while communication runs; both run in the order in which they "
            "were launched, and neither slows the other"
        )
    )


def _contention_sigma(scene: StepModel) -> float:
    """Return what is uncertain of compute that nothing slows any more, relative to the step."""
    beside = share(scene, scene.graph.time)
    slowed = float((beside * scene.lengths())[scene.is_compute].sum())
    fitted = factor(scene)
    uncertainty = _FITTED * fitted if fitted else USUAL_CONTENTION / 2
    return (
        uncertainty * slowed / len(np.unique(scene.graph.activities.device)) / scene.graph.period_ns
    )


def _in_turn(scene: StepModel) -> StepModel:
    """Return the scene in which each activity of a device waits for the one launched before it."""
    graph, acts = scene.graph, scene.graph.activities
    launched = _launched(scene)
    tails, heads = [], []
    for device in np.unique(acts.device).tolist():  # a few
        own = np.flatnonzero((acts.device == device) & (scene.is_comm | scene.is_compute))
        own = own[np.lexsort((acts.start[own], launched[own]))]
        turns = acts.lane[own[1:]] != acts.lane[own[:-1]]
        tails.append(graph.end[own[:-1][turns]])
        heads.append(graph.start[own[1:][turns]])
    return linked(scene, np.concatenate(tails), np.concatenate(heads))


def _launched(scene: StepModel) -> Ints:
    """Return when each activity was launched, no earlier than what precedes it on its stream."""
    graph, acts = scene.graph, scene.graph.activities
    launched = np.where(acts.call >= 0, graph.time[graph.call_start[acts.call]], acts.start)
    for lane in np.unique(acts.lane).tolist():  # a few a device
        own = np.flatnonzero(acts.lane == lane)
        own = own[np.argsort(acts.start[own], kind="stable")]
        launched[own] = np.maximum.accumulate(launched[own])
    return launched
