"""Empty time is cut out of the axis: positions and times by hand, and there and back again."""

import numpy as np
import pytest

from htk.traces.timeline.cuts import TimeCuts, group_recordings

HOUR = 3_600_000_000_000


def test_files_of_one_recording_are_joined_and_hours_are_not() -> None:
    files = [[100, 1_000], [0, 900], [HOUR, HOUR + 500], [HOUR + 1_400, HOUR + 1_900]]
    assert group_recordings(files) == [(0, 1_000), (HOUR, HOUR + 1_900)]
    assert group_recordings([[0, 100], [300, 400]]) == [(0, 400)], (
        "twice as far apart as they are long"
    )
    assert group_recordings([[0, 100], [301, 400]]) == [(0, 100), (301, 400)]
    assert group_recordings([]) == []


def test_the_axis_by_hand() -> None:
    """Recordings of 1000 and 3000, and of 6000 ns: 10 µs in all, so that a break takes 300 ns."""
    cuts = TimeCuts.between([(0, 1_000), (HOUR, HOUR + 3_000), (2 * HOUR, 2 * HOUR + 6_000)])
    assert cuts.listed() == [
        [1_000, HOUR, 1_000, 1_300],
        [HOUR + 3_000, 2 * HOUR, 4_300, 4_600],
    ]
    times = np.array([-5, 0, 999, 1_000, HOUR // 2 + 500, HOUR, HOUR + 3_000, 2 * HOUR + 7_000])
    places = [-5, 0, 999, 1_000, 1_150, 1_300, 4_300, 11_600]
    assert cuts.position_of(times).tolist() == places


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_there_and_back(count: int) -> None:
    """Times within recordings return exactly, all keep their order, and breaks stay narrow."""
    source = np.random.default_rng(count)
    spans, low = [], -17
    for _ in range(count):
        high = low + int(source.integers(1_000, 10**9))
        spans.append((low, high))
        low = high + int(source.integers(10**10, 10**14))
    cuts = TimeCuts.between(spans)
    inside = np.concatenate([source.integers(a, b + 1, 50) for a, b in spans])
    assert cuts.time_at(cuts.position_of(inside)).tolist() == inside.tolist()
    anywhere = np.sort(source.integers(spans[0][0] - 99, spans[-1][1] + 99, 5_000))
    assert (np.diff(cuts.position_of(anywhere)) >= 0).all()
    recorded = sum(b - a for a, b in spans)
    ends = cuts.position_of(np.array([spans[0][0], spans[-1][1]]))
    assert ends[1] - ends[0] == recorded + (count - 1) * cuts.width
    assert (count - 1) * cuts.width <= 0.21 * recorded


def test_without_empty_time_nothing_moves() -> None:
    cuts = TimeCuts.between([(0, 10)])
    assert cuts.listed() == [] and cuts.position_of(np.array([3, 2**60])).tolist() == [3, 2**60]
