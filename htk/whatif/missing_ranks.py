"""Waits for unrecorded ranks, which no trace shows.

What a collective takes beyond the pace of its network is taken for such a wait. Its pace is that of
the fastest tenth of its like: all-gathers and reduce-scatters are as fast as each other, and larger
messages at least as fast as smaller ones. Edits see collectives without their waits, which come
back afterwards: as much longer as ranks then compute, since a rank is late because it computes
slower than others.
"""

import numpy as np

from htk.base.columns.types import Floats, Mask
from htk.quantities.graph.replay import replay_graph
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import LARGE, compute_wire_bytes, find_latencies, share_adapters

_FASTEST = 0.1
_ALIKE = (("all_gather", "reduce_scatter"), ("all_reduce",))


def mark_partial(model: StepModel) -> Mask:
    """Return the collectives of groups with unrecorded members."""
    acts = model.graph.activities
    edge = model.run_edge
    here = np.ones(len(acts.start), np.int64)
    joined = np.flatnonzero(model.is_comm & ~model.facts.single & (edge >= 0))
    _, group_ids, count = np.unique(
        model.graph.src[edge[joined]], return_inverse=True, return_counts=True
    )
    here[joined] = count[group_ids]
    here = np.maximum(here, model.facts.recorded_members)
    return np.asarray(model.is_comm & (here < model.facts.group_size))


def measure_unrecorded_waits(model: StepModel) -> Floats:
    """Return how long each activity waited for unrecorded ranks, in ns."""
    length = model.lengths().astype(np.float64)
    waited = np.zeros(len(length))
    large = mark_partial(model)
    if not large.any():
        return waited
    sent = compute_wire_bytes(model)
    fixed = find_latencies(model)
    large &= (sent >= LARGE) & (length > 0)
    for kinds in _ALIKE:
        for across in (False, True):
            alike = large & model.is_collective(*kinds) & (model.facts.crosses == across)
            share = share_adapters(model, across)
            least = np.inf
            for size in np.unique(sent[alike]).tolist():  # a few units or buckets
                same = alike & (sent == size)
                pace = np.maximum(length - fixed, 0)[same] / size * share[same]
                least = min(least, float(np.quantile(pace, _FASTEST)))
                waited[same] = np.maximum(length - fixed - least * size / share, 0)[same]
    return waited


def drop_unrecorded_waits(model: StepModel, waited: Floats) -> StepModel:
    """Return the step in which nobody waits for unrecorded ranks."""
    return model.with_lengths(waited > 0, model.lengths() - waited) if waited.any() else model


def add_unrecorded_waits(edited: StepModel, recorded: StepModel, waited: Floats) -> StepModel:
    """Waits are back, as much longer as ranks compute, where collectives still are.

    Of more ranks the last is later, of fewer it is earlier; recorded ones stay as fast as they are.
    """
    if not waited.any() or not edited.arrival_scale:
        return edited
    old = recorded.lengths()[recorded.is_compute].sum()
    new = edited.lengths()[edited.is_compute].sum()
    length = edited.lengths().astype(np.float64)
    back = np.append(waited, np.zeros(len(length) - len(waited))) * (new / old if old else 1.0)
    delayed = edited.with_lengths((back > 0) & (length > 0), length + back)
    if edited.arrival_scale == 1:
        return delayed
    now = replay_graph(delayed.graph, delayed.weight, delayed.wrap_weight).period_ns
    without = replay_graph(edited.graph, edited.weight, edited.wrap_weight).period_ns
    lost = max(now - without, 0)
    later = max((lost + _measure_lead(edited)) * (edited.arrival_scale - 1), -lost)
    return delayed.add_step_time("skew", later, exposed=later)


def _measure_lead(model: StepModel) -> float:
    """Return how much longer than the mean the slowest recorded rank computes."""
    acts = model.graph.activities
    length = model.lengths()
    each = [length[model.is_compute & (acts.rank == r)].sum() for r in model.graph.ranks]
    return float(np.max(each) - np.mean(each))
