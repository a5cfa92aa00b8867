"""Communication hidden perfectly, as well as contention lets it, or not at all."""

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.base.errors import UsageError
from htk.quantities.graph.replay import replay_graph
from htk.whatif.contention import compute_contention, of_transfers, share_beside_transfers
from htk.whatif.hideable import find_hideable
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import forget_removed, link_nodes

NAME = "overlap"
HELP = (
    "Communication perfectly hidden, hidden but slowing compute down, or serial: perfect, "
    "realistic, serial, today."
)

USUAL_CONTENTION = (
    0.189  # of compute beside communication, where the trace does not tell: arXiv 2507.03114
)

_FITTED = 0.25  # one sigma of a fitted factor, relative
_OF_HIDDEN = 0.06  # and of what is hidden
_TRANSFERS = 0.5  # and of how much quicker transfers are with nothing beside them


def apply(model: StepModel, value: str) -> StepModel:
    if value == "today":
        return model
    if value == "perfect":
        return _hide_all(model)
    if value == "realistic":
        return _overlap_realistically(model)
    if value == "serial":
        return _serialize_step(model)
    raise UsageError(f"{NAME} {value!r}: perfect, realistic, serial or today")


def _hide_all(model: StepModel) -> StepModel:
    """Nobody waits for transfers, but a stream carries no more than it can in a step."""
    acts = model.graph.activities
    length = model.lengths()
    lanes = np.unique(acts.lane[model.is_comm]).tolist()  # a few a rank
    busy = [int(length[model.is_comm & (acts.lane == lane)].sum()) for lane in lanes]
    bare = model.with_lengths(model.is_comm, 0)
    step = replay_graph(bare.graph, bare.weight, bare.wrap_weight).period_ns
    short = max(busy, default=0) - step
    hidden = bare.add_step_time("communication", short, exposed=short) if short > 0 else bare
    return hidden.with_assumption(
        "no transfer is waited for, though all must go through their streams in a step; a rank "
        "that is late still is waited for"
    )


def _overlap_realistically(model: StepModel) -> StepModel:
    """Return the step with all beside compute that independent compute has room for."""
    replayed = replay_graph(model.graph, model.weight, model.wrap_weight)
    return hide_transfers(model, find_hideable(model, replayed.time).hideable)


def hide_transfers(model: StepModel, hidden: Ints) -> StepModel:
    """Return the step with so many ns of each transfer beside compute, which they slow down."""
    fitted = compute_contention(model)
    kappa = fitted or USUAL_CONTENTION
    shorter = model.with_lengths(hidden > 0, model.lengths() - hidden)
    length = shorter.lengths() * (1 + kappa * _share_beside_hidden(model, hidden))
    source = "fitted to the trace" if fitted else "usual; the trace does not tell"
    return (
        shorter.with_lengths(model.is_compute, length)
        .with_uncertainty("compute", 0.3)
        .with_uncertainty("communication", _OF_HIDDEN)
        .with_assumption(
            f"compute with communication beside it takes {1 + kappa:.2f} times as long: {source}",
            "parameters are gathered one unit ahead, gradients reduced beside the backward pass; "
            "activations are needed at once",
        )
    )


def _share_beside_hidden(model: StepModel, hidden: Ints) -> Floats:
    """Return the share of its device's compute that what is hidden runs beside, of each
    activity."""
    devices = Groups.by_keys(model.graph.activities.device)
    computed = devices.sum(np.where(model.is_compute, model.lengths(), 0))
    share_of_device = np.minimum(devices.sum(hidden) / np.maximum(computed, 1), 1.0)
    return np.asarray(share_of_device[devices.group_ids])


def _serialize_step(model: StepModel) -> StepModel:
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
    beside = share_beside_transfers(model, model.graph.time)
    slowed = float((beside * model.lengths())[model.is_compute].sum())
    fitted = compute_contention(model)
    uncertainty = _FITTED * fitted if fitted else USUAL_CONTENTION / 2
    return (
        uncertainty * slowed / len(np.unique(model.graph.activities.device)) / model.graph.period_ns
    )


def _in_turn(model: StepModel) -> StepModel:
    """Return the model in which each activity of a device waits for the one launched before it;
    where edits have one wait for a later one, for the one that begins before it."""
    try:
        return _in_order(model, _find_launch_times(model))
    except UsageError:
        replayed = replay_graph(model.graph, model.weight, model.wrap_weight)
        return _in_order(model, replayed.time[model.graph.start])


def _in_order(model: StepModel, begin: Ints) -> StepModel:
    graph = model.graph
    acts = model.graph.activities
    tails = []
    heads = []
    for device in np.unique(acts.device).tolist():  # a few
        own = np.flatnonzero((acts.device == device) & (model.is_comm | model.is_compute))
        own = own[order_by(begin[own], graph.start[own])]
        turns = acts.lane[own[1:]] != acts.lane[own[:-1]]
        tails.append(graph.end[own[:-1][turns]])
        heads.append(graph.start[own[1:][turns]])
    return link_nodes(model, np.concatenate(tails), np.concatenate(heads))


def _find_launch_times(model: StepModel) -> Ints:
    """Return when each activity was launched, no earlier than what precedes it on its stream."""
    graph = model.graph
    acts = model.graph.activities
    launched = np.where(acts.call >= 0, graph.time[graph.call_start[acts.call]], acts.start)
    for lane in np.unique(acts.lane).tolist():  # a few a device
        own = np.flatnonzero(acts.lane == lane)
        own = own[order_by(acts.start[own])]
        launched[own] = np.maximum.accumulate(launched[own])
    return launched
