"""Which call of one sequence is which of another, where the truth is known call by call."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.align import aligned_positions, fitting_shifts
from htk.base.columns.types import NONE

Calls = tuple[np.ndarray, np.ndarray, np.ndarray]


def calls(kinds: list[int], sizes: list[int], times: list[int]) -> Calls:
    return (np.array(kinds, np.int64), np.array(sizes, np.int64), np.array(times, np.int64))


def program(length: int) -> list[int]:
    """Sizes that are all different."""
    return [100 + 7 * k for k in range(length)]


@st.composite
def edited(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A program of 60, and for each call of another rank its place there: runs of calls are lost or
    added, with three that agree between any two."""
    places, position = [], draw(st.integers(0, 20))
    while position < 60:
        kept = draw(st.integers(3, 20))
        places += list(range(position, min(position + kept, 60)))
        position += kept
        if draw(st.booleans()):
            position += draw(st.integers(1, 9))
        else:
            places += [NONE] * draw(st.integers(1, 9))
    stop = draw(st.integers(0, 3))
    while places and places[-1] == NONE:
        places.pop()
    return program(60), places[: len(places) - stop] if len(places) > 9 + stop else places


@given(edited(), st.integers(-(10**6), 10**6))
def test_what_is_lost_or_added_moves_nothing_else(
    job: tuple[list[int], list[int]], clock: int
) -> None:
    sizes, places = job
    own = [1 + k if place == NONE else sizes[place] for k, place in enumerate(places)]
    base = calls([1] * 60, sizes, [1000 * k for k in range(60)])
    times = [1000 * max(place, 0) + clock for place in places]
    found = aligned_positions(base, calls([1] * len(own), own, times))
    if places[-1] - places[0] == len(places) - 1:  # nothing but the ends is missing
        assert found.tolist() == places
        return
    right = sum(a == b for a, b in zip(found.tolist(), places, strict=True))
    assert all(a in (b, NONE) for a, b in zip(found.tolist(), places, strict=True)), "none is wrong"
    assert right >= sum(place != NONE for place in places) - 3  # too few may agree at the very end


CALL = st.tuples(st.integers(-1, 2), st.integers(-1, 2))


@given(st.lists(CALL, min_size=1, max_size=12), st.lists(CALL, min_size=1, max_size=12))
def test_shifts_that_fit_against_every_pair(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    base, other = (
        calls([k for k, _ in rows], [s for _, s in rows], list(range(len(rows))))
        for rows in (one, two)
    )

    def alike(a: tuple[int, int], b: tuple[int, int]) -> bool:
        return all(x == y or NONE in (x, y) for x, y in zip(a, b, strict=True))

    expected = [
        shift
        for shift in range(len(one) - len(two) + 1)
        if all(alike(one[shift + k], call) for k, call in enumerate(two))
    ]
    assert fitting_shifts(base, other) == expected


@pytest.mark.parametrize("first", range(0, 41, 8))
@pytest.mark.parametrize("late_ns", [-2900, 0, 2900])
def test_of_a_program_that_repeats_itself_time_tells_the_turn(first: int, late_ns: int) -> None:
    """Eight calls again and again; the clocks differ by less than half a turn."""
    sizes = [k % 8 for k in range(64)]
    base = calls([1] * 64, sizes, [1000 * k for k in range(64)])
    own = range(first, first + 24)
    other = calls([1] * 24, [sizes[k] for k in own], [1000 * k + late_ns for k in own])
    assert aligned_positions(base, other).tolist() == list(own)


def test_the_longer_one_may_be_the_other() -> None:
    base = calls([1] * 5, [3, 4, 5, 6, 7], [3000, 4000, 5000, 6000, 7000])
    other = calls([1] * 10, list(range(10)), [1000 * k for k in range(10)])
    assert aligned_positions(base, other).tolist() == [NONE] * 3 + [0, 1, 2, 3, 4] + [NONE] * 2


def test_calls_whose_kind_or_size_is_not_known_fit_any() -> None:
    base = calls([1, 2, 3, 4], [10, 20, 30, 40], [0, 1, 2, 3])
    other = calls([1, NONE, 3, 4], [10, 20, NONE, 40], [0, 1, 2, 3])
    assert aligned_positions(base, other).tolist() == [0, 1, 2, 3]
    assert aligned_positions(other, base).tolist() == [0, 1, 2, 3]


def test_step_numbers_tell_the_turn_of_equally_long_recordings_whatever_their_clocks() -> None:
    """Three calls in each of steps 0 to 5, and of 1 to 6 on a clock that is two steps ahead."""
    steps = [np.repeat(np.arange(first, first + 6), 3) for first in (0, 1)]
    kind = np.zeros(18, np.int64)
    base = (kind, kind, np.arange(18) * 1000)
    other = (kind, kind, np.arange(18) * 1000 + 9000)
    places = aligned_positions(base, other, (steps[0], steps[1]))
    assert places.tolist() == [*range(3, 18), -1, -1, -1]


def test_one_common_step_is_enough() -> None:
    steps = (np.repeat(np.arange(4), 2), np.repeat(np.arange(3, 7), 2))
    kind = np.zeros(8, np.int64)
    calls = (kind, kind, np.arange(8) * 1000)
    assert aligned_positions(calls, calls, steps).tolist() == [6, 7, *[-1] * 6]
