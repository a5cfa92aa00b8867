"""Running maxima and look-ups by segment, against twins that walk row by row."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.groups import Groups, pair_columns, row_of, split_pairs
from htk.base.columns.intervals import union_lengths
from htk.base.columns.segments import SegmentTimes, mark_heads, repeat_rows, running_max
from htk.base.columns.types import NONE

# Sane clocks, boot-relative ones, stray zeros, and the farthest times that are read at all.
TIMES = st.one_of(
    st.integers(0, 60),
    st.integers(1_700_000_000_000_000_000, 1_700_000_000_000_000_060),
    st.integers(-(1 << 61), 1 << 61),
    st.sampled_from([0, 1 << 60, -(1 << 60), 1 << 61, -(1 << 61)]),
)
ROWS = st.lists(st.tuples(st.integers(0, 9), TIMES), max_size=60)


def columns(rows: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([segment for segment, _ in rows], np.int64),
        np.array([time for _, time in rows], np.int64),
    )


@given(ROWS)
def test_running_max_is_that_of_each_segment(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    segment, time = columns(rows)
    expected = [max(t for s, t in rows[: k + 1] if s == rows[k][0]) for k in range(len(rows))]
    assert running_max(mark_heads(segment), time).tolist() == expected


@given(ROWS, ROWS)
def test_the_last_row_of_a_segment_up_to_a_time(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    segment, time = columns(rows)
    last = SegmentTimes(segment, time).last(*columns(wanted))
    for row, (of, until) in zip(last.tolist(), wanted, strict=True):
        before = [t for s, t in rows if s == of and t <= until]
        assert (row == NONE) == (not before)
        assert row == NONE or (rows[row][0], rows[row][1]) == (of, max(before))


@given(ROWS, ROWS)
def test_the_next_time_of_a_segment(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    never = 1 << 62
    times = SegmentTimes(*columns(rows)).next_time(*columns(wanted), never)
    expected = [min([t for s, t in rows if s == of and t > at] or [never]) for of, at in wanted]
    assert times.tolist() == expected


def test_many_segments_are_searched_as_few_are() -> None:
    draw = np.random.default_rng(1)
    segment, time = draw.integers(0, 3000, 9000), draw.integers(0, 50, 9000)
    wanted, at = draw.integers(-5, 3005, 4000), draw.integers(-5, 55, 4000)
    begin, after = SegmentTimes(segment, time).count_until(wanted, at)
    expected = [int(((segment == s) & (time <= t)).sum()) for s, t in zip(wanted, at, strict=True)]
    assert (after - begin).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), TIMES, st.integers(0, 1 << 62)), max_size=30))
def test_union_lengths_of_groups_on_clocks_far_apart(rows: list[tuple[int, int, int]]) -> None:
    spans = [(g, start, min(start + length, 1 << 61)) for g, start, length in rows]
    group, start, end = (np.array([s[k] for s in spans], np.int64) for k in range(3))
    expected = []
    for wanted in range(5):
        total, reach = 0, -(1 << 62)
        for _, begin, stop in sorted(s for s in spans if s[0] == wanted):
            total += max(stop - max(begin, reach), 0)
            reach = max(reach, stop)
        expected.append(total)
    assert union_lengths(group, start, end, 5).tolist() == expected


@given(st.lists(st.tuples(*[st.integers(-(1 << 63), (1 << 63) - 1)] * 3), max_size=40))
def test_groups_of_columns_that_fill_all_their_bits(rows: list[tuple[int, ...]]) -> None:
    rows = rows + rows[: len(rows) // 2]
    keys = np.array(rows, np.int64).reshape(-1, 3)
    groups = Groups.by_keys(keys)
    assert groups.keys.tolist() == [list(r) for r in sorted(set(rows))]
    assert [tuple(groups.keys[g].tolist()) for g in groups.group_ids] == rows
    assert row_of(keys, keys[::-1]).tolist() == [rows.index(r) for r in reversed(rows)]


@given(st.lists(st.tuples(*[st.integers(-(1 << 31), (1 << 31) - 1)] * 2), max_size=40))
def test_two_columns_of_32_bits_in_one(pairs: list[tuple[int, int]]) -> None:
    high, low = columns(pairs)
    packed = pair_columns(high.astype(np.int32), low.astype(np.int32))
    assert [tuple(p) for p in zip(*(c.tolist() for c in split_pairs(packed)), strict=True)] == pairs


def test_rows_are_repeated_as_often_as_counted() -> None:
    row, nth = repeat_rows(np.array([2, 0, 3, 1]))
    assert row.tolist() == [0, 0, 2, 2, 2, 3] and nth.tolist() == [0, 1, 0, 1, 2, 0]
    assert not len(repeat_rows(np.zeros(4, np.int64))[0])
