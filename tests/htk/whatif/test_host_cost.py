"""Calls on account of an activity, on a thread worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from htk.quantities.graph.nodes import LaunchCalls
from htk.whatif.host_cost import (
    _find_neighbours,
    _mark_firsts,
    calls_of_all,
    delay_calls,
    drop_event_waits,
    host_ns,
    launch_ns,
    on_account,
    operator_ns,
    remove_calls,
    remove_launches,
    usual_ns,
)
from htk.whatif.step_model import StepModel
from tests.htk.whatif.small_step_model import Act, comm, small_model

NAMES = ["cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventSynchronize"]
LAUNCH, RECORD, WAIT, SYNC = range(4)
# a, then a gather that b waits for, b, and a reduction behind it; then c, after a second gather.
THREAD = [
    *(LAUNCH, RECORD, WAIT),  # 0: a
    *(LAUNCH, RECORD, WAIT),  # 3: first gather
    *(LAUNCH, RECORD, WAIT),  # 6: b
    *(LAUNCH, RECORD, SYNC),  # 9: reduction
    *(LAUNCH, RECORD, WAIT),  # 12: second gather
    LAUNCH,  # 15: c
]


def thread() -> StepModel:
    acts = [
        Act("a", 10),
        Act("b", 10, waits=("g",)),
        Act("c", 10, waits=("h",)),
        comm("g", 10, "all_gather", waits=("a",)),
        comm("h", 10, "all_gather"),
        comm("r", 10, "reduce_scatter", lane="reduce", waits=("b",)),
    ]
    model = small_model(acts)
    many = len(THREAD)
    zero, at = np.zeros(many, np.int64), np.arange(many)
    calls = LaunchCalls(at, zero, zero, at, at, np.array(THREAD), NAMES, at, zero - 1)
    launched = np.array([0, 6, 15, 3, 12, 9])
    activities = replace(model.graph.activities, call=launched)
    return replace(model, graph=replace(model.graph, calls=calls, activities=activities))


def account(*names: str) -> list[int]:
    model = thread()
    acts = model.graph.activities
    which = np.array([acts.names[n] in names for n in acts.name.tolist()])
    return on_account(model, which).tolist()


def test_events_round_a_gather_are_its_own() -> None:
    assert account("g") == [1, 2, 3, 4, 5]


def test_the_end_of_a_collective_that_stays_is_not() -> None:
    assert account("h") == [11, 12, 13, 14]  # the host waits on its account, not that of 9


def test_a_reduction_with_the_events_that_order_it() -> None:
    assert account("r") == [7, 8, 9, 10]


def test_a_kernel_with_the_wait_before_it() -> None:
    assert account("c") == [14, 15]


OWN, THINK, DELAY = (5, 7, 11, 13), (0, 2, 3, 4), (100, 200, -1, 400)


def weighed() -> StepModel:
    """a, b, a gather g and c, launched in this order: lengths of the calls, time before each and
    from each to its activity."""
    model = small_model([Act("a", 10), Act("b", 10), comm("g", 10, "all_gather"), Act("c", 10)])
    graph, weight = model.graph, model.weight.copy()
    heads = (("call", graph.call_end, OWN), ("host_gap", graph.call_start, THINK))
    for kind, nodes, lengths in heads:
        for edge in np.flatnonzero(graph.edges(kind)).tolist():
            weight[edge] = lengths[nodes.tolist().index(graph.dst[edge])]
    for edge in np.flatnonzero(graph.edges("launch")).tolist():
        weight[edge] = DELAY[graph.call_start.tolist().index(graph.src[edge])]
    return replace(model, weight=weight)


def chosen(model: StepModel, names: str) -> np.ndarray:
    acts = model.graph.activities
    return np.array([acts.names[n] in names for n in acts.name.tolist()])


def into(model: StepModel, kind: str) -> list[int]:
    """Weights of the edges that lead to each call: its own length, or the time before it."""
    graph = model.graph
    nodes = graph.call_end if kind == "call" else graph.call_start
    edges = {int(graph.dst[e]): int(model.weight[e]) for e in np.flatnonzero(graph.edges(kind))}
    return [edges.get(node, 0) for node in nodes.tolist()]


def test_what_the_cpu_spends_on_launches() -> None:
    model = weighed()
    assert operator_ns(model) == np.median([5, 7 + 2, 13 + 4])
    assert usual_ns(model, chosen(model, "bg")) == (7 + 2 + 11 + 3) / 2
    assert usual_ns(model, chosen(model, "")) == 0
    assert launch_ns(model) == 200, "of 100, 200 and 400; the third is held by something else"


def test_what_the_cpu_spends_on_neighbours_with_and_without_what_leads_to_them() -> None:
    model = weighed()
    of_gather, of_both = chosen(model, "g"), chosen(model, "bg")
    assert (host_ns(model, of_gather, False), host_ns(model, of_gather, True)) == (11, 11 + 3)
    assert host_ns(model, of_both, False) == 7 + 3 + 11
    assert host_ns(model, of_both, True) == 2 + 7 + 3 + 11
    assert host_ns(model, chosen(model, "ac"), False) == (5 + 13) / 2, "two runs of neighbours"
    assert host_ns(model, chosen(model, ""), True) == 0


def test_launches_go_with_what_they_launch() -> None:
    model = weighed()
    gone = remove_launches(model, chosen(model, "b"))
    assert into(gone, "call") == [5, 0, 11, 13] and into(gone, "host_gap") == [0, 0, 3, 4]
    assert gone.lengths().tolist() == [10 * (not c) for c in chosen(model, "b")]
    without, with_hooks = (
        remove_calls(model, chosen(model, "g"), hooks) for hooks in (False, True)
    )
    assert into(without, "call") == into(with_hooks, "call") == [5, 7, 0, 13]
    assert into(without, "host_gap") == [0, 2, 0, 4]
    assert into(with_hooks, "host_gap") == [0, 2, 3, 4], "what leads to the first is still done"
    both = remove_calls(model, chosen(model, "bg"), True)
    assert into(both, "host_gap") == [0, 2, 0, 4]


def test_a_delay_comes_before_its_call_as_often_as_it_is_named() -> None:
    model = weighed()
    late = delay_calls(model, np.array([1, 3, -1, 1]), 10.4)
    assert into(late, "host_gap") == [0, 2 + 21, 3, 4 + 10]
    assert into(late, "call") == list(OWN)
    assert into(delay_calls(model, np.array([2, 3]), np.array([1.0, 6.0])), "host_gap") == [
        0,
        2,
        4,
        10,
    ]


def test_nothing_that_takes_no_time_counts() -> None:
    model = weighed()
    still = replace(model, weight=np.minimum(model.weight, 0))
    every = chosen(model, "abgc")
    assert operator_ns(still) == host_ns(still, every, True) == usual_ns(still, every) == 0
    early = replace(model, weight=-np.abs(model.weight))
    assert operator_ns(early) == host_ns(early, every, True) == usual_ns(early, every) == 0
    gone = remove_launches(early, every)
    assert into(gone, "call") == [-5, -7, -11, -13], "what is early stays so"


def test_calls_that_launch_nothing_else() -> None:
    """Of calls that launch several activities, as graphs do, all must be chosen."""
    model = small_model([Act(name, 10) for name in "abcdef"])
    call = np.array([0, 2, 2, -1, 5, 5])
    acts = replace(model.graph.activities, call=call)
    model = replace(model, graph=replace(model.graph, activities=acts))
    for number in range(1 << 6):
        picked = np.array([number >> k & 1 for k in range(6)], bool)
        expected = {
            c for c in call[call >= 0].tolist() if all(picked[k] for k in np.flatnonzero(call == c))
        }
        assert calls_of_all(model, picked).tolist() == sorted(expected)


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_on_a_thread_are_those_that_a_walk_finds(seed: int) -> None:
    dice = np.random.default_rng(seed)
    lane = np.sort(dice.integers(0, 4, 40))
    launching = dice.random(40) < 0.3
    launching[0] = seed % 2  # the first call too
    before, after = _find_neighbours(lane, launching)
    for k in range(40):
        earlier = [j for j in range(k) if launching[j]][-1:]
        later = [j for j in range(k + 1, 40) if launching[j]][:1]
        assert [before[k]] == ([j for j in earlier if lane[j] == lane[k]] or [-1])
        assert [after[k]] == ([j for j in later if lane[j] == lane[k]] or [-1])


def test_neighbouring_calls_are_of_one_thread() -> None:
    """Calls 0 to 5, of which the last two are of another thread."""
    model = thread()
    calls = replace(model.graph.calls, lane=np.repeat([0, 1], [4, 12]))
    model = replace(model, graph=replace(model.graph, calls=calls))
    for listed, firsts in (
        ([0, 1, 2, 3, 4, 5], [0, 4]),
        ([0, 2, 3, 5, 7, 8], [0, 2, 5, 7]),
        ([1], [1]),
        ([], []),
    ):
        chosen_calls = np.array(listed, np.int64)
        assert chosen_calls[_mark_firsts(model, chosen_calls)].tolist() == firsts


def test_the_host_no_longer_waits_before_what_is_dropped() -> None:
    """x, then 70 in which the host awaits an event, then z."""
    model = small_model([Act(name, 10) for name in "xyz"])
    graph, weight = model.graph, model.weight.copy()
    calls = replace(graph.calls, name=np.array([LAUNCH, SYNC, LAUNCH]), names=NAMES)
    launched = replace(graph.activities, call=np.array([0, -1, 2]))
    awaits = np.flatnonzero(graph.edges("call") & (graph.dst == graph.call_end[1]))
    weight[awaits] = 70
    model = replace(model, graph=replace(graph, calls=calls, activities=launched), weight=weight)
    assert drop_event_waits(model, chosen(model, "z")).weight[awaits].tolist() == [0]
    kept = drop_event_waits(model, chosen(model, "x"))
    assert kept.weight[awaits].tolist() == [70], "x is launched before"
