"""Communication hidden perfectly, as well as contention lets it, or not at all."""

import numpy as np

from htk.base.columns.order import ordered
from htk.base.columns.types import Floats, Ints, Mask
from htk.base.errors import UsageError
from htk.quantities.graph.replay import replay
from htk.whatif.contention import factor, of_transfers, share
from htk.whatif.edits.batch import of_activations
from htk.whatif.parallelism import replicating, shared_tokens
from htk.whatif.splits import blocking
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import forget_removed, linked

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


def apply(model: StepModel, value: str) -> StepModel:
    if value == "today":
        return model
    if value == "perfect":
        return _hidden(model, model.is_comm)
    if value == "realistic":
        return _realistic(model)
    if value == "serial":
        return _serial(model)
    raise UsageError(f"{NAME} {value!r}: perfect, realistic, serial or today")


def _hidden(model: StepModel, chosen: Mask, left: int = 0) -> StepModel:
    """Nobody waits for these transfers, but a stream carries no more than it can in a step; `left`
    stays of them at least, but no more than is waited for now."""
    acts = model.graph.activities
    length = model.lengths()
    lanes = np.unique(acts.lane[model.is_comm]).tolist()  # a few a rank
    busy = [int(length[model.is_comm & (acts.lane == lane)].sum()) for lane in lanes]
    bare = model.with_lengths(chosen, 0)
    step = replay(bare.graph, bare.weight, bare.wrap_weight).period_ns
    short = max(busy, default=0) - step
    if left > max(short, 0):
        now = replay(model.graph, model.weight, model.wrap_weight).period_ns
        short = max(short, min(left, now - step))
    hidden = bare.add_step_time("communication", short, exposed=short) if short > 0 else bare
    return hidden.with_assumption(
        "no transfer is waited for, though all must go through their streams in a step; a rank "
        "that is late still is waited for"
    )


def _realistic(model: StepModel) -> StepModel:
    """Return the same of what compute could run beside, and compute is slower for as long as
    transfers run beside it."""
    hideable = model.is_comm & ~_in_the_way(model)
    fitted = factor(model)
    kappa = fitted or USUAL_CONTENTION
    length = model.lengths().astype(np.float64)
    slower = 1 + kappa * _beside(model, hideable)
    if not fitted:  # what the replay settles by itself is only what the trace told
        slower = np.maximum(slower / (1 + kappa * share(model, model.graph.time)), 1.0)
    source = "fitted to the trace" if fitted else "usual; the trace does not tell"
    slowed = model.with_lengths(model.is_compute, length * slower)
    return (
        _hidden(slowed, hideable, _gradients_left(slowed))
        .with_uncertainty("compute", 0.3)
        .with_assumption(
            f"compute with communication beside it takes {1 + kappa:.2f} times as long: {source}",
            "but for activations that compute makes right before and needs right after, and "
            "gradients that take longer than the backward pass",
        )
    )


def _in_the_way(model: StepModel) -> Mask:
    """Return the transfers of activations that the compute before them makes and that after them
    waits for."""
    sent = of_activations(model) | shared_tokens(model)
    blocked = blocking(model, sent, model.is_compute, whole_runs=False)
    return np.isin(np.arange(len(model.is_comm)), [b.activity for b in blocked])


def _gradients_left(model: StepModel) -> int:
    """Return how much longer a stream reduces gradients than its GPU computes them: nothing else
    can run beside that, for the optimizer waits for all of them."""
    acts = model.graph.activities
    length = model.lengths()
    scatters = model.is_collective("reduce_scatter") & ~shared_tokens(model)
    reduces = replicating(model) | scatters
    computes = model.is_compute & model.facts.backward
    left = 0
    for lane in np.unique(acts.lane[reduces]).tolist():  # a few a rank
        own = reduces & (acts.lane == lane)
        on_device = computes & (acts.device == acts.device[own.argmax()])
        if on_device.any():
            left = max(left, int(length[own].sum()) - int(length[on_device].sum()))
    return left


def _beside(model: StepModel, chosen: Mask) -> Floats:
    """Share of each device's compute that has transfers beside it, if these are hidden."""
    acts = model.graph.activities
    length = model.lengths()
    phi = np.zeros(len(length))
    for device in np.unique(acts.device).tolist():  # a few
        on_device = acts.device == device
        comm = int(length[on_device & chosen].sum())
        compute = int(length[on_device & model.is_compute].sum())
        phi[on_device] = min(comm / max(compute, 1), 1.0)
    return phi


def _serial(model: StepModel) -> StepModel:
    """Communication runs on the compute stream, in the order in which both were launched."""
    if not model.is_comm.any():
        return model
    slower, beside = of_transfers(model)
    alone = model.lengths() / (1 + slower * beside)
    turns = _in_turn(forget_removed(model.with_lengths(model.is_comm, alone)))
    turns = turns.without(turns.graph.edges("capacity"))  # nothing runs beside to make room for
    return (
        turns.with_uncertainty("communication", _TRANSFERS)
        .with_uncertainty("contention", _contention_sigma(model))
        .with_assumption(
            "compute stands still while communication runs; both run in the order in which they "
            "were launched, and neither slows the other"
        )
    )


def _contention_sigma(model: StepModel) -> float:
    """Return what is uncertain of compute that nothing slows any more, relative to the step."""
    beside = share(model, model.graph.time)
    slowed = float((beside * model.lengths())[model.is_compute].sum())
    fitted = factor(model)
    uncertainty = _FITTED * fitted if fitted else USUAL_CONTENTION / 2
    return (
        uncertainty * slowed / len(np.unique(model.graph.activities.device)) / model.graph.period_ns
    )


def _in_turn(model: StepModel) -> StepModel:
    """Return the model in which each activity of a device waits for the one launched before it;
    where edits have one wait for a later one, for the one that begins before it."""
    try:
        return _in_order(model, _launched(model))
    except UsageError:
        replayed = replay(model.graph, model.weight, model.wrap_weight)
        return _in_order(model, replayed.time[model.graph.start])


def _in_order(model: StepModel, begin: Ints) -> StepModel:
    graph = model.graph
    acts = model.graph.activities
    tails = []
    heads = []
    for device in np.unique(acts.device).tolist():  # a few
        own = np.flatnonzero((acts.device == device) & (model.is_comm | model.is_compute))
        own = own[ordered(begin[own], graph.start[own])]
        turns = acts.lane[own[1:]] != acts.lane[own[:-1]]
        tails.append(graph.end[own[:-1][turns]])
        heads.append(graph.start[own[1:][turns]])
    return linked(model, np.concatenate(tails), np.concatenate(heads))


def _launched(model: StepModel) -> Ints:
    """Return when each activity was launched, no earlier than what precedes it on its stream."""
    graph = model.graph
    acts = model.graph.activities
    launched = np.where(acts.call >= 0, graph.time[graph.call_start[acts.call]], acts.start)
    for lane in np.unique(acts.lane).tolist():  # a few a device
        own = np.flatnonzero(acts.lane == lane)
        own = own[ordered(acts.start[own])]
        launched[own] = np.maximum.accumulate(launched[own])
    return launched
