"""A step's graph with the durations of another step, which was held out to test it."""

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints, fill_none
from htk.quantities.graph.build import Graph
from htk.quantities.graph.nodes import Activities, LaunchCalls, Steps
from htk.quantities.graph.step_lengths import StepLengths


def held_out(steps: Steps, step: int | None) -> int | None:
    """Return the step that the graph of a step is tested with: its neighbour; None: there is
    none."""
    others = [k for k in (steps.numbers[1:] or steps.numbers) if k != step]
    return None if step is None else min(others, key=lambda k: (abs(k - step), k), default=None)


def with_durations(graph: Graph, other: StepLengths) -> tuple[Ints, Ints, Ints]:
    """Return the graph's weights, those of edges into the next step, and when the tails of these
    came, with lengths of activities and CPU times of another step."""
    weight = graph.weight.copy()
    here, there = _paired_events(graph.activities, other.activities)
    for kinds in (("run",), ("transfer",)):
        _copy_weights(weight, graph, other, kinds, graph.end[here], other.end[there])
    _copy_arrivals(weight, graph, other, here, there)
    here, there = _paired_events(graph.calls, other.calls)
    _copy_weights(
        weight,
        graph,
        other,
        ("host_gap", "handover"),
        graph.call_start[here],
        other.call_start[there],
    )
    _copy_weights(weight, graph, other, ("call",), graph.call_end[here], other.call_end[there])
    return _with_room(weight, graph), *_with_begins(graph, other)


def _with_begins(graph: Graph, other: StepLengths) -> tuple[Ints, Ints]:
    """Return the weights of edges into the next step, and when their tails came: as before the
    other step, of ranks into whose steps as many edges lead."""
    own = _nth_of_ranks(graph, graph.wrap_dst)
    theirs = _nth_of_ranks(other, other.wrap_dst)
    here, there = _pair_rows(own, theirs)
    weight = graph.wrap_weight.copy()
    seen = graph.wrap_seen.copy()
    weight[here] = other.wrap_weight[there]
    seen[here] = other.wrap_seen[there] + graph.window[0] - other.window[0]
    return weight, seen


def _ranks_of_nodes(step: Graph | StepLengths) -> Ints:
    """Return the rank whose work each node is of; -1: ranks meet there."""
    nodes = step.start, step.end, step.call_start, step.call_end
    most = max(int(some.max(initial=-1)) for some in (*nodes, step.dst))
    rank = fill_none(most + 1)
    rank[step.start] = rank[step.end] = step.activities.rank
    rank[step.call_start] = rank[step.call_end] = step.calls.rank
    return rank


def _nth_of_ranks(step: Graph | StepLengths, nodes: Ints) -> Ints:
    """Return the rank of each node, how many are of it, and how many of these came before."""
    ranks = Groups.by_keys(_ranks_of_nodes(step)[nodes])
    rank = ranks.keys[:, 0][ranks.group_ids]
    return np.column_stack([rank, ranks.count[ranks.group_ids], ranks.rank_within()])


def _with_room(weight: Ints, graph: Graph) -> Ints:
    """Return weights whose waits for a running kernel scale with its new length."""
    runs = np.flatnonzero(graph.edges("run"))
    room = np.flatnonzero(graph.edges("capacity"))
    run_of = fill_none(len(graph.time))
    run_of[graph.src[runs]] = runs
    beside = room[run_of[graph.src[room]] >= 0]  # those that hang on a start
    run = run_of[graph.src[beside]]
    part = graph.weight[beside] / np.maximum(graph.weight[run], 1)
    weight[beside] = np.rint(part * weight[run])
    return weight


def _copy_weights(
    weight: Ints,
    graph: Graph,
    other: StepLengths,
    kinds: tuple[str, ...],
    heads: Ints,
    others: Ints,
) -> None:
    """Copy weights of the edges of these kinds into nodes of the one, from those of the other."""
    into = fill_none(len(graph.time))
    from_ = fill_none(int(other.dst.max(initial=int(others.max(initial=-1)))) + 1)
    own = np.flatnonzero(graph.edges(*kinds))
    theirs = np.flatnonzero(other.edges(*kinds))
    into[graph.dst[own]] = own
    from_[other.dst[theirs]] = theirs
    a = into[heads]
    b = from_[others]
    in_both = (a >= 0) & (b >= 0)
    weight[a[in_both]] = other.weight[b[in_both]]


def _copy_arrivals(weight: Ints, graph: Graph, other: StepLengths, here: Ints, there: Ints) -> None:
    """Copy how long after each activity the last of those came that follow its rank."""
    behind = fill_none(len(other.activities.start))
    arrive = np.flatnonzero(other.edges("arrive"))
    of_start = fill_none(int(other.start.max(initial=-1)) + 1)
    of_start[other.start] = np.arange(len(other.start))
    behind[of_start[other.src[arrive]]] = other.weight[arrive]
    own = fill_none(len(graph.time))
    arrive = np.flatnonzero(graph.edges("arrive"))
    own[graph.src[arrive]] = arrive
    edge = own[graph.start[here]]
    length = behind[there]
    in_both = (edge >= 0) & (length >= 0)
    weight[edge[in_both]] = length[in_both]


def _paired_events(
    own: Activities | LaunchCalls, theirs: Activities | LaunchCalls
) -> tuple[Ints, Ints]:
    """Return the rows of events with the same lane and name of which as many came before."""
    if np.array_equal(own.lane, theirs.lane) and np.array_equal(own.name, theirs.name):
        rows = np.arange(len(own.lane))  # as of most steps: the same work in the same order
        return rows, rows
    return _pair_rows(*(_build_keys(events.lane, events.name) for events in (own, theirs)))


def _build_keys(lane: Ints, name: Ints) -> Ints:
    """Return lane, name, and how many of that name came before on the lane."""
    return np.column_stack([lane, name, Groups.by_keys([lane, name]).rank_within()])


def _pair_rows(own: Ints, theirs: Ints) -> tuple[Ints, Ints]:
    """Return the rows with the same key."""
    both = Groups.by_keys(np.concatenate([own, theirs]))
    row_of_key = fill_none(len(both))
    row_of_key[both.group_ids[len(own) :]] = np.arange(len(theirs))
    partner = row_of_key[both.group_ids[: len(own)]]
    return np.flatnonzero(partner >= 0), partner[partner >= 0]
