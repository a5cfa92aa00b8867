"""What would be without a cause: edits of the replayed recording."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import match_texts, read_keys, read_numbers
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.intervals import measure_covered, merge_spans
from htk.base.columns.types import NONE, Floats, Ints, fill_none
from htk.quantities.derived.host_states import (
    ALLOCATION,
    COMPILATION,
    GC,
    LAZY,
    LOADING,
    PROFILER,
    START_UP,
    SYNC,
)
from htk.quantities.graph.replay import replayed_period
from htk.whatif.contention import compute_contention, share_beside_transfers
from htk.whatif.data_loading import stalled_ns
from htk.whatif.edits import find_edit
from htk.whatif.edits.remove_syncs import into_frees
from htk.whatif.same_calls import same_calls
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescale_transfers

# States of the host that have a cause of their own: the rest of its time is launching.
STALLS = (PROFILER, GC, COMPILATION, START_UP, LAZY, ALLOCATION, SYNC, LOADING)
_LONG_GAP_NS = 1_000_000  # a gap so long is no matter of launching fast


class CauseEdit(NamedTuple):
    """An edit that takes a cause away."""

    name: str  # of the what-if that it is, or is like: its uncertainty is that one's
    apply: Callable[[StepModel], StepModel]
    option: str = ""  # of `htk whatif`, where that makes the same edit


def whatif_change(name: str, value: str = "on") -> CauseEdit:
    """Return the edit that `htk whatif` makes by that name."""
    option = f"--{name.replace('_', '-')} {value}"
    return CauseEdit(name, lambda model: find_edit(name).apply(model, value), option)


def fix_ranks(ranks: Collection[int]) -> CauseEdit:
    """Return the edit that makes the kernels of these ranks as fast as those of the others."""

    def fix_ranks(model: StepModel) -> StepModel:
        for rank in ranks:
            model = find_edit("fix_rank").apply(model, str(rank))
        return model

    return CauseEdit("fix_rank", fix_ranks, " ".join(f"--fix-rank {rank}" for rank in ranks))


def without_stalls(*states: int) -> CauseEdit:
    """Return the edit without the time that hosts spend in these states."""

    def free_host(model: StepModel) -> StepModel:
        of_edge, of_wrap = stalled_ns(model, states)
        weight = model.weight - of_edge
        wrap_weight = model.wrap_weight - of_wrap
        faster = replace(model, weight=weight, wrap_weight=wrap_weight)
        if ALLOCATION in states:
            faster = faster.without(faster.graph.edges("sync") & into_frees(faster))
        return faster.with_uncertainty("host", 0.1)

    return CauseEdit("no_data_wait", free_host)


def launching_ns(model: StepModel) -> tuple[Ints, Ints]:
    """Return the edges on which hosts launch, and how long they do: beside what stalls them."""
    edges = np.flatnonzero(model.graph.edges("call", "host_gap", "handover"))
    stalled, _ = stalled_ns(model, STALLS)
    return edges, np.maximum(model.weight - stalled, 0)[edges]


def usual_host() -> CauseEdit:
    """Return the edit in which no host takes longer to launch than it usually does: the same call
    of a step, over steps and ranks."""

    def even_launches(model: StepModel) -> StepModel:
        edges, length = launching_ns(model)
        return _shorten_edges(model, edges, np.maximum(length - _usual_ns(model, edges, length), 0))

    return CauseEdit("host", even_launches)


def like_other_ranks(rank: int) -> CauseEdit:
    """Return the edit in which a rank's kernels take no longer than those of the others, nor its
    host, whatever that does; calls that no other rank makes take no time, and wait for nothing."""

    def even_launches(model: StepModel) -> StepModel:
        model = find_edit("fix_rank").apply(model, str(rank))
        graph = model.graph
        edges = graph.rows_of("call", "host_gap", "handover")
        into_first = np.flatnonzero(np.isin(graph.wrap_dst, graph.call_start))
        head = np.append(graph.dst[edges], graph.wrap_dst[into_first])
        length = np.append(model.weight[edges], model.wrap_weight[into_first])
        kind = np.append(graph.edges("call")[edges].astype(np.int64), fill_none(len(into_first)))
        alike = Groups.by_keys(_same_calls_of_steps(model, head, kind))
        whose = graph.calls.rank[_calls_of_nodes(model)[head]]
        ranks_alike = np.bincount(Groups.by_keys([alike.group_ids, whose]).keys[:, 0])
        own_alone = (whose == rank) & (ranks_alike == 1)[alike.group_ids]
        usual = np.where(own_alone, 0, alike.lower_medians(length)[alike.group_ids])
        less = np.where(whose == rank, np.maximum(length - usual, 0), 0)
        wrap_weight = model.wrap_weight.copy()
        wrap_weight[into_first] -= np.rint(less[len(edges) :]).astype(np.int64)
        faster = replace(_shorten_edges(model, edges, less[: len(edges)]), wrap_weight=wrap_weight)
        alone = np.zeros(len(graph.time), bool)
        alone[head[own_alone]] = True
        return faster.without(graph.edges("sync") & alone[graph.dst])

    return CauseEdit("fix_rank", even_launches)


def launching_beyond_usual(model: StepModel) -> tuple[Ints, Ints, Ints, Ints]:
    """Return, of each rank and step, what launching usually takes, and how much longer it took."""
    edges, length = launching_ns(model)
    usual = _usual_ns(model, edges, length)
    calls = model.graph.calls
    call = _calls_of_nodes(model)[model.graph.dst[edges]]
    step = read_numbers(model.facts.tables["launch_links"]["step"], NONE)[calls.row][call]
    steps = Groups.by_keys([calls.rank[call], step.astype(np.int64)])
    rank, step = steps.keys.T
    return rank, step, steps.sum(usual), steps.sum(length - usual)


def _usual_ns(model: StepModel, edges: Ints, length: Ints) -> Ints:
    """Return what each of some edges of hosts takes, at the median over steps and ranks."""
    kind = model.graph.edges("call")[edges].astype(np.int64)
    alike = Groups.by_keys(_same_calls_of_steps(model, model.graph.dst[edges], kind))
    usual = alike.lower_medians(length)[alike.group_ids].astype(np.int64)
    return np.where(length < _LONG_GAP_NS, usual, length)  # what takes so long is no launching


def _calls_of_nodes(model: StepModel) -> Ints:
    """Return the call that begins or ends at each node (NONE: none does)."""
    graph = model.graph
    call = fill_none(len(graph.time))
    call[graph.call_start] = call[graph.call_end] = np.arange(len(graph.calls.row))
    return call


def _same_calls_of_steps(model: StepModel, head: Ints, kind: Ints) -> list[Ints]:
    """Return of edges of hosts, by where they lead, what they have in common with those of other
    steps and ranks: their kind, the thread's place on its rank, the call that they lead to, and
    which one of its step."""
    calls = model.graph.calls
    step = read_keys(model.facts.tables["launch_links"]["step"])[calls.row]
    threads = Groups.by_keys([calls.rank, calls.lane])
    of_rank = Groups.by_keys(threads.keys[:, 0])
    thread = of_rank.rank_within()[threads.group_ids]
    nth = Groups.by_keys([calls.rank, step, thread, calls.name]).rank_within()
    call = _calls_of_nodes(model)[head]
    return [kind, thread[call], calls.name[call], nth[call]]


def _shorten_edges(model: StepModel, edges: Ints, less: Ints | Floats) -> StepModel:
    weight = model.weight.copy()
    weight[edges] -= np.rint(less).astype(np.int64)
    return replace(model, weight=weight).with_uncertainty("host", 0.1)


def without_launching() -> CauseEdit:
    """Return the edit in which launching takes the host no time: a bound that graphs come near."""

    def remove_launch_gaps(model: StepModel) -> StepModel:
        edges, length = launching_ns(model)
        return _shorten_edges(model, edges, np.where(length < _LONG_GAP_NS, length, 0))

    return CauseEdit("graphs", remove_launch_gaps, "--graphs on")


def without_long_gaps() -> CauseEdit:
    """Return the edit in which hosts do nothing for long but launch where GPUs have no work."""

    def release_launches(model: StepModel) -> StepModel:
        edges, length = launching_ns(model)
        held = np.minimum(length, _idle_within(model, edges))
        return _shorten_edges(model, edges, np.where(length < _LONG_GAP_NS, 0, held))

    return CauseEdit("host", release_launches)


def _idle_within(model: StepModel, edges: Ints) -> Ints:
    """Return how long of each edge of a host nothing runs on its rank's GPU, nor is queued."""
    graph = model.graph
    acts = model.graph.activities
    called = np.where(acts.call >= 0, graph.time[graph.call_end[acts.call]], acts.start)
    queued = np.minimum(called, graph.time[graph.start])
    start = graph.time[graph.src[edges]]
    end = graph.time[graph.dst[edges]]
    rank = graph.calls.rank[_calls_of_nodes(model)[graph.dst[edges]]]
    idle = end - start
    for number in graph.ranks:
        runs = acts.rank == number
        busy = merge_spans(queued[runs], graph.time[graph.end[runs]])
        own = rank == number
        idle[own] -= measure_covered(busy, end[own]) - measure_covered(busy, start[own])
    return idle


