"""A launch that finds the queue full returns when the activity a full queue before it has started.

520 launches fit; kernels take 1000 each, one behind the other, from 2000 on. The first 520 calls
take 1 each, every 2; each later one begins 2 after the one before it returned, and waits.
"""

from typing import Any

import numpy as np
import pytest

from htk.quantities.graph.build import Graph, build_graph
from htk.quantities.graph.edges import Edges, _queue_edges
from htk.quantities.graph.nodes import Activities
from htk.quantities.graph.queue import full_queues
from tests.htk.quantities.graph.small_step import rebuilt

QUEUE, LENGTH, FIRST = 520, 1000, 2000


def kernel_start(number: int) -> int:
    return FIRST + LENGTH * number


@pytest.fixture(scope="module", params=[600, 1600], ids=["few held up", "most held up"])
def count(request: pytest.FixtureRequest) -> int:
    """Return the launches of the step."""
    return int(request.param)


@pytest.fixture(scope="module")
def graph(count: int) -> Graph:
    launches: list[dict[str, Any]] = []
    end = -1
    for k in range(count):
        start = 2 * k if k < QUEUE else end + 2
        end = start + 1 if k < QUEUE else max(kernel_start(k - QUEUE), start + 1)
        launches.append(
            {"name": "cudaLaunchKernel", "start_ns": start, "end_ns": end, "correlation": k + 1}
        )
    kernels = [
        {
            "stream": 7,
            "correlation": k + 1,
            "start_ns": kernel_start(k),
            "end_ns": kernel_start(k) + LENGTH,
        }
        for k in range(count)
    ]
    return build_graph(rebuilt(kernels, launches))


def test_the_launch_a_full_queue_behind_waits_for_the_start(graph: Graph, count: int) -> None:
    chosen = graph.edges("queue")
    activity = {int(node): k for k, node in enumerate(graph.start)}
    call = {int(node): k for k, node in enumerate(graph.call_end)}
    pairs = [
        (activity[tail], call[head])
        for tail, head in zip(graph.src[chosen].tolist(), graph.dst[chosen].tolist(), strict=True)
    ]
    assert pairs, "the queue was full"
    (deepest,) = {head - tail for tail, head in pairs}
    assert deepest == QUEUE
    assert sorted(head for _, head in pairs) == list(range(QUEUE, count))
    assert set(graph.weight[chosen].tolist()) == {0}


def test_what_was_held_up_has_no_length_of_its_own(graph: Graph, count: int) -> None:
    chosen = graph.edges("call")
    call = {int(node): k for k, node in enumerate(graph.call_start)}
    lengths = {
        call[tail]: weight
        for tail, weight in zip(
            graph.src[chosen].tolist(), graph.weight[chosen].tolist(), strict=True
        )
    }
    assert {lengths[k] for k in range(QUEUE + 1, count)} == {1}  # as the others take


def test_launches_before_the_recording_stand_in_the_queue() -> None:
    """The first 500 kernels were launched before the recording began: their calls are unknown. 20
    more fit, each later one waits."""
    before, after = 500, 120
    kernels = [
        {
            "stream": 7,
            "correlation": k + 1,
            "start_ns": kernel_start(k),
            "end_ns": kernel_start(k) + 990,
        }
        for k in range(before + after)
    ]
    launches: list[dict[str, Any]] = []
    end = 0
    for k in range(before, before + after):
        start = end + 2
        end = start + 1 if k < QUEUE else max(kernel_start(k - QUEUE), start + 1)
        launches.append(
            {"name": "cudaLaunchKernel", "start_ns": start, "end_ns": end, "correlation": k + 1}
        )
    (queue,) = full_queues(rebuilt(kernels, launches))
    assert queue.capacity == QUEUE
    assert queue.blocked.tolist() == [k >= QUEUE for k in range(before + after)]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_step_before_is_that_of_the_same_gpu(rank: int) -> None:
    """Two ranks launch 40 kernels each; the first three of one were held up by the step before,
    whose last kernels started later on the other rank."""
    each, held = 40, 3
    device = np.repeat([0, 1], each)
    start = np.concatenate([np.arange(each) * 10, np.arange(each) * 10 + 7 + 500 * (1 - rank)])
    row, zero = np.arange(2 * each), np.zeros(2 * each, np.int64)
    acts = Activities(
        row, device, device, device, start, start + 5, zero, ["k"], zero, row, zero - 1
    )
    edges = Edges(2 * each, 2 * each)
    tails = rank * each + np.arange(held)
    seen = np.array([-30, -20, -10])
    _queue_edges(edges, acts, tails, np.full(held, -1), seen)
    ((src, dst, _, times),) = edges.wraps
    last = (rank + 1) * each
    assert src.tolist() == [last - 3, last - 2, last - 1]
    assert dst.tolist() == edges.call_end(tails).tolist() and times.tolist() == seen.tolist()
