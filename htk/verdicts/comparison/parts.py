"""The part of each cause in the change of a step: the new step, replayed without it.

The new recording's step is replayed with what changed undone: kernels take what they took on this
rank before, transfers too, loading and allocation as long as before. The part of a cause is the
mean of what undoing it gives while all others stand, and while all others are undone; parts are
then scaled to what undoing all of them gives. Waiting for a slow rank is so counted with the rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from htk.base.columns.types import fill_none, take_or
from htk.base.mappings import NamedTables
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.host_states import ALLOCATION, LOADING
from htk.quantities.graph.nodes import FREES, collective_rows
from htk.quantities.graph.replay import NEVER, replayed_period
from htk.verdicts.comparison.causes import MORE_NS, SHARE, ChangeCause
from htk.verdicts.comparison.recorded_work import TransferKind, transfer_kinds
from htk.whatif.contention import settle_contention
from htk.whatif.data_loading import stalled_ns
from htk.whatif.recorded_step import Baseline
from htk.whatif.step_model import StepModel

_MOST_OF_IT = 0.5  # of the time of calls: then they did not wait before
_STATES = {"loader": LOADING, "allocator": ALLOCATION}


def with_parts(new: Baseline, causes: Sequence[ChangeCause]) -> list[ChangeCause]:
    """Return the causes with their parts, the largest first."""
    if not causes:
        return []
    recorded = _replay_undone(new, causes, ())
    every = range(len(causes))
    nothing_else = [_replay_undone(new, causes, [k]) for k in every]
    all_but = [_replay_undone(new, causes, [i for i in every if i != k]) for k in every]
    rest = _replay_undone(new, causes, every)
    twice = [recorded - nothing_else[k] + all_but[k] - rest for k in every]
    parts = np.array(twice, np.float64) / 2
    total = parts.sum()
    if total and np.sign(total) == np.sign(recorded - rest):
        parts *= (recorded - rest) / total
    ordered = [
        replace(cause, part_ns=float(part), is_replayed=True)
        for cause, part in zip(causes, parts.tolist(), strict=True)
    ]
    return sorted(ordered, key=lambda cause: -abs(cause.part_ns))


def _replay_undone(new: Baseline, causes: Sequence[ChangeCause], undone: Sequence[int]) -> int:
    """Return the step of the new recording with some causes undone, in ns."""
    model = new.model
    for k in undone:
        model = _undo_cause(model, causes[k])
    if not new.contention:
        return replayed_period(model.graph, model.weight, model.wrap_weight)
    return settle_contention(model, new.contention, new.concurrent_share)[1].period_ns


def _undo_cause(model: StepModel, cause: ChangeCause) -> StepModel:
    """Return the model with one cause undone."""
    if cause.kind == "links":
        return _without_slow_links(model, cause.keys)
    if cause.kind in _STATES:
        return _without_host_time(model, cause)
    acts = model.graph.activities
    chosen = model.is_compute
    ranks = np.array(sorted(model.graph.ranks), np.int64)
    row = np.searchsorted(ranks, acts.rank)
    factor = np.ones(len(acts.rank))
    for name, by_rank in cause.by_rank.items():
        if name:
            chosen = ~model.is_comm & (acts.name == _find_code(acts.names, name))
        factor[chosen] = by_rank[row[chosen]]
    return model.with_lengths(factor != 1, model.lengths() / factor)


def _find_code(names: list[str], name: str) -> int:
    """Return the number of a name; -2: no activity of the step is called so."""
    return names.index(name) if name in names else -2


def _without_slow_links(model: StepModel, ratios: Mapping[TransferKind, float]) -> StepModel:
    """Return the model with transfers as long as they were before."""
    tables: NamedTables = model.facts.tables
    rows = CollectiveRows(tables["collectives"])
    kinds, named = transfer_kinds(rows, np.arange(rows.length))
    ratio = np.array([ratios.get(kind, 1.0) for kind in named])
    each = take_or(ratio[kinds.group_ids], collective_rows(tables, model.graph.activities.row), 1.0)
    return model.with_lengths(model.is_comm & (each != 1), model.lengths() / each)


def _without_host_time(model: StepModel, cause: ChangeCause) -> StepModel:
    """Return the model whose hosts load or allocate for as long as before.

    Where they do so for less long now, the rest is added where the step begins.
    """
    of_edge, of_wrap = stalled_ns(model, (_STATES[cause.kind],))
    graph = model.graph
    ranks = np.array(sorted(graph.ranks), np.int64)
    rank_of = fill_none(len(graph.time))
    rank_of[graph.call_start] = rank_of[graph.call_end] = graph.calls.rank
    more = np.append(cause.by_rank[MORE_NS], 0.0)
    gone = np.append(cause.by_rank[SHARE], 0.0)
    edge = np.where(rank_of[graph.dst] >= 0, np.searchsorted(ranks, rank_of[graph.dst]), len(ranks))
    wrap = np.where(
        rank_of[graph.wrap_dst] >= 0, np.searchsorted(ranks, rank_of[graph.wrap_dst]), len(ranks)
    )
    weight = model.weight - np.rint(of_edge * gone[edge]).astype(np.int64)
    is_free = np.zeros(len(graph.time), bool)
    is_free[graph.call_end[graph.calls.named(FREES)]] = cause.kind == "allocator"
    waits = graph.edges("sync") & is_free[graph.dst] & (gone[edge] > _MOST_OF_IT)
    wraps = model.wrap_weight - np.rint(of_wrap * gone[wrap]).astype(np.int64)
    less = np.where(graph.wraps_into_calls & (gone[wrap] == 0), more[wrap], 0)
    wraps = wraps - np.rint(less).astype(np.int64)
    return replace(model, weight=np.where(waits, NEVER, weight), wrap_weight=wraps)
