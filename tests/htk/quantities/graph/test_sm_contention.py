"""Kernels that waited for a full GPU: whom they are taken to have waited for, case by case."""

import numpy as np
import pytest

from htk.quantities.graph.nodes import Activities, LaunchCalls
from htk.quantities.graph.sm_contention import waits_for_room

US = 1000
# Lane, device, kind, launch, start and end, in us.
LATE = (0, 0, 0, 5, 500, 600)  # could start at 10
READY = 10
Row = tuple[int, int, int, int, int, int]


def waits(
    *others: Row, late: Row = LATE, ready: int = READY
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Which other, and by how many us at least: after ends, and after starts."""
    lane, device, kind, launch, start, end = np.array([late, *others], np.int64).T
    many = len(lane)
    zero, none = np.zeros(many, np.int64), np.full(many, -1)
    activities = Activities(
        row=np.arange(many), rank=zero, lane=lane, device=device, start=start * US, end=end * US,
        name=zero, names=["k"], kind=kind, call=np.arange(many), before=none,
    )  # fmt: skip
    calls = LaunchCalls(
        np.arange(many), zero, zero, launch * US, launch * US, zero, ["launch"], none, none
    )
    could = activities.start.copy()
    could[0] = ready * US
    results = []
    for wait in waits_for_room(activities, calls, could):
        assert wait.dst.tolist() == [0] * len(wait.dst) and not wait.observed.any()
        results.append(list(zip(wait.src.tolist(), (wait.lag // US).tolist(), strict=True)))
    return results[0], results[1]


def test_the_kernel_that_ended_just_then() -> None:
    first, last = (1, 0, 0, 1, 20, 485), (2, 0, 0, 2, 30, 497)
    assert waits(first, last) == ([(2, 3)], []), "of two the last one"
    assert waits(last, first) == ([(1, 3)], [])


def test_else_the_last_kernel_that_was_running() -> None:
    earlier, later, over = (1, 0, 0, 1, 20, 900), (2, 0, 0, 2, 450, 700), (3, 0, 0, 3, 30, 470)
    assert waits(earlier, later, over) == ([], [(2, 50)])


@pytest.mark.parametrize(
    "other",
    [
        (0, 0, 0, 1, 20, 499),  # of its own stream
        (1, 1, 0, 1, 20, 499),  # of another GPU
        (1, 0, 0, 7, 20, 499),  # launched later: an accident of this step
        (1, 0, 0, 1, 20, 470),  # long over
        (1, 0, 2, 1, 20, 900),  # a copy, which fills no multiprocessor
    ],
)
def test_others_are_not_waited_for(other: Row) -> None:
    assert waits(other) == ([], [])


def test_a_start_that_is_explained_waits_for_nobody() -> None:
    other = (1, 0, 0, 1, 20, 499)
    assert waits(other, ready=485) == ([], []), "15 us late"
    copy = (*LATE[:2], 2, *LATE[3:])
    assert waits(other, late=copy) == ([], [])
