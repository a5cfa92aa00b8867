"""Who waited for whom where nothing recorded it: believed only when seen often enough."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.build import Graph, build_graph
from htk.quantities.graph.nodes import Activities, LaunchCalls, activities_of, calls_of
from htk.quantities.graph.waits import (
    _last_row,
    _Launched,
    _mark_often_seen,
    find_communicator_waits,
    find_sync_waits,
)
from tests.htk.quantities.graph.small_step import rebuilt, step_tables
from tests.tables import make

_LATE = 400_000


def two_streams(instances: int, streams: int) -> dict[str, pa.Table]:
    """A step: `instances` times a kernel on stream 20, and one on stream 7 that waits for it.

    The third stream holds a short kernel, so that the wait could be for either.
    """
    launches: list[dict[str, Any]] = []
    kernels: list[dict[str, Any]] = []

    def call(name: str, at: int) -> None:
        launches.append({"name": name, "start_ns": at, "end_ns": at + 10})

    def kernel(stream: int, at: int, start: int, end: int) -> None:
        call("cudaLaunchKernel", at)
        launches[-1]["correlation"] = len(kernels) + 1
        kernels.append(
            {"correlation": len(kernels) + 1, "stream": stream, "start_ns": start, "end_ns": end}
        )

    for k in range(instances):
        at = _LATE * k
        if streams == 3:
            kernel(13, at, at + 50, at + 60)
        kernel(20, at + 20, at + 100, at + 200_000)
        call("cudaStreamWaitEvent", at + 40)
        kernel(7, at + 60, at + 200_003, at + 300_000)
    return rebuilt(kernels, launches)


def waits(graph: Graph) -> list[int]:
    """Lengths of the waits for events."""
    return sorted(graph.weight[graph.edges("event")].tolist())


def test_a_wait_without_a_choice_needs_no_second_instance() -> None:
    graph = build_graph(two_streams(1, 2))
    assert waits(graph) == [3]
    assert not graph.observed[graph.edges("event")].any()


@pytest.mark.parametrize(("instances", "believed"), [(1, 0), (2, 0), (3, 3), (4, 4)])
def test_a_choice_is_believed_from_the_third_instance_on(instances: int, believed: int) -> None:
    assert len(waits(build_graph(two_streams(instances, 3)))) == believed


def test_a_kernel_waits_for_room_that_one_launched_earlier_holds() -> None:
    kernels = [
        {"stream": 20, "start_ns": 100, "end_ns": 500_000, "correlation": 1},
        {"stream": 7, "start_ns": 500_002, "end_ns": 600_000, "correlation": 2},
    ]
    launches = [
        {"name": "cudaLaunchKernel", "start_ns": 0, "end_ns": 10, "correlation": 1},
        {"name": "cudaLaunchKernel", "start_ns": 20, "end_ns": 30, "correlation": 2},
    ]
    graph = build_graph(rebuilt(kernels, launches))
    room = np.flatnonzero(graph.edges("capacity"))
    assert graph.weight[room].tolist() == [2]
    assert not graph.observed[room].any()
    kernels[0]["correlation"], kernels[1]["correlation"] = 2, 1  # launched the other way round
    assert not build_graph(rebuilt(kernels, launches)).edges("capacity").any()


def test_a_step_of_one_stream_waits_for_no_room() -> None:
    assert not build_graph(step_tables(), 1).edges("capacity").any()


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=9
    )
)
def test_what_ended_before_a_call_as_a_look_at_all_tells(drawn: list[tuple[int, int, int]]) -> None:
    """Activities by launch, length and rank; each call is asked for what ended last before it."""
    issued, length, rank = np.array(drawn).T
    start, many = issued + 1, len(drawn)
    every, none = np.arange(many), np.full(many, -1)
    calls = LaunchCalls(every, rank, rank, issued, issued + 4, none, ["c"], none, none)
    activities = Activities(
        every, rank, rank, rank, start, start + length, none, ["k"], none * 0, every, none
    )
    launched = _Launched.from_activities(activities, calls)
    for call in range(many):
        over = activities.end <= calls.end[call]
        own = np.flatnonzero((rank == rank[call]) & (issued < issued[call]) & over)
        own = own[np.lexsort((own, issued[own], -activities.end[own]))]
        assert launched.ended_before(call) == (own[0] if len(own) else -1)


LAUNCHES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 2), st.integers(0, 9)),
    min_size=1,
    max_size=10,
)


def drawn_step(drawn: list[tuple[int, int, int, int]]) -> tuple[Activities, LaunchCalls]:
    """Each call is at a time, of a thread; a third of the calls awaits an event, each other one
    launches an activity on a stream, so long after."""
    drawn = sorted(drawn, key=lambda row: (row[1], row[0]))
    issued, thread, stream, later = np.array(drawn).T
    many = len(drawn)
    every, zero, none = np.arange(many), np.zeros(many, np.int64), np.full(many, -1)
    awaits = (issued + later) % 3 == 0
    names = ["cudaLaunchKernel", "cudaStreamWaitEvent"]
    calls = LaunchCalls(
        every, zero, thread, issued, issued + 1, awaits.astype(np.int64), names, none, none
    )
    call = every[~awaits]
    lane = stream[call]
    order = np.lexsort((issued[call] + later[call], lane))
    call, lane = call[order], lane[order]
    start = issued[call] + later[call]
    of_act = np.zeros(len(call), np.int64)
    acts = Activities(
        of_act, of_act, lane, lane // 2, start, start + 1 + call % 4, of_act, ["k"], of_act, call,
        of_act - 1,
    )  # fmt: skip
    return acts, calls


@given(LAUNCHES)
def test_neighbours_in_the_order_of_launches_as_a_look_at_all_tells(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    """The first activity launched on a stream from a call on, and the last one before."""
    acts, calls = drawn_step(drawn)
    launched = _Launched.from_activities(acts, calls)
    issued = calls.start[acts.call]
    for lane in (-1, 0, 1, 2):
        every = np.arange(len(calls.start))
        following = launched.next_on(np.full(len(every), lane), every)
        before = launched.last_on(np.full(len(every), lane), every)
        for call in every.tolist():
            own = np.flatnonzero(acts.lane == lane)
            later = [k for k in own.tolist() if issued[k] >= calls.start[call]]
            earlier = [k for k in own.tolist() if issued[k] < calls.start[call]]
            expected = min((int(issued[k]) for k in later), default=None)
            assert (issued[following[call]] if following[call] >= 0 else None) == expected
            expected = max((int(issued[k]) for k in earlier), default=None)
            assert (issued[before[call]] if before[call] >= 0 else None) == expected


@given(LAUNCHES)
def test_guesses_as_a_look_at_all_tells(drawn: list[tuple[int, int, int, int]]) -> None:
    """The thread's next launch waits for one of the activities that were launched last on the other
    streams of its device: the one that ended last. With one such stream there is no choice."""
    acts, calls = drawn_step(drawn)
    issued = calls.start[acts.call]
    thread = calls.lane[acts.call]
    expected = []
    for wait in np.flatnonzero(calls.name == 1).tolist():
        at = calls.start[wait]
        after = [k for k in range(len(issued)) if thread[k] == calls.lane[wait] and issued[k] >= at]
        if not after:
            continue
        first = min(int(issued[k]) for k in after)
        targets = [k for k in after if issued[k] == first]
        lasts = {}
        for k in range(len(issued)):
            if issued[k] < at:
                lane = int(acts.lane[k])
                if lane not in lasts or issued[k] >= issued[lasts[lane]]:
                    lasts[lane] = k
        expected.append((wait, targets, lasts))
    pairs, sure = _Launched.from_activities(acts, calls).guesses(np.empty(0, np.int64))
    by_target: dict[int, list[tuple[int, bool]]] = {}
    for (source, target), alone_ in zip(pairs.tolist(), sure.tolist(), strict=True):
        by_target.setdefault(target, []).append((source, alone_))
    for source, target in pairs.tolist():
        assert acts.device[source] == acts.device[target] and acts.lane[source] != acts.lane[target]
        assert acts.end[source] <= acts.start[target]
    count = 0
    for _, targets, lasts in expected:
        if len(targets) > 1:
            return  # launched at one time: any of them
        (target,) = targets
        others = [
            k for lane, k in lasts.items()
            if lane != acts.lane[target] and acts.device[k] == acts.device[target]
        ]  # fmt: skip
        over = [k for k in others if acts.end[k] <= acts.start[target]]
        if over:
            count += 1
            latest = max(int(acts.end[k]) for k in over)
            guessed = by_target[target]
            assert (latest, len(others) == 1) in [(int(acts.end[k]), a) for k, a in guessed]
    assert len(pairs) == count


@pytest.mark.parametrize(("own", "target"), [(0, 0), (63, 0), (64, -1)])
def test_other_ranks_launches_do_not_part_a_wait_from_what_it_is_for(own: int, target: int) -> None:
    """Rank 0's thread waits and then launches; meanwhile rank 1 launches 200 times, and another
    thread of rank 0 so often."""
    many = 2 + 200 + own
    rank = np.array([0, 0] + [1] * 200 + [0] * own)
    thread = np.array([0, 0] + [1] * 200 + [2] * own)
    issued = np.concatenate([[0, 1000], np.arange(1, 201), np.arange(300, 300 + own)])
    every, none, zero = np.arange(many), np.full(many, -1), np.zeros(many, np.int64)
    name = (every == 0).astype(np.int64)
    names = ["cudaLaunchKernel", "cudaStreamWaitEvent"]
    calls = LaunchCalls(every, rank, thread, issued, issued + 1, name, names, none, none)
    call = every[1:]
    start, act = issued[call] + 10, zero[1:]
    acts = Activities(
        act, rank[call], thread[call], rank[call], start, start + 5, act, ["k"], act, call, act - 1
    )
    found = _Launched.from_activities(acts, calls)._next_of_thread(np.array([0]))
    assert found.tolist() == [target]


def test_pairs_of_streams_are_seen_often_from_three_on() -> None:
    lanes = np.array([[0, 1], [1, 0], [2, 1], [0, 1]])
    aligned = np.array([[0, 1], [1, 0], [0, 1], [1, 0], [0, 1], [5, 5]])
    assert _mark_often_seen(lanes, aligned).tolist() == [True, False, False, True]


def test_the_last_of_equal_rows() -> None:
    keys = np.array([[1, 2], [3, 4], [1, 2], [3, 5]])
    wanted = np.array([[1, 2], [3, 4], [3, 5], [9, 9]])
    assert _last_row(keys, wanted).tolist() == [2, 1, 3, -1]


@pytest.mark.parametrize(
    ("gap", "count", "lags"),
    [
        (700, 4, [700, 700, 700]),
        (4_999, 4, [4_999] * 3),
        (5_000, 4, [0, 0, 0]),  # something else held them
        (0, 4, [0, 0, 0]),
        (700, 3, []),  # two waits are no rule
        (-1, 4, []),  # two of the group ran at once
    ],
)
def test_collectives_of_a_group_on_two_streams_follow_each_other(
    gap: int, count: int, lags: list[int]
) -> None:
    """A group's collectives in turn on streams 20 and 21; another group's run beside them on one,
    and a kernel."""
    kernels, launches, collectives = [], [], []
    rows = [(k, "a", 20 + k % 2, (1_000 + gap) * k, (1_000 + gap) * k + 1_000)
            for k in range(count)]  # fmt: skip
    rows += [(count + k, "b", 30, 50 + 2_000 * k, 1_700 + 2_000 * k) for k in range(3)]
    rows.append((count + 3, "", 7, 100, 900))
    for number, group, stream, start, end in rows:
        kind = "comm" if group else "compute"
        ran = {"start_ns": start + 10_000, "end_ns": end + 10_000, "event": 500 + number}
        kernels.append({"stream": stream, "kind": kind, "correlation": number + 1, **ran})
        called = {"start_ns": start + 1, "end_ns": start + 2, "correlation": number + 1}
        launches.append({"name": "cudaLaunchKernel", **called})
        if group:
            collectives.append({"event": 500 + number, "group": group})
    tables = rebuilt(kernels, launches) | {"collectives": make("collectives", collectives)}
    calls = calls_of(tables, None, 0)
    acts = activities_of(tables, calls, None, 0)
    wait = find_communicator_waits(tables, acts, calls)
    assert wait.lag.tolist() == lags and wait.observed.all()
    events = tables["kernels"]["event"].to_numpy()[acts.row] - 500
    assert events[wait.src].tolist() == list(range(len(lags)))
    assert events[wait.dst].tolist() == list(range(1, len(lags) + 1))


def alone(activity: dict[str, int], call: dict[str, Any]) -> tuple[Activities, LaunchCalls]:
    """One activity, launched by the first of two calls; the second may wait for it."""
    zero, none = np.zeros(2, np.int64), np.full(2, -1)
    names = ["cudaLaunchKernel", call["name"]]
    start, end = np.array([0, call["start"]]), np.array([5, call["end"]])
    calls = LaunchCalls(np.arange(2), zero, zero, start, end, np.array([0, 1]), names, none, none)
    first, no_number = zero[:1], none[:1]
    begin, finish = np.array([activity["start"]]), np.array([activity["end"]])
    launched_by = np.array([activity.get("call", 0)])
    kind = np.array([activity.get("kind", 0)])
    acts = Activities(
        first, first, first, first, begin, finish, first, ["k"], kind, launched_by, no_number
    )
    return acts, calls


@pytest.mark.parametrize(
    ("started", "returned", "lag"),
    [
        (50, 100, 0),  # it returns as the activity ends
        (50, 300_100 - 100_000, 200_000),  # at most so much later
        (50, 200_101, None),  # then something else held it
        (99, 103, 3),
        (100, 107, 0),  # the activity was over before the call: its end orders them, no more
        (150, 900_000, 0),
    ],
)
def test_a_synchronising_call_returns_soon_after_what_it_waited_for(
    started: int, returned: int, lag: int | None
) -> None:
    call = {"name": "cudaDeviceSynchronize", "start": started, "end": returned}
    wait = find_sync_waits(*alone({"start": 10, "end": 100}, call))
    rows = list(zip(*(c.tolist() for c in (wait.src, wait.dst, wait.lag)), strict=True))
    assert rows == ([] if lag is None else [(0, 1, lag)]) and wait.observed.all()


@pytest.mark.parametrize(
    ("name", "kind", "end", "waits"),
    [
        ("cudaMemcpyAsync", 2, 300, [(0, 1, 7)]),
        ("cudaMemcpyAsync", 2, 308, []),  # it outlasts its call: nobody waited
        ("cudaMemcpyAsync", 0, 300, []),  # no copy
        ("cudaMemsetAsync", 2, 300, []),
    ],
)
def test_a_blocking_copy_ends_within_its_call(
    name: str, kind: int, end: int, waits: list[tuple[int, int, int]]
) -> None:
    call = {"name": name, "start": 50, "end": 307}
    wait = find_sync_waits(*alone({"start": 60, "end": end, "call": 1, "kind": kind}, call))
    assert list(zip(*(c.tolist() for c in (wait.src, wait.dst, wait.lag)), strict=True)) == waits
