"""Who waited for whom where nothing recorded it: believed only when seen often enough."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.graph.build import Graph, build
from htk.graph.nodes import Activities, LaunchCalls
from htk.graph.waits import _Launched, synchronised
from tests.htk.graph.small_step import rebuilt, step_tables

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
    graph = build(two_streams(1, 2))
    assert waits(graph) == [3]
    assert not graph.observed[graph.edges("event")].any()


@pytest.mark.parametrize(("instances", "believed"), [(1, 0), (2, 0), (3, 3), (4, 4)])
def test_a_choice_is_believed_from_the_third_instance_on(instances: int, believed: int) -> None:
    assert len(waits(build(two_streams(instances, 3)))) == believed


def test_a_kernel_waits_for_room_that_one_launched_earlier_holds() -> None:
    kernels = [
        {"stream": 20, "start_ns": 100, "end_ns": 500_000, "correlation": 1},
        {"stream": 7, "start_ns": 500_002, "end_ns": 600_000, "correlation": 2},
    ]
    launches = [
        {"name": "cudaLaunchKernel", "start_ns": 0, "end_ns": 10, "correlation": 1},
        {"name": "cudaLaunchKernel", "start_ns": 20, "end_ns": 30, "correlation": 2},
    ]
    graph = build(rebuilt(kernels, launches))
    room = np.flatnonzero(graph.edges("capacity"))
    assert graph.weight[room].tolist() == [2]
    assert not graph.observed[room].any()
    kernels[0]["correlation"], kernels[1]["correlation"] = 2, 1  # launched the other way round
    assert not build(rebuilt(kernels, launches)).edges("capacity").any()


def test_a_step_of_one_stream_waits_for_no_room() -> None:
    assert not build(step_tables(), 1).edges("capacity").any()


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
    launched = _Launched.of(activities, calls)
    for call in range(many):
        over = activities.end <= calls.end[call]
        own = np.flatnonzero((rank == rank[call]) & (issued < issued[call]) & over)
        own = own[np.lexsort((own, issued[own], -activities.end[own]))]
        assert launched.ended_before(call) == (own[0] if len(own) else -1)


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
    wait = synchronised(*alone({"start": 10, "end": 100}, call))
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
    wait = synchronised(*alone({"start": 60, "end": end, "call": 1, "kind": kind}, call))
    assert list(zip(*(c.tolist() for c in (wait.src, wait.dst, wait.lag)), strict=True)) == waits
