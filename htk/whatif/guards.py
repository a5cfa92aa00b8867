"""Bounds that no prediction may pass; one that does is refused, as it is wrong whatever it assumes.

A step takes no less than any of its streams is busy, compute no less than its model FLOPs at the
GPU's peak, and no link carries more than its rate. A bound that the recording itself passes (of a
GPU or link that was recognised wrongly) says nothing of its predictions.
"""

from dataclasses import dataclass
from functools import cached_property
from math import isnan
from typing import NamedTuple

import numpy as np

from htk.base.columns.intervals import union_lengths
from htk.base.columns.types import Floats, Ints
from htk.physics.bandwidth import find_bus_factor
from htk.physics.detected import detect_gpu
from htk.quantities.graph.replay import NEVER
from htk.whatif.micro_batches import MICRO_BATCHES
from htk.whatif.parallel import carries_activations
from htk.whatif.rates import Rates
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node, share_adapters

_WHOLE = ("all_gather", "reduce_scatter", "all_reduce")
_TOLERANCE = 0.01  # what a replay may miss


@dataclass(frozen=True)
class _Load:
    """What a step holds beside what it has room for, as shares: 1 is full."""

    stream: float
    mfu: float
    roofline: float
    links: float


class Carried(NamedTuple):
    """What a step carries: shares of its period."""

    stream: float  # the busiest
    compute: float  # of the rank that computes longest
    links: float  # of what the fullest could


_WORDS = {
    "stream": "the busiest stream needs {:.3g} times the predicted step",
    "mfu": "MFU would be {:.0%}",
    "roofline": "model FLOPs would take {:.3g} times the compute time at the GPU's peak",
    "links": "links would carry {:.3g} times their rate",
}


@dataclass(frozen=True)
class RecordedLoad:
    """What the recorded step holds, found out once for all predictions."""

    model: StepModel
    period: int  # of its replay

    @cached_property
    def busy_share(self) -> Floats:
        return _measure_overlap(self.model)

    @cached_property
    def carried(self) -> Carried:
        return _measure_carried(self.model, self.busy_share, self.period)


def find_violation(
    recorded: RecordedLoad, edited: StepModel, period: int, steps: tuple[int, int], rates: Rates
) -> str | None:
    """Return which bound a prediction passes, in words; None: none.

    `period`: of the replayed step after the edits; `steps`: of the answers, before and after.
    """
    before = _measure_load(recorded.model, recorded.carried, steps[0], rates)
    carried = _measure_carried(edited, recorded.busy_share, period)
    after = _measure_load(edited, carried, steps[1], rates)
    for guard, words in _WORDS.items():
        share = getattr(after, guard)
        if share > 1 + _TOLERANCE and share > (1 + _TOLERANCE) * getattr(before, guard):
            return f"guard {guard}: {words.format(share)}"
    return None


def _measure_carried(model: StepModel, busy: Floats, period: int) -> Carried:
    """Return what a step carries, whatever it takes. `busy`: share of each stream's activities."""
    fewer = min(model.added.get(MICRO_BATCHES, 0), 0)
    once = max(period - max(sum(model.added.values()), fewer), 1)  # of the recorded micro-batches
    acts = model.graph.activities
    length = np.maximum(model.lengths(), 0)
    lanes = np.bincount(acts.lane, length)
    lanes[: len(busy)] = lanes[: len(busy)] * busy
    computing = np.flatnonzero(model.is_compute)
    compute = int(_by_rank(model, computing, length[computing]).max(initial=0))
    return Carried(
        float(lanes.max(initial=0)) / once, compute / once, _measure_fullest_link(model, once)
    )


def _measure_load(model: StepModel, carried: Carried, step: int, rates: Rates) -> _Load:
    """Return how full streams, the GPU and links are."""
    each = model.samples * model.work / model.devices / model.peak
    # of sequences of another length FLOPs are not known
    mfu = 0.0 if isnan(each) else (rates.mfu_pct(each, step) or 0.0) / 100
    busiest = carried.compute * step
    roofline = mfu * step / busiest if busiest else 0.0
    return _Load(
        stream=carried.stream,
        mfu=mfu,
        roofline=roofline,
        links=carried.links,
    )


def _measure_overlap(recorded: StepModel) -> Floats:
    """Return the time that each stream is busy over the sum of its activities, as recorded.

    Neighbours on a stream may overlap (programmatic launches).
    """
    acts = recorded.graph.activities
    length = np.maximum(recorded.lengths(), 0)
    lanes = int(acts.lane.max(initial=-1)) + 1
    total = np.bincount(acts.lane, length, lanes)
    busy = union_lengths(acts.lane, acts.end - length, acts.end, lanes)
    return np.asarray(np.where(total > 0, np.minimum(busy / np.maximum(total, 1), 1.0), 1.0))


def _by_rank(model: StepModel, rows: Ints, values: Floats | Ints) -> Floats:
    """Return the sum over some activities of each rank, of a value of each."""
    activities = model.graph.activities
    ranks = model.graph.ranks
    number = model.once("number of rank", lambda: np.searchsorted(ranks, activities.rank))
    return np.bincount(number[rows], values).astype(np.float64)


def _measure_fullest_link(model: StepModel, step: int) -> float:
    """Return what the fullest link of a rank carries in a step, over what it can."""
    name = model.device_name
    gpu = model.once(f"the catalogue's {name}", lambda: detect_gpu(name))
    if gpu is None:
        return 0.0
    edge = model.run_edge
    comm = np.flatnonzero(model.is_comm)
    comm = comm[(edge[comm] >= 0) & (model.weight[edge[comm]] > NEVER)]
    sent = model.once("sent", lambda: _count_sent(model))[comm]
    if model.token_scale != 1:
        sent[carries_activations(model)[comm]] *= model.token_scale
    across = model.facts.crosses[comm]
    levels = (
        (~across, gpu.scale_up_gbps, sent),
        (
            across,
            gpu.scale_out_gbps * gpus_of_a_node(model),
            sent / share_adapters(model, True)[comm],
        ),
    )
    fullest = 0.0
    for level, rate, load in levels:
        if rate:
            carried = _by_rank(model, comm[level], load[level])
            fullest = max(fullest, float(carried.max(initial=0.0)) / (rate * model.links * step))
    return fullest


def _count_sent(model: StepModel) -> Floats:
    """Return the bytes that a rank sends of each collective of parameters or gradients.

    The larger of the two buffers is the whole one, whatever group an edit makes of it.
    """
    facts = model.facts
    full_size = np.maximum(np.maximum(facts.in_bytes, facts.out_bytes), 0)
    sent = np.zeros(len(full_size))
    for kind in _WHOLE:
        own = np.flatnonzero(facts.collective.isin(kind))
        groups, of_group = np.unique(facts.group_size[own], return_inverse=True)
        share = [
            (find_bus_factor(kind, ranks) or 0.0) if ranks > 1 else 0.0 for ranks in groups.tolist()
        ]
        sent[own] = full_size[own] * np.array(share)[of_group]
    return sent
