"""What became of a call, from what NCCL and other backends write of it: by hand."""

from typing import Any

import pytest

from htk.quantities.measures.call_history import ABORTED, GroupId
from htk.quantities.measures.flight_rows import (
    call_state,
    enqueued_and_completed,
    enqueued_by_all,
)

LIMIT = 100
CALL = {
    "state": "completed",
    "enqueue_ns": 1000,
    "end_ns": 1000 + LIMIT,
    "timeout_ns": LIMIT,
    "library": "nccl",
    "seq_kind": "collective",
    "seq": 7,
    "retired": True,
}


@pytest.mark.parametrize(
    ("other", "last_completed", "alive_ns", "state"),
    [
        # retired after its timeout, and nothing later went through: the watchdog's doing
        ({}, None, 0, ABORTED),
        ({"library": None}, None, 1000 + LIMIT, ABORTED),
        ({}, None, 1001 + LIMIT, "completed"),  # something later did: it was only slow
        ({"end_ns": 999 + LIMIT}, None, 0, "completed"),  # in time
        ({"library": "gloo"}, None, 0, "completed"),
        ({"end_ns": None}, None, 0, "completed"),
        ({"enqueue_ns": None}, None, 0, "completed"),
        # half an hour where no timeout is recorded
        ({"timeout_ns": None}, None, 0, "completed"),
        # the group's counter knows more than the call, but not of messages
        ({"state": "started"}, 7, 0, "completed"),
        ({"state": "started"}, 6, 0, "started"),
        ({"state": "started", "seq_kind": "p2p"}, 9, 0, "started"),
        ({"state": "started", "seq": None}, 9, 0, "started"),
        # what other backends retire has ended; NCCL retires what timed out too
        ({"state": "scheduled", "library": "gloo"}, None, 0, "completed"),
        ({"state": "scheduled", "library": "gloo", "retired": False}, None, 0, "scheduled"),
        ({"state": "scheduled"}, None, 0, "scheduled"),
        ({"state": None}, None, 0, "scheduled"),
    ],
)
def test_what_became_of_a_call(
    other: dict[str, Any], last_completed: int | None, alive_ns: int, state: str
) -> None:
    status = {} if last_completed is None else {"last_completed": last_completed}
    assert call_state(CALL | other, status, alive_ns, 7) == state


def test_the_last_call_that_went_through_of_each_rank_and_group() -> None:
    def row(rank: int, group: str, enqueue_ns: int | None, state: str) -> dict[str, Any]:
        named = {"rank": rank, "group": group, "group_ranks": "[0,1]"}
        return named | {"enqueue_ns": enqueue_ns, "state": state}

    latest = enqueued_and_completed(
        [
            row(0, "dp", 30, "completed"),
            row(0, "dp", 20, "completed"),
            row(0, "dp", 90, "started"),
            row(0, "dp", None, "completed"),
            row(0, "tp", 10, "completed"),
            row(1, "dp", 25, "completed"),
            row(1, "tp", 11, "scheduled"),
        ]
    )
    by_name = {(rank, group.name): ns for (rank, group), ns in latest.items()}
    assert by_name == {(0, "dp"): 30, (0, "tp"): 10, (1, "dp"): 25}
    assert all(isinstance(g, GroupId) and g.ranks == (0, 1) for _, g in latest)


@pytest.mark.parametrize(("library", "state"), [("gloo", "scheduled"), ("nccl", "completed")])
def test_other_backends_count_what_timed_out_as_completed(library: str, state: str) -> None:
    """One rank has come to call 6 alone: the counter that says 7 counts a timeout."""
    call = CALL | {"state": "scheduled", "library": library}
    assert call_state(call, {"last_completed": 7}, 0, 6) == state


def test_the_last_call_to_which_all_ranks_came() -> None:
    def row(rank: int, name: str, **more: Any) -> dict[str, Any]:
        members = "[0,1,2]" if name == "all" else "[0,1]"
        return {"rank": rank, "group": name, "group_ranks": members} | more

    calls = [row(0, "all", seq=4, seq_kind="collective"), row(0, "pair", seq=9, seq_kind="p2p")]
    states = [
        row(0, "all", last_enqueued=5), row(1, "all", last_enqueued=3),
        row(0, "pair", last_enqueued=2), row(2, "all", last_enqueued=None),
    ]  # fmt: skip
    common = enqueued_by_all(calls, states)
    assert {group.name: number for group, number in common.items()} == {"all": 0, "pair": 0}
    states += [row(2, "all", last_enqueued=4), row(1, "pair", last_enqueued=7)]
    common = enqueued_by_all(calls, states)
    assert {group.name: number for group, number in common.items()} == {"all": 3, "pair": 2}
