"""Groups against plain dictionaries."""

import statistics
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.groups import Groups, divide_or_nan, number_values, row_of, rows_by_number

ROWS = st.lists(
    st.tuples(st.integers(-3, 3), st.sampled_from([0, 5, 2**40]), st.integers(-1000, 1000)),
    min_size=1,
    max_size=40,
)


@given(ROWS)
def test_against_a_plain_twin(rows: list[tuple[int, int, int]]) -> None:
    table = np.array(rows, np.int64)
    groups, values = Groups.by_keys(table[:, :2]), table[:, 2]
    plain: dict[tuple[int, int], list[int]] = defaultdict(list)
    for a, b, value in rows:
        plain[a, b].append(value)
    assert [tuple(k) for k in groups.keys.tolist()] == sorted(plain)
    lists = [plain[key] for key in sorted(plain)]
    assert groups.count.tolist() == [len(x) for x in lists]
    assert groups.sum(values).tolist() == [sum(x) for x in lists]
    assert groups.min(values).tolist() == [min(x) for x in lists]
    assert groups.max(values).tolist() == [max(x) for x in lists]
    assert groups.std(values).tolist() == pytest.approx([statistics.pstdev(x) for x in lists])
    (p25,) = groups.quantiles(values, (0.25,))
    assert p25.tolist() == pytest.approx([np.quantile(x, 0.25) for x in lists])
    assert [rows[k][:2] for k in groups.first_row.tolist()] == sorted(plain)


@given(st.lists(st.integers(-2, 3), max_size=30))
def test_rows_by_number(values: list[int]) -> None:
    rows = rows_by_number(np.array(values, np.int64))
    for value in range(-3, 5):
        assert rows(value).tolist() == [k for k, v in enumerate(values) if v == value]


def test_keys_too_wide_for_one_number() -> None:
    keys = np.array([[2**62, -(2**62)], [0, 5], [2**62, -(2**62)], [0, 4]], np.int64)
    groups = Groups.by_keys(keys)
    assert groups.keys.tolist() == [[0, 4], [0, 5], [2**62, -(2**62)]]
    assert groups.group_ids.tolist() == [2, 1, 2, 0]


def test_sums_are_exact() -> None:
    values = np.array([2**60 + 1, 2**60 + 2], np.int64)
    assert Groups.by_keys(np.zeros(2, np.int64)).sum(values).tolist() == [2**61 + 3]


def test_no_rows() -> None:
    groups = Groups.by_keys(np.empty((0, 2), np.int64))
    nothing = np.empty(0, np.int64)
    assert len(groups) == 0
    assert groups.sum(nothing).tolist() == groups.max(nothing).tolist() == []
    assert [q.tolist() for q in groups.quantiles(nothing, (0.5,))] == [[]]


def test_what_is_told_of_rows_and_groups() -> None:
    groups = Groups.by_keys(np.array([7, 3, 7, 7, 3], np.int64))
    values = np.array([5, 1, 2, 5, 9], np.int64)
    assert groups.distinct(values).tolist() == [2, 2]
    assert groups.running(values).tolist() == [5, 1, 7, 12, 10]
    assert groups.rank_within(values).tolist() == [1, 0, 0, 2, 1]
    assert groups.rank_within(values, np.array([1, 0, 0, 0, 0])).tolist() == [2, 0, 0, 1, 1]


def test_the_row_of_a_key_is_its_first() -> None:
    keys = np.array([[1, 2], [3, 4], [1, 2]], np.int64)
    wanted = np.array([[3, 4], [1, 2], [2, 1]], np.int64)
    assert row_of(keys, wanted).tolist() == [1, 0, -1]
    assert row_of(keys[:0], wanted).tolist() == [-1, -1, -1]
    assert row_of(keys, wanted[:0]).tolist() == []


@given(st.lists(st.one_of(st.integers(-9, 9), st.integers(-(2**62), 2**62)), max_size=30))
def test_numbered_as_if_sorted(values: list[int]) -> None:
    distinct, which = number_values(np.array(values, np.int64))
    assert distinct.tolist() == sorted(set(values))
    assert distinct[which].tolist() == values


def test_no_part_of_nothing() -> None:
    assert divide_or_nan(np.array([3, 3]), np.array([4, 0])).tolist() == [0.75, 0.0]


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float64])
def test_values_of_other_types(dtype: type) -> None:
    values = np.array([1, 0, 1, 1, 0], dtype)
    groups = Groups.by_keys(np.array([7, 7, 3, 3, 9]))
    if dtype is not np.bool_:  # of truths NumPy asks whether there is one
        assert groups.sum(values).tolist() == [2, 1, 0]
    assert groups.min(values).tolist() == [1, 0, 0]
    assert groups.max(values).tolist() == [1, 1, 0]


def test_a_groups_first_value_counts_once() -> None:
    values = np.array([5, -2, 4])
    groups = Groups.by_keys(np.array([0, 0, 1]))
    assert groups.sum(values).tolist() == [3, 4] and values.tolist() == [5, -2, 4]
    assert groups.max(values).tolist() == [5, 4] and groups.min(values).tolist() == [-2, 4]
    assert values.tolist() == [5, -2, 4]
