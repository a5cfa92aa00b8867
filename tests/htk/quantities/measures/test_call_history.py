"""Who waits at which call for whom, in histories of a few calls; and circles of waiting."""

import random

import pytest

from htk.quantities.measures.call_history import (
    CallSite,
    GroupId,
    Histories,
    RecordedCall,
    cycle_among,
    group_id,
)
from tests.thinned import thinned

PAIR, ALL = GroupId("pair", (1, 2)), GroupId("all", (0, 1, 2, 3))


def history(**calls: list[tuple[GroupId, int, str]]) -> Histories:
    """Of each rank, rank0=…, its calls: group, number, state."""
    made, by_site = {}, {}
    for name, listed in calls.items():
        rank = int(name.removeprefix("rank"))
        made[rank] = [
            RecordedCall(rank, CallSite(group, seq), k, [{"type": "all_reduce"}], {state})
            for k, (group, seq, state) in enumerate(listed)
        ]
        for call in made[rank]:
            by_site.setdefault(call.call_site, {})[rank] = call
    return Histories(made, by_site, {}, {}, {}, set(), set(), set(), {}, {}, [])


def test_ranks_wait_for_those_that_have_not_come() -> None:
    """Rank 1 never made the second call; rank 2 waits for it in its pair before that; rank 3 left
    no dump."""
    jam = history(
        rank0=[(ALL, 1, "completed"), (ALL, 2, "started")],
        rank1=[(ALL, 1, "completed")],
        rank2=[(ALL, 1, "completed"), (PAIR, 1, "scheduled"), (ALL, 2, "scheduled")],
    )
    assert jam.dumped == [0, 1, 2]
    call = jam.waits_at(0)
    assert call is not None and call.call_site == CallSite(ALL, 2) and call.started
    assert jam.waits_for(0) == {1, 2, 3}, "rank 2 made the call behind one it waits at"
    assert jam.waits_for(1) == set() and jam.waits_at(1) is None
    assert jam.waits_for(2) == {1}
    assert jam.absent(CallSite(ALL, 2)) == [1, 2] and jam.unknown(CallSite(ALL, 2)) == [3]
    assert jam.arrived(2, CallSite(PAIR, 1)) and not jam.arrived(2, CallSite(ALL, 2))


def test_counters_tell_of_calls_that_the_ring_lost() -> None:
    lost = history(rank0=[(ALL, 9, "started")], rank1=[])
    lost.status[1, ALL] = {"last_completed": 8, "last_enqueued": 9}
    lost.first_seq[0, ALL] = 9
    assert lost.passed(0, CallSite(ALL, 8)) and not lost.passed(0, CallSite(ALL, 9))
    assert lost.passed(1, CallSite(ALL, 8)) and not lost.passed(1, CallSite(ALL, 9))
    assert lost.arrived(1, CallSite(ALL, 9)) and not lost.arrived(1, CallSite(ALL, 10))


def test_members_of_an_unknown_group_are_those_who_called() -> None:
    unknown = GroupId("?", ())
    seen = history(rank5=[(unknown, 1, "started")], rank2=[(unknown, 1, "started")])
    assert seen.members(CallSite(unknown, 1)) == (2, 5)
    assert seen.members(CallSite(ALL, 1, (3, 1))) == (3, 1), "of a message its two ends"


@pytest.mark.parametrize(
    ("states", "completed", "started"),
    [
        ({"completed"}, True, True),
        ({"completed", "started"}, False, True),
        ({"scheduled"}, False, False),
        ({"aborted"}, False, True),
    ],
)
def test_a_call_of_several_operations_completes_with_the_last(
    states: set[str], completed: bool, started: bool
) -> None:
    call = RecordedCall(0, CallSite(ALL, 1), 0, [], states)
    assert (call.completed, call.started, call.type) == (completed, started, "collective")


def test_an_aborted_call_has_an_age() -> None:
    operations = [
        {"state": "aborted", "enqueue_ns": 5, "end_ns": 65},
        {"state": "aborted", "enqueue_ns": 5, "end_ns": 35},
        {"state": "completed", "enqueue_ns": 0, "end_ns": 900},
    ]
    assert RecordedCall(0, CallSite(ALL, 1), 0, operations).aborted_after_ns == 60
    assert RecordedCall(0, CallSite(ALL, 1), 0, operations[2:]).aborted_after_ns is None


def test_groups_are_told_by_name_and_members() -> None:
    row = {"group": "3", "group_ranks": "[0,4]"}
    assert group_id(row) is group_id(dict(row))
    assert group_id(row) is not group_id(row | {"group_ranks": "[1,5]"})
    assert group_id({"group": None, "group_ranks": None}).ranks == ()


def test_ranks_that_wait_for_each_other_in_a_circle() -> None:
    assert cycle_among({}) == []
    assert cycle_among({0: [9], 1: [0]}) == [], "rank 9 waits for nobody"
    assert cycle_among({0: [1], 1: [2], 2: [3], 3: [1]}) == [1, 2, 3]


@pytest.mark.parametrize("seed", thinned(range(20), 5))
def test_a_circle_is_one(seed: int) -> None:
    """Where every rank waits for another of them, each of the circle waits for the next."""
    dice = random.Random(seed)
    waits = {r: dice.sample([o for o in range(8) if o != r], 2) for r in range(8)}
    circle = cycle_among(waits)
    assert len(circle) > 1 and len(set(circle)) == len(circle)
    assert all(b in waits[a] for a, b in zip(circle, [*circle[1:], circle[0]], strict=True))
