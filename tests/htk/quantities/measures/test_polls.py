"""Several dumps of one rank: the newest counts, and what moved between them."""

from typing import Any

from htk.quantities.measures.polls import moved_between_polls, newest_polls


def record(rank: int, cycle: int, event: int, enqueue_ns: int, **more: Any) -> dict[str, Any]:
    row = {"rank": rank, "cycle": cycle, "event": event, "enqueue_ns": enqueue_ns}
    return row | {"source": "flight_recorder"} | more


def state(rank: int, cycle: int, enqueued: int, completed: int) -> dict[str, Any]:
    counters = {"last_enqueued": enqueued, "last_completed": completed}
    return {"rank": rank, "cycle": cycle, "group": "0"} | counters


RECORDS = [
    record(0, 0, 0, 100), record(0, 0, 1, 200), record(0, 1, 2, 200), record(0, 1, 3, 300),
    record(1, 0, 0, 150),
]  # fmt: skip
STATES = [state(0, 0, 2, 1), state(0, 1, 3, 1), state(1, 0, 2, 2)]


def test_the_dump_that_enqueued_last_counts_and_numbers_begin_anew() -> None:
    records, states = newest_polls([dict(r) for r in RECORDS], STATES)
    assert [(r["rank"], r["cycle"], r["event"]) for r in records] == [
        (0, 1, 0), (0, 1, 1), (1, 0, 0),
    ]  # fmt: skip
    assert [(s["rank"], s["cycle"]) for s in states] == [(0, 1), (1, 0)]


def test_only_ranks_with_several_dumps_can_have_moved() -> None:
    assert moved_between_polls(RECORDS, STATES) == {0: True}
    same = [record(0, 0, 0, 100), record(0, 1, 1, 100)]
    assert moved_between_polls(same, [state(0, 0, 2, 1), state(0, 1, 2, 1)]) == {0: False}


def test_a_watchdog_s_time_is_no_dump_s() -> None:
    late = record(0, 0, 0, 999, source="watchdog")
    records, _ = newest_polls([late, record(0, 1, 1, 300)], [])
    assert [r["cycle"] for r in records] == [1]
