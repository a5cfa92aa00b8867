"""Interval arithmetic, by hand and against a twin that counts every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.intervals import (
    ConcatenatedTimeline,
    Spans,
    clip_spans,
    find_gaps,
    intersect_spans,
    merge_spans,
    subtract_spans,
    sweep_spans,
    union_lengths,
)
from htk.base.columns.intervals import measure_covered as covered_until

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)).map(lambda p: (p[0], sum(p))))


def spans(pairs: Pairs) -> Spans:
    start, end = (np.array([p[k] for p in pairs], np.int64) for k in (0, 1))
    return merge_spans(start, end)


def points(pairs: Pairs) -> set[int]:
    """The nanoseconds covered, one by one."""
    return {t for a, b in pairs for t in range(a, b)}


def pairs(found: Spans) -> Pairs:
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def covered(found: Spans) -> set[int]:
    return points(pairs(found))


def test_by_hand() -> None:
    assert pairs(spans([(5, 8), (0, 3), (3, 4), (6, 7), (9, 9)])) == [(0, 4), (5, 8)]
    assert pairs(spans([])) == []
    assert pairs(find_gaps(spans([(2, 4), (6, 7)]), 0, 10)) == [(0, 2), (4, 6), (7, 10)]


@given(PAIRS, PAIRS)
def test_as_sets_of_nanoseconds(a: Pairs, b: Pairs) -> None:
    one, two = spans(a), spans(b)
    assert covered(one) == points(a)
    assert covered(subtract_spans(one, two)) == points(a) - points(b)
    assert covered(intersect_spans(one, two)) == points(a) & points(b)
    assert one.total == len(points(a))
    assert (one.start[1:] > one.end[:-1]).all(), "disjoint, in order, touching ones joined"


@given(PAIRS, PAIRS, PAIRS)
def test_a_sweep_says_what_is_on(a: Pairs, b: Pairs, c: Pairs) -> None:
    swept = sweep_spans([spans(a), spans(b), spans(c)])
    found = {}
    for start, end, on in zip(swept.start, swept.end, swept.on, strict=True):
        found.update(dict.fromkeys(range(start, end), on))
    sets = [points(p) for p in (a, b, c)]
    expected = {t: sum(1 << k for k, s in enumerate(sets) if t in s) for t in set().union(*sets)}
    assert found == expected


@given(PAIRS, st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True).map(sorted))
def test_clipped_pieces_are_what_lies_in_each_window(a: Pairs, edges: list[int]) -> None:
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    start, end = (np.array([p[k] for p in a], np.int64) for k in (0, 1))
    found = clip_spans(start, end, low, high)
    got = [points([(s, e)]) for s, e in zip(found.start.tolist(), found.end.tolist(), strict=True)]
    for row, window, piece in zip(found.row, found.window, got, strict=True):
        assert piece == points([a[row]]) & set(range(low[window], high[window]))
    assert sum(map(len, got)) == sum(len(points([p]) & set(range(edges[0], edges[-1]))) for p in a)


def test_windows_on_one_axis_do_not_touch() -> None:
    axis = ConcatenatedTimeline.from_bounds(np.array([100, 100]), np.array([110, 105]))
    window = np.array([0, 0, 1])
    start = axis.point(window, np.array([100, 108, 100]))
    end = axis.point(window, np.array([102, 110, 105]))
    found = merge_spans(start, end)
    assert axis.window(found.start).tolist() == [0, 0, 1]
    assert axis.measure(found).tolist() == [4, 5]


@given(PAIRS, st.lists(st.integers(-5, 60), max_size=8))
def test_how_much_lies_before_each_time(a: Pairs, times: list[int]) -> None:
    found = covered_until(spans(a), np.array(times, np.int64))
    assert found.tolist() == [sum(t < time for t in points(a)) for time in times]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(-2, 12)), max_size=12))
def test_the_union_of_each_group_has_its_length(rows: list[tuple[int, int, int]]) -> None:
    group, start, length = (np.array([row[k] for row in rows], np.int64) for k in range(3))
    found = union_lengths(group, start, start + length, 5)
    expected = [len(points([(s, s + n) for g, s, n in rows if g == k])) for k in range(5)]
    assert found.tolist() == expected


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(0, 9)), min_size=1, max_size=5))
def test_each_point_of_the_axis_is_a_time_of_its_window(windows: list[tuple[int, int]]) -> None:
    start = np.array([s for s, _ in windows])
    axis = ConcatenatedTimeline.from_bounds(start, start + [n for _, n in windows])
    window = np.repeat(np.arange(len(windows)), [n + 1 for _, n in windows])
    time = np.concatenate([np.arange(s, s + n + 1) for s, n in windows])
    point = axis.point(window, time)
    assert point.tolist() == list(range(len(point))), "one behind the other, none twice"
    assert axis.window(point).tolist() == window.tolist()
    assert axis.time(window, point).tolist() == time.tolist()
