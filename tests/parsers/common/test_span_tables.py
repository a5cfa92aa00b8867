"""Columns that several formats fill alike."""

import numpy as np
import pyarrow as pa
import pytest

from htk.parsers.common.span_tables import build_optional, int_texts, spell_dimensions

LIMITS = [-(2**31) - 1, -(2**31), -1, 0, 2**31 - 1, 2**31]


def test_what_does_not_fit_or_is_not_known_is_null() -> None:
    values, known = np.array([*LIMITS, 7]), np.array([True] * len(LIMITS) + [False])
    narrow = build_optional(values, known, pa.int32())
    assert narrow.type == pa.int32()
    assert narrow.to_pylist() == [None, -(2**31), -1, 0, 2**31 - 1, None, None]
    assert build_optional(values, known).to_pylist() == [*LIMITS, None]


def test_numbers_as_texts() -> None:
    found = int_texts(np.array([7, -1, 7, 10**12]))
    assert found.to_pylist() == ["7", "-1", "7", "1000000000000"]


@pytest.mark.parametrize("rows", [0, 3])
def test_grids_as_compact_json(rows: int) -> None:
    columns = [np.array([1, 2, 1][:rows]), np.array([3, 4, 3][:rows]), np.array([5, 6, 7][:rows])]
    assert spell_dimensions(columns).to_pylist() == ["[1,3,5]", "[2,4,6]", "[1,3,7]"][:rows]
