"""Transfers that nothing computes beside, and the compute of their GPU that could run there.

    compute    [unit 1]          [unit 2]          [optimizer]
    transfers           [gather]          [reduce]
               <-------> independent of the gather: unit 1 needs other parameters

Whether two pieces of work need each other is not recorded; what a transfer carries tells.
Parameters are there before the step: their gather could run beside the unit before its own, as
libraries prefetch. Only the optimizer needs gradients: their reduction could run beside all compute
from the bucket before it to the optimizer. Activations are needed at once.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import Spans, measure_covered, merge_spans, subtract_spans
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, take_or
from htk.whatif.parallel import carries_activations
from htk.whatif.parallelism import find_sharded, mark_replicating
from htk.whatif.step_model import StepModel


class Payload(IntEnum):
    """What a transfer carries."""

    PARAMETERS = 0
    GRADIENTS = 1
    ACTIVATIONS = 2
    UNKNOWN = 3


@dataclass(frozen=True)
class HideableTransfers:
    """Of each activity of a step what it carries, and when compute could run beside it."""

    carried: Ints  # Payload; NONE: no transfer
    moving: Spans  # from the last rank's arrival to the end
    exposed: Ints  # ns of that without compute; of several transfers at once the first has it
    window: Spans  # in which compute is independent of it; empty: in none that is known
    hideable: Ints  # ns of what is exposed that fits beside independent compute
    free: dict[int, Spans]  # of each device: compute with no transfer beside it


def find_hideable(model: StepModel, time: Ints) -> HideableTransfers:
    """Return the transfers of a model at these times of its nodes."""
    graph = model.graph
    run = model.run_edge
    arrived = np.where(run >= 0, graph.src[run], graph.start)
    moving = Spans(time[arrived], time[graph.end])
    carried = _find_payloads(model)
    exposed = np.zeros(len(run), np.int64)
    window = Spans(exposed.copy(), exposed.copy())
    hideable = exposed.copy()
    free = {}
    devices = graph.activities.device
    steps = _step_numbers(model)
    for device in np.unique(devices).tolist():  # a few
        on_device = devices == device
        computing = np.flatnonzero(on_device & model.is_compute)
        compute = merge_spans(time[graph.start[computing]], time[graph.end[computing]])
        calls = np.flatnonzero(on_device & model.is_comm)
        busy = merge_spans(moving.start[calls], moving.end[calls])
        free[device] = subtract_spans(compute, busy)
        exposed[calls] = _exposed_ns(moving, calls, subtract_spans(busy, compute))
        for step in np.unique(steps[on_device]).tolist():  # a few
            rows = np.flatnonzero(on_device & (steps == step))
            rows = rows[order_by(moving.start[rows])]
            gathers = rows[carried[rows] == Payload.PARAMETERS]
            reduces = rows[carried[rows] == Payload.GRADIENTS]
            _open_windows(
                window, moving.start, gathers, reduces, _find_backward_bounds(model, time, rows)
            )
            room = _free_ns(free[device], window, gathers)
            hideable[gathers] = np.minimum(exposed[gathers], room)
            later = [
                int(hideable[gathers[window.start[gathers] >= k]].sum())
                for k in window.start[reduces].tolist()
            ]
            room = _free_ns(free[device], window, reduces) - later
            hideable[reduces] = _share_room(exposed[reduces], room)
    hideable = _on_all_ranks(model, np.flatnonzero((carried != NONE) & (run >= 0)), hideable)
    return HideableTransfers(carried, moving, exposed, window, hideable, free)


def _find_payloads(model: StepModel) -> Ints:
    carried = np.where(model.is_comm, Payload.UNKNOWN, NONE)
    scatters = model.is_collective("reduce_scatter")
    carried[scatters | mark_replicating(model)] = Payload.GRADIENTS
    if find_sharded(model) is not None:
        carried[model.is_collective("all_gather")] = Payload.PARAMETERS
    carried[carries_activations(model)] = Payload.ACTIVATIONS
    return carried


def _step_numbers(model: StepModel) -> Ints:
    """Return the step of each activity; of a graph that is of one step, the same for all."""
    rows = model.graph.activities.row
    if model.graph.step is not None:
        return np.zeros(len(rows), np.int64)
    step = read_numbers(model.facts.tables["kernel_links"]["step"], NONE)
    return take_or(step, rows, NONE).astype(np.int64)


def _exposed_ns(moving: Spans, calls: Ints, alone: Spans) -> Ints:
    """Return how long of each transfer nothing computes, nor an earlier transfer runs."""
    order = calls[order_by(moving.start[calls])]
    ends = np.maximum.accumulate(moving.end[order])
    begin = np.maximum(moving.start[order], np.append(np.iinfo(np.int64).min, ends[:-1]))
    exposed = np.zeros(len(moving.start), np.int64)
    exposed[order] = np.maximum(
        measure_covered(alone, moving.end[order]) - measure_covered(alone, begin), 0
    )
    return exposed[calls]


def _open_windows(
    window: Spans, begin: Ints, gathers: Ints, reduces: Ints, backward: tuple[int, int]
) -> None:
    """Write in which time compute is independent of each transfer of a device's step, in order:
    from the gather before; from the bucket before until all gradients are needed."""
    window.start[gathers[1:]] = begin[gathers[:-1]]
    window.end[gathers[1:]] = begin[gathers[1:]]
    window.start[reduces] = np.append(backward[0], begin[reduces[:-1]])[: len(reduces)]
    window.end[reduces] = np.maximum(backward[1], window.start[reduces])


def _free_ns(free: Spans, window: Spans, rows: Ints) -> Ints:
    """Return how much free compute lies in the windows of some transfers."""
    return measure_covered(free, window.end[rows]) - measure_covered(free, window.start[rows])


def _share_room(exposed: Ints, room: Ints) -> Ints:
    """Return how much of each transfer fits into rooms that end at one time, each with that of
    the next one in it."""
    hidden = np.zeros(len(exposed), np.int64)
    for k in range(len(exposed))[::-1]:  # tens
        hidden[k] = min(exposed[k], max(room[k] - hidden.sum(), 0))
    return hidden


def _find_backward_bounds(model: StepModel, time: Ints, rows: Ints) -> tuple[int, int]:
    """Return when the backward pass of a device's step begins, and when the optimizer does; where
    none is seen, when the backward pass ends."""
    graph = model.graph
    backward = rows[model.facts.backward[rows] & model.is_compute[rows]]
    if not len(backward):
        return 0, 0
    begin = int(time[graph.start[backward]].min())
    optimizer = time[graph.start[rows[model.facts.family.rows(rows).isin("optimizer")]]]
    optimizer = optimizer[optimizer > begin]
    end = optimizer.min() if len(optimizer) else time[graph.end[backward]].max()
    return begin, int(end)


def _on_all_ranks(model: StepModel, calls: Ints, hideable: Ints) -> Ints:
    """Limit what of a call can hide to what can on the rank where least of it can."""
    collectives = Groups.by_keys(model.graph.src[model.run_edge[calls]].astype(np.int64))
    least = collectives.min(hideable[calls])
    everywhere = np.zeros(len(hideable), np.int64)
    everywhere[calls] = least[collectives.group_ids]
    return everywhere
