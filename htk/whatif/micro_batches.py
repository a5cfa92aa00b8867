"""The micro-batches of a step: how long one more would take."""

from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.types import Mask
from htk.quantities.graph.exposed import BusyDevices
from htk.quantities.graph.replay import NEVER, replay_graph
from htk.whatif.group_kinds import between_stages, described_as
from htk.whatif.micro_batch_count import count_synchronisations, micro_batches
from htk.whatif.parallelism import find_sharded, mark_replicating
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import link_to_step_before

MICRO_BATCHES = "micro-batches"  # the cause of time that more or fewer of them make


@dataclass(frozen=True)
class MicroBatch:
    """The time of one more micro-batch, in ns: in all, exposed communication, and GPU idle time."""

    ns: float
    exposed: float
    idle: float


def micro_batch(model: StepModel) -> MicroBatch:
    """Return the time of one micro-batch: the step without what it does once, over their number.

    A pipeline is filled and drained once; one more takes what its slowest stage needs for it.
    """
    rest = _keep_repeated(_as_recorded(model))
    many = micro_batches(model)
    if between_stages(model).any():
        return _of_slowest(rest, many)
    after = replay_graph(rest.graph, rest.weight, rest.wrap_weight)
    times = BusyDevices.from_graph(rest.graph, after.steady)
    period = after.period_ns
    return MicroBatch(period / many, times.exposed / many, times.idle(period) / many)


def _of_slowest(rest: StepModel, many: int) -> MicroBatch:
    """Return the time that the slowest stage computes for a micro-batch, with what tensor
    parallelism sends between."""
    length = rest.lengths().astype(np.float64)
    rank = np.searchsorted(rest.graph.ranks, rest.graph.activities.rank)
    sent = np.bincount(rank, length * described_as(rest, "tensor"))
    busy = np.bincount(rank, length * rest.is_compute) + sent
    slowest = int(busy.argmax())
    return MicroBatch(float(busy[slowest]) / many, float(sent[slowest]) / many, 0.0)


def _as_recorded(model: StepModel) -> StepModel:
    """Return the model without time that edits have added to the step as a whole."""
    return replace(model, wrap_weight=model.wrap_weight - sum(model.added.values()))


def _keep_repeated(model: StepModel) -> StepModel:
    """Return the model without the optimizer, what follows it, and the reductions that wait for the
    last micro-batch."""
    once = _after_backward(model) & ~model.is_comm
    copies = mark_replicating(model)
    if find_sharded(model) is None and count_synchronisations(model, copies) < 2:
        once |= copies
    bare = model.with_lengths(once, 0)
    graph = model.graph
    calls = model.graph.activities.call
    late = np.zeros(len(graph.call_start), bool)
    for rank in graph.ranks:
        back = model.facts.backward & (graph.activities.rank == rank) & (calls >= 0)
        last = int(graph.calls.start[calls[back]].max(initial=-1))
        late |= (graph.calls.rank == rank) & (graph.calls.start > last)
    nodes = np.zeros(len(graph.time), bool)
    nodes[graph.call_start[late]] = nodes[graph.call_end[late]] = True
    heads = nodes[graph.dst]
    weight = np.where(
        heads & graph.edges("call", "host_gap"), np.minimum(bare.weight, 0), bare.weight
    )
    weight = np.where(heads & graph.edges("sync"), NEVER, weight)
    repeated = replace(bare, weight=weight)
    return in_order(repeated) if len(graph.wrap_src) else repeated


def in_order(model: StepModel) -> StepModel:
    """Return the model in which each communicator's first collective waits for its last one of the
    repetition before."""
    graph = model.graph
    size = model.facts.group_size
    acts = graph.activities
    firsts = []
    lasts = []
    for rank in graph.ranks:
        of_rank = model.is_comm & (acts.rank == rank)
        for ranks in np.unique(size[of_rank]).tolist():  # groups of a rank, told by their size
            of_group = np.flatnonzero(of_rank & (size == ranks))
            firsts.append(int(of_group[np.argmin(acts.start[of_group])]))
            lasts.append(int(of_group[np.argmax(acts.end[of_group])]))
    return link_to_step_before(model, np.array(lasts, np.int64), np.array(firsts, np.int64))


def _after_backward(model: StepModel) -> Mask:
    acts = model.graph.activities
    trailing = np.zeros(len(acts.start), bool)
    for rank in model.graph.ranks:
        of_rank = acts.rank == rank
        last = int(acts.end[of_rank & model.facts.backward & model.is_compute].max(initial=-1))
        trailing |= of_rank & (acts.start >= last)
    return trailing
