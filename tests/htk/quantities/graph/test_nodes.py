"""Whole steps of all ranks, and which of them stands for the others."""

from typing import Any

import numpy as np
import pytest

from htk.quantities.graph.nodes import (
    Activities,
    Steps,
    _last_before,
    _not_inside_next,
    calls_of,
    steps_of_all,
)
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


def test_a_call_that_blocks_while_clocks_drift_ends_before_the_next_begins() -> None:
    """13 ms at -20 ppm are 260 ns fewer; both times of each call are moved by what holds then."""
    who = {"rank": 0, "process": "1", "thread": "1", "name": "cudaFree"}
    launches = [
        {**who, "start_ns": 1_000, "end_ns": 13_001_000},
        {**who, "start_ns": 13_001_000, "end_ns": 13_002_000},
    ]
    clock = {"rank": 0, "offset_ns": 500, "drift_ppm": -20.0, "reference_ns": 0, "aligned": True}
    tables = {
        "launches": make("launches", launches),
        "launch_links": make("launch_links", [{}, {}]),
        "rank_clocks": make("rank_clocks", [clock]),
    }
    calls = calls_of(tables, None, 0)
    assert calls.start.tolist() == [1_500, 13_001_240] and calls.end[0] == calls.start[1]


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


def test_a_step_of_several_recordings_is_of_one() -> None:
    """Of that which most ranks have; of several the one with most GPU time, else the last."""
    three = {
        # step 4: all three ranks in recordings 0 and 2, of which 0 ran longest
        4: {
            0: ((0, 10, 20), (1, 12, 22), (2, 11, 19)),
            2: ((0, 910, 920), (1, 909, 921), (2, 911, 922)),
        },
        # step 5: two ranks in 0, all in 1 and 2
        5: {
            0: ((0, 20, 30), (1, 22, 33)),
            1: ((0, 510, 520), (1, 505, 515), (2, 507, 526)),
            2: ((0, 920, 931), (1, 921, 930), (2, 922, 929)),
        },
        # step 6: no recording has it of all ranks
        6: {1: ((0, 520, 530), (1, 515, 525)), 2: ((1, 930, 940), (2, 929, 941))},
    }
    step_windows = [
        window(rank, start, end, step, cycle=cycle)
        for step, cycles in three.items()
        for cycle, windows in cycles.items()
        for rank, start, end in windows
    ]
    lasts = {0: (0, 400), 1: (500, 600), 2: (900, 1000)}
    rank_windows = [window(r, *lasts[c], cycle=c) for c in lasts for r in range(3)]
    steps_of = steps_of_all(make("step_windows", step_windows), make("rank_windows", rank_windows))
    assert steps_of.numbers == [4, 5]
    assert (steps_of.low, steps_of.high) == ({4: 12, 5: 922}, {4: 22, 5: 931})
    assert [steps_of.cycle_for(step) for step in (None, 4, 5)] == [0, 0, 2]


@pytest.mark.parametrize("seed", range(6))
def test_what_ended_last_on_a_lane_before_the_chosen(seed: int) -> None:
    """The latest end of the rows in front of a lane's first chosen one, of its own cycle, against
    a walk."""
    dice = np.random.default_rng(seed)
    lane = np.sort(dice.integers(0, 5, 30))
    end, ours = dice.integers(0, 99, 30), dice.random(30) < 0.4
    cycle = dice.integers(0, 2, 30)
    expected = []
    for k in np.flatnonzero(ours).tolist():
        first = min(j for j in range(30) if ours[j] and lane[j] == lane[k])
        before = [j for j in range(first) if (lane[j], cycle[j]) == (lane[k], cycle[first])]
        earlier = [int(end[j]) for j in before]
        expected.append(max(earlier, default=-1))
    assert _last_before(lane, end, cycle, ours).tolist() == expected


def activities(rows: list[tuple[int, int, int, int, int, int]]) -> Activities:
    """Rank, device, lane, kind, start and length of each; -1 for the call of what has no length."""
    rank, device, lane, kind, start, length = np.array(rows).T
    none = np.full(len(rows), -1)
    call = np.where(length > 0, 0, -1)
    return Activities(
        none, rank, lane, device, start, start + length, none, [], kind, call, none
    )  # fmt: skip


def test_the_busiest_compute_stream_of_a_rank() -> None:
    """Stream 2 computes for 50 + 30; 1 for 60, and transfers for 500; 3 is of rank 4."""
    acts = activities([
        (3, 0, 1, 0, 0, 60), (3, 0, 1, 1, 60, 500),
        (3, 0, 2, 0, 200, 30), (3, 0, 2, 0, 10, 50), (3, 0, 2, 1, 100, 7),
        (4, 1, 3, 0, 5, 900),
    ])  # fmt: skip
    assert acts.compute_lane(3).tolist() == [3, 4, 2]
    assert acts.compute_lane(4).tolist() == [5]
    assert acts.compute_lane(5).tolist() == []
    unlaunched = activities([(3, 0, 1, 0, 0, 60), (3, 0, 2, 0, 5, 0)])
    assert unlaunched.compute_lane(3).tolist() == [0]


def test_rows_of_each_device_by_what_they_do() -> None:
    acts = activities([
        (0, 1, 0, 0, 0, 9), (0, 0, 1, 1, 0, 9), (0, 1, 2, 1, 0, 9), (0, 1, 3, 2, 0, 9),
        (0, 2, 4, 0, 0, 9), (0, 0, 5, 0, 0, 9),
    ])  # fmt: skip
    assert [[rows.tolist() for rows in device] for device in acts.of_devices] == [
        [[5], [1], []],
        [[0], [2], [3]],
        [[4], [], []],
    ]
    assert activities([(0, 0, 0, 0, 0, 1)]).of_devices[0][0].tolist() == [0]


def test_a_window_without_a_number_is_no_step_and_one_cut_short_neither() -> None:
    step_windows = [
        *(window(0, 10, 20, 0), window(0, 30, 60)),
        {**window(0, 20, 30, 1), "complete": False},
    ]
    rank_windows = [window(0, 1, 99)]
    some = steps_of_all(make("step_windows", step_windows), make("rank_windows", rank_windows))
    assert some.numbers == [0] and some.steadiest == 0


def test_a_call_that_rounding_lets_end_inside_the_next_one_ends_where_that_begins() -> None:
    lane = np.array([0, 0, 0, 0, 1, 1])
    start = np.array([0, 100_000, 200_000, 200_100, 0, 100])
    end = np.array([100_128, 190_000, 300_000, 250_000, 9_000, 20_000])
    ends = [100_000, 190_000, 300_000, 250_000, 9_000, 20_000]
    assert _not_inside_next(lane, start, end).tolist() == ends, "nested calls, long overlaps stay"
