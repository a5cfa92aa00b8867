"""Compute slows down while communication runs beside it: d = d₀ · (1 + κ φ).

φ is the share of a kernel's time with communication beside it. κ comes from the trace: kernels of
the same name and shapes on one GPU, with and without. Where none appears both ways it is 0.
Transfers slow down beside compute too, by less; only an edit that takes compute away from beside
them asks for it.
"""

from dataclasses import replace

import numpy as np

from htk.base.columns.groups import Groups, weighted_median
from htk.base.columns.intervals import measure_covered, merge_spans
from htk.base.columns.types import Floats, Ints
from htk.quantities.graph.overlaps import share_time_beside
from htk.quantities.graph.replay import Replay, replay_graph
from htk.whatif.step_model import StepModel

_ALONE = 0.05
_BESIDE = 0.5
_FEWEST = 8  # kernels seen with communication beside them
_MOST = 0.4  # published: 0.189 on average, 0.4 at most (arXiv 2507.03114)
_LEAST_SPREAD = 1.0  # sum of squares of a transfer's share beside compute, about that of its like
_ROUNDS = 8
_SETTLED = 5e-4  # of the time that is computed


def compute_contention(model: StepModel) -> float:
    """κ: the median, by time beside, of kernels seen both ways; some of a name do other work."""
    return model.once("contention", lambda: _fit_contention(model))


def _fit_contention(model: StepModel) -> float:
    beside = share_beside_transfers(model, model.graph.time)
    compute = np.flatnonzero(model.is_compute & (model.graph.activities.length > 0))
    if not len(compute):
        return 0.0
    device = model.graph.activities.device[compute]  # one may be slower than the others
    alike = Groups.by_keys(
        [device, model.facts.dims.codes[compute], *_name_surroundings(model, compute)]
    )
    length = model.graph.activities.length[compute].astype(np.float64)
    phi = beside[compute]
    free = np.full(len(alike), np.nan)
    asked = np.zeros(len(alike), bool)  # of each kind of kernel
    asked[alike.group_ids[phi >= _BESIDE]] = True
    rows = np.flatnonzero(asked[alike.group_ids] & (phi <= _ALONE))
    alone = Groups.by_keys(alike.group_ids[rows])
    free[alone.keys[:, 0]] = alone.quantiles(length[rows], [0.5])[0]
    slower = length / free[alike.group_ids] - 1
    seen = ~np.isnan(slower) & (phi > _ALONE)
    if int((seen & (phi >= _BESIDE)).sum()) < _FEWEST:
        return 0.0
    slope = weighted_median(slower[seen] / phi[seen], length[seen] * phi[seen])
    return float(np.clip(slope, 0.0, _MOST))


def _name_surroundings(model: StepModel, rows: Ints) -> list[Ints]:
    """Names of an activity and its neighbours on the stream: what one name does may differ."""
    acts = model.graph.activities
    beyond = np.full(1, -1)
    same = np.append(acts.lane[1:] == acts.lane[:-1], False)
    following = np.where(same, np.append(acts.name[1:], beyond), -1)
    preceding = np.append(beyond, np.where(same[:-1], acts.name[:-1], -1))
    return [acts.name[rows], following[rows], preceding[rows]]


def share_beside_transfers(model: StepModel, time: Ints) -> Floats:
    """φ of each activity, at these times of the nodes."""
    graph = model.graph
    phi = np.zeros(len(graph.start))
    for rows, nodes in zip(graph.activities.of_devices, graph.of_devices, strict=True):
        (own, _, _), (compute, comm, _) = rows, nodes
        phi[own] = share_time_beside(time, compute, comm)
    return phi


def settle_contention(model: StepModel, kappa: float, before: Floats) -> tuple[StepModel, Replay]:
    """Replay, with compute as slow as what then runs beside it makes it. `before`: φ as it was.

    What runs beside what depends on how slow it is: each round goes half of the way from the last
    one, or it swings between two states. A period that stays for one round tells nothing: one rank
    may have become slower by what others became faster.
    """
    after = replay_graph(model.graph, model.weight, model.wrap_weight)
    if not kappa:
        return model, after
    before = np.append(before, np.zeros(len(model.facts.op) - len(before)))  # of what was inserted
    compute = np.flatnonzero(model.is_compute & (model.run_edge >= 0))
    beside = before[compute]
    length = model.lengths()[compute] / (1 + kappa * beside)
    edges = model.run_edge[compute]
    weight = model.weight
    for k in range(_ROUNDS):
        now = share_beside_transfers(model, after.time)[compute]
        if kappa * (np.abs(now - beside) * length).sum() <= _SETTLED * length.sum():
            break
        beside = now if k == 0 else (beside + now) / 2
        if k == 0:
            weight = weight.copy()
        slower = np.maximum(length * (1 + kappa * beside), 0)
        weight[edges] = np.rint(slower, out=slower).astype(np.int64)
        after = replay_graph(model.graph, weight, model.wrap_weight)
    return (model if weight is model.weight else replace(model, weight=weight)), after


def of_transfers(model: StepModel) -> tuple[float, Floats]:
    """Return how much slower transfers are beside compute, and each one's share of time beside it.

    Fitted over collectives of one kind, size and group that had more or less compute beside them.
    Of the ranks' parts of a collective the mean counts: they end together.
    """
    facts = model.facts
    parts = np.flatnonzero(model.is_comm & (model.lengths() > 0))
    phi = np.zeros(len(facts.op))
    if not len(parts):
        return 0.0, phi
    collectives = Groups.by_keys(model.graph.src[model.run_edge[parts]])
    phi[parts] = _average_by_group(collectives, _beside_compute(model, parts))
    of_kind = (
        facts.collective.codes,
        facts.in_bytes,
        facts.out_bytes,
        facts.group_size,
        facts.per_node,
    )
    alike = Groups.by_keys(np.column_stack(of_kind)[parts])
    length = np.log(model.lengths()[parts])
    more = phi[parts] - _average_by_group(alike, phi[parts])
    longer = length - _average_by_group(alike, length)
    seen = float((more**2).sum())
    if seen < _LEAST_SPREAD:
        return 0.0, phi
    return float(np.clip((more * longer).sum() / seen, 0.0, _MOST)), phi


def _beside_compute(model: StepModel, parts: Ints) -> Floats:
    """Return the share of each transfer, from the last rank's arrival, with compute beside it."""
    graph = model.graph
    start = graph.time[graph.start]
    end = graph.time[graph.end]
    moving = graph.time[graph.src[model.run_edge[parts]]]
    covered_ns = np.zeros(len(parts))
    for device in np.unique(graph.activities.device).tolist():  # a few
        computing = model.is_compute & (graph.activities.device == device)
        busy = merge_spans(start[computing], end[computing])
        own = graph.activities.device[parts] == device
        covered_ns[own] = measure_covered(busy, end[parts[own]]) - measure_covered(
            busy, moving[own]
        )
    return np.asarray(covered_ns / np.maximum(end[parts] - moving, 1))


def _average_by_group(groups: Groups, values: Floats) -> Floats:
    """Return the mean of each row's group."""
    total = np.bincount(groups.group_ids, values, len(groups))
    return np.asarray((total / groups.count)[groups.group_ids])
