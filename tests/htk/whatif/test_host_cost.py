"""Calls on account of an activity, on a thread worked out by hand."""

from dataclasses import replace

import numpy as np

from htk.graph.nodes import LaunchCalls
from htk.whatif.host_cost import on_account
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