def expected_transfers(slow: pa.Table, slowdown: float) -> CauseEdit:
    """Return the edit in which some collectives, rows of `collectives`, transfer so many times
    faster."""

    def speed_up_links(model: StepModel) -> StepModel:
        ours = event_keys(model.facts.tables["kernels"])[model.facts.rows]
        chosen = (row_of(event_keys(slow), ours) != NONE) & model.is_comm
        length = rescale_transfers(model, chosen, 1 / slowdown)
        return model.with_lengths(chosen, length).with_uncertainty("communication", 0.1)

    return CauseEdit("network", speed_up_links)


def shorter_activities(name: str, length_of: Callable[[StepModel], Floats | Ints]) -> CauseEdit:
    """Return the edit in which activities take another time; `length_of` returns that of each."""

    def shorten_kernels(model: StepModel) -> StepModel:
        length = np.minimum(length_of(model), model.lengths())
        edited = model.with_lengths(length < model.lengths(), length)
        return edited.with_uncertainty("compute", 0.1).with_uncertainty("memory", 0.1)

    return CauseEdit(name, shorten_kernels)


def even_compute() -> CauseEdit:
    """Return the edit in which each rank has as much to compute as they all do on average; GPUs
    that are slower than others stay so."""

    def even_launches(model: StepModel) -> StepModel:
        ranks, work = work_of_ranks(model)
        ratio = work.mean() / np.maximum(work, 1)
        chosen = model.is_compute
        even = model.lengths() * ratio[ranks.group_ids]
        return model.with_lengths(chosen, even).with_uncertainty("compute", 0.2)

    return CauseEdit("no_skew", even_launches)


