"""Whole steps of all ranks, and which of them stands for the others."""

from typing import Any

import pytest

from htk.graph.nodes import Steps, steps_of_all
from tests.tables import make


def steps(periods: list[int]) -> Steps:
    low, lows, highs = 1000, {}, {}
    for k, period in enumerate(periods, 7):
        lows[k], highs[k] = low, low + period
        low += period
    return Steps(list(lows), lows, highs, (1000, low))


@pytest.mark.parametrize(
    ("periods", "steadiest"),
    [
        ([500, 100, 130, 105], 10),  # the median of the last three is 105
        ([100, 100, 100], 8),  # of equal ones the first but one: its start was seen
        ([100, 300, 200, 100], 9),
        ([50], 7),
        ([50, 900], 8),
    ],
)
def test_the_steadiest_is_nearest_to_the_median(periods: list[int], steadiest: int) -> None:
    assert steps(periods).steadiest == steadiest


def test_times_are_since_the_origin() -> None:
    some = steps([500, 100])
    assert some.periods == {7: 500, 8: 100}
    assert some.window(8, 400) == (1100, 1200)
    assert some.window(None, 400) == (600, 1200)


def window(rank: int, start: int, end: int, step: int | None = None, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "step": step, "start_ns": start, "end_ns": end, "complete": True, **more}


def test_a_step_counts_where_every_rank_has_it_whole() -> None:
    """From the latest beginning to the latest end; cut ones and those of a few are left out."""
    step_windows = [
        *[window(0, 10, 20, 0), window(3, 12, 21, 0), window(5, 11, 19, 0)],
        *[window(0, 20, 30, 1), window(3, 21, 33, 1)],
        *[window(0, 30, 41, 2), window(3, 33, 40, 2), window(5, 29, 44, 2, complete=False)],
        *[window(0, 41, 50, 3), window(3, 40, 52, 3), window(5, 44, 51, 3)],
        window(0, 50, 90),
    ]
    rank_windows = [window(rank, 1, 99 + rank) for rank in (0, 3, 5)]
    found = steps_of_all(make("step_windows", step_windows), make("rank_windows", rank_windows))
    assert found.numbers == [0, 3]
    assert found.low == {0: 12, 3: 44} and found.high == {0: 21, 3: 52}
    assert found.recording == (1, 104) and found.cycle == 0


def test_of_several_recordings_that_with_most_time_counts() -> None:
    rank_windows = [
        *[window(0, 0, 100, cycle=0), window(1, 5, 95, cycle=0)],
        *[window(0, 500, 640, cycle=1), window(1, 490, 620, cycle=1)],
        window(0, 900, 1050, cycle=2),
    ]
    found = steps_of_all(make("step_windows", []), make("rank_windows", rank_windows))
    assert (found.recording, found.cycle, found.numbers) == ((490, 640), 1, [])
