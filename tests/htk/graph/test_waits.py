"""Who waited for whom where nothing recorded it: believed only when seen often enough."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.graph.build import Graph, build
from htk.graph.nodes import Activities, LaunchCalls
from htk.graph.waits import _Launched
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