def work_of_ranks(model: StepModel) -> tuple[Groups, Floats]:
    """Return the ranks of activities, and what each computes, in ns of a GPU that is as fast as the
    others."""
    ranks = Groups.by_keys(model.graph.activities.rank)
    pace = np.array([*paces_of_ranks(model).values()])
    total = np.bincount(ranks.group_ids, compute_alone(model), len(ranks))
    return ranks, total / np.where(pace > 0, pace, 1)  # 0: nothing that the others compute too


def compute_alone(model: StepModel) -> Floats:
    """Return what each kernel takes with no communication beside it, in ns; 0 of other work."""
    slower = 1 + compute_contention(model) * share_beside_transfers(model, model.graph.time)
    return np.where(model.is_compute, model.lengths() / slower, 0.0)


def paces_of_ranks(model: StepModel) -> dict[int, float]:
    """Return how many times as long as usual each rank's kernels take, without what communication
    beside them costs; usual is the same call on the other ranks."""
    alike = same_calls(model)
    length = compute_alone(model)
    everywhere = (alike.count == len(model.graph.ranks))[alike.group_ids] & model.is_compute
    usual = alike.lower_medians(length)[alike.group_ids]
    ranks = Groups.by_keys(model.graph.activities.rank)
    taken = np.bincount(ranks.group_ids, np.where(everywhere, length, 0.0), len(ranks))
    should = np.bincount(ranks.group_ids, np.where(everywhere, usual, 0.0), len(ranks))
    pace = taken / np.maximum(should, 1)
    return dict(zip(ranks.keys[:, 0].tolist(), pace.tolist(), strict=True))


def hidden_copies() -> CauseEdit:
    """Return the edit in which no copy is waited for, though all go through their streams."""

    def hide_copies(model: StepModel) -> StepModel:
        acts = model.graph.activities
        length = model.lengths()
        kernels = model.facts.tables["kernels"]
        rows = model.facts.rows
        copies = match_texts(kernels["activity"], "copy".__eq__)[rows]
        lanes = Groups.by_keys(acts.lane)
        busy = int(lanes.sum(np.where(copies, length, 0)).max())
        bare = model.with_lengths(copies, 0)
        left = busy - replayed_period(bare.graph, bare.weight, bare.wrap_weight)
        short = bare.add_step_time("memory", left) if left > 0 else bare
        return short.with_uncertainty("memory", 0.3)

    return CauseEdit("overlap", hide_copies)
