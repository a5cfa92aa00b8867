"""Rows that name none, and what stands for them."""

import numpy as np

from htk.base.columns.types import NONE, fill_none, take_or


def test_rows_that_name_none() -> None:
    rows = fill_none(3)
    assert rows.dtype == np.int64
    assert rows.tolist() == [-1, -1, -1]


def test_no_rows() -> None:
    assert fill_none(0).tolist() == []


def test_takes_what_stands_for_none() -> None:
    values = np.array([10, 20, 30])
    assert take_or(values, np.array([2, NONE, 0]), 7).tolist() == [30, 7, 10]


def test_takes_none_unless_told() -> None:
    assert take_or(np.array([10, 20]), np.array([NONE, 1])).tolist() == [-1, 20]


def test_takes_from_nothing() -> None:
    assert take_or(np.array([], np.int64), np.array([NONE]), 5).tolist() == [5]
