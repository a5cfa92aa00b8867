"""Threads that wait for each other: calls in a pause, and which pauses are handovers."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.handovers import _Threads, find_handovers
from htk.quantities.graph.nodes import LaunchCalls
from tests.tables import make


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 5)), min_size=1),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_calls_between_two_times_as_a_look_at_all_tells(
    drawn: list[tuple[int, int, int]], left: int, length: int
) -> None:
    lane, start, took = np.array(sorted(drawn)).T
    none = np.full(len(lane), -1)
    calls = LaunchCalls(none, lane // 2, lane, start, start + took, none, ["c"], none, none)
    threads, again = _Threads.from_calls(calls), left + length
    assert threads.of_rank == {
        r: np.unique(lane[lane // 2 == r]).tolist() for r in np.unique(lane // 2).tolist()
    }
    for thread in np.unique(lane).tolist():
        inside = (lane == thread) & (start >= left) & (calls.end <= again)
        assert threads.between(thread, left, again).tolist() == np.flatnonzero(inside).tolist()


Call = tuple[int, str, int, int]  # rank, thread, start, end


def handed(listed: list[Call], backward: set[tuple[int, str]] = frozenset()) -> list[Any]:
    """Return source, target and whether observed; calls by number; and calls that are cut off."""
    lanes = sorted({call[:2] for call in listed})
    assert [call[:2] for call in listed] == sorted(call[:2] for call in listed)
    lane = np.array([lanes.index(call[:2]) for call in listed])
    rank, start, end = (np.array([call[k] for call in listed]) for k in (0, 2, 3))
    rows, none = np.arange(len(listed)), np.full(len(listed), -1)
    calls = LaunchCalls(rows, rank, lane, start, end, none, ["c"], none, none)
    launches = [{"rank": c[0], "thread": c[1], "start_ns": c[2], "end_ns": c[3]} for c in listed]
    ops = [{"rank": r, "thread": t} for r, t in [*sorted(backward), *lanes]]
    links = [{"forward_row": 0 if k < len(backward) else None} for k in range(len(ops))]
    tables = {
        "launches": make("launches", launches),
        "cpu_ops": make("cpu_ops", ops),
        "op_links": make("op_links", links),
    }
    result = find_handovers(tables, calls)
    rows_ = zip(*(c.tolist() for c in (result.src, result.dst, result.observed)), strict=True)
    assert sorted(result.cut.tolist()) == sorted(result.dst.tolist())
    return list(rows_)


US = 1000
# Main: 0 to 10 us, and again from 300 us on. Autograd: 20 to 30, 150 to 160, 270 to 280 us.
MAIN = [(0, "1", 0, 10 * US), (0, "1", 300 * US, 310 * US)]
AUTOGRAD = [(0, "2", s * US, (s + 10) * US) for s in (20, 150, 270)]


def test_a_pause_in_which_another_thread_works_is_handed_over_and_back() -> None:
    assert handed([*MAIN, *AUTOGRAD]) == [(0, 2, False), (4, 1, False)]


def test_what_runs_operators_of_backward_is_observed_and_nothing_else_counts() -> None:
    """A third thread works as long in the pause; on another rank the main thread pauses too, of
    which nothing tells whom it waits for."""
    third = [(0, "3", s, e) for _, _, s, e in AUTOGRAD]
    other = [(1, "1", s, e) for _, _, s, e in MAIN] + [(1, "4", s, e) for _, _, s, e in AUTOGRAD]
    every = [*MAIN, *AUTOGRAD, *third, *other]
    guesses = [
        (0, 2, False), (4, 1, False), (0, 5, False), (7, 1, False),
        (8, 10, False), (12, 9, False),
    ]  # fmt: skip
    assert handed(every, {(0, "2")}) == [(0, 2, True), (4, 1, True), *guesses[4:]]
    assert handed(every, {(1, "4")}) == [*guesses[:4], (8, 10, True), (12, 9, True)]
    assert handed(every, {(0, "2"), (1, "4")}) == [
        (0, 2, True), (4, 1, True), (8, 10, True), (12, 9, True),
    ]  # fmt: skip
    assert handed(every, {(1, "2")}) == guesses, "no thread of that name launches there"


@pytest.mark.parametrize(
    ("again", "first", "last", "handed_over"),
    [
        (110, 20, 105, False),  # a pause of 100 us is too short
        (110.001, 20, 105, True),
        (300, 20, 164.999, False),  # at work for less than half of the pause
        (300, 20, 165, True),  # for just half
        (300, 10, 300, True),  # all of it
        (300, 9.999, 300, False),  # it began before the pause; what is left is one call of 10 us
        (300, 20, 300.001, False),  # it ends behind it
    ],
)
def test_how_long_a_pause_and_how_much_work_make_a_handover(
    again: float, first: float, last: float, handed_over: bool
) -> None:
    main = [(0, "1", 0, 10 * US), (0, "1", round(again * US), round((again + 9) * US))]
    begin, end = round(first * US), round(last * US)
    work = [(0, "2", begin, begin + 10 * US), (0, "2", end - 10 * US, end)]
    expected = [(0, 2, False), (3, 1, False)] if handed_over else []
    assert handed([*main, *work]) == expected


def test_autograd_is_handed_over_to_however_long_one_of_both_was_held_up() -> None:
    """It works for 10 us of a pause of 290: main collected garbage before it called backward."""
    late = [(0, "2", 280 * US, 290 * US)]
    assert handed([*MAIN, *late], {(0, "2")}) == [(0, 2, True), (2, 1, True)]
    assert handed([*MAIN, *late]) == [], "of a thread that nothing ties to forward it is chance"
