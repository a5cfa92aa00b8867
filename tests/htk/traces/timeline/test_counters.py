"""Counters as rows: their bounds in each cell against looking at every moment."""

import numpy as np
import pytest

from htk.traces.timeline.counters import Counter, counter_lanes, describe_counters
from htk.traces.timeline.lanes import Lane, Lanes


def counter(seed: int, count: int, rank: int = 0, name: str = "memory allocated") -> Counter:
    source = np.random.default_rng(seed)
    time = np.sort(source.choice(1_000, count, replace=False)).astype(np.int64)
    value = source.integers(-20, 100, count).astype(float)
    value[source.random(count) < 0.1] = np.nan
    return Counter(rank, "memory", name, "bytes", time, value)


@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_every_value_of_a_cell(seed: int) -> None:
    """What holds at the cell's beginning counts, and all that it changes to up to its end."""
    own = counter(seed, 40)
    edges = np.unique(np.random.default_rng(seed + 99).integers(-50, 1_050, 30)).astype(np.int64)
    low, high = own.bounds(edges)
    for k in range(len(edges) - 1):
        before = [v for t, v in zip(own.time, own.value, strict=True) if t <= edges[k]][-1:]
        within = [
            v for t, v in zip(own.time, own.value, strict=True) if edges[k] < t <= edges[k + 1]
        ]
        values = [v for v in [*before, *within] if not np.isnan(v)]
        if values:
            assert (low[k], high[k]) == (min(values), max(values))
        else:
            assert np.isnan(low[k]) and np.isnan(high[k])


def test_a_counter_with_fewer_points_keeps_its_extremes() -> None:
    own = counter(3, 900)
    few = own.reduced(90)
    assert 30 <= (~np.isnan(few.value)).sum() <= 90 and (np.diff(few.time) > 0).all()
    assert np.isnan(few.value).sum() == np.isnan(own.value).sum() > 20
    edges = np.array([-1, 1_001])
    assert few.bounds(edges) == own.bounds(edges)
    kept = np.isin(own.time, few.time)
    assert np.array_equal(own.value[kept], few.value, equal_nan=True), "values at their own times"
    assert own.reduced(900) is own


def test_each_counter_has_a_lane_and_spans_keep_theirs() -> None:
    """Counters stand below a rank's groups and above its threads; one scale holds for all ranks."""
    sections = [(0, "streams"), (0, "groups"), (0, "threads"), (1, "streams")]
    before = [Lane(rank, section, section, 0) for rank, section in sections]
    lane = np.array([0, 2, 2, 3, 1], np.int64)
    none = np.zeros(5, np.int64)
    lanes = Lanes(before, lane, none, ["a"], np.zeros(1, np.uint8), none, none, none, none)
    one, other = counter(1, 20, 0), counter(2, 20, 1)
    second = counter(4, 20, 0, "memory reserved")
    counters = [one, second, other]
    moved, places = lanes.with_added(counter_lanes(counters))
    of_lane = dict(zip(places, counters, strict=True))
    assert [(x.rank, x.section, x.depth) for x in moved.lanes] == [
        (0, "streams", 0), (0, "groups", 0), (0, "counters", 0), (0, "counters", 1),
        (0, "threads", 0), (1, "streams", 0), (1, "counters", 0),
    ]  # fmt: skip
    assert [moved.lanes[k] for k in moved.lane] == [before[k] for k in lane]
    assert of_lane == {2: one, 3: second, 6: other}
    scales = {d["lane"]: (d["low"], d["high"]) for d in describe_counters(of_lane)}
    values = np.concatenate([one.value, other.value])
    assert scales[2] == scales[6] == (min(0, np.nanmin(values)), np.nanmax(values))
