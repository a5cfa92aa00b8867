"""The order of rows: compiled, with NumPy, and as Python sorts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.order import break_ties, order_by, ordered_pure

# From one digit of the compiled sort to all, with both ends of what 64 bits hold.
_BOUNDS = [0, 1, 2_047, 2_048, 1 << 22, (1 << 32) - 1, 1 << 32, 1 << 44, 1 << 62]
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


def _python(*columns: np.ndarray) -> list[int]:
    keys = list(zip(*(c.tolist() for c in columns), strict=True))
    return sorted(range(len(keys)), key=keys.__getitem__)


@given(st.integers(0, 1 << 32), st.sampled_from(_BOUNDS), st.booleans())
def test_as_python_sorts(seed: int, bound: int, nearly: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2_000, 2_600))
    values = rng.integers(-bound, bound + 1, rows)
    if nearly:  # neighbours in the wrong order
        values = np.sort(values)
        swapped = rng.integers(0, rows - 1, 40)
        values[swapped], values[swapped + 1] = values[swapped + 1], values[swapped]
    few = rng.integers(0, 7, rows)
    assert order_by(values).tolist() == ordered_pure(values).tolist() == _python(values)
    of_two = order_by(few, values).tolist()
    assert of_two == ordered_pure(few, values).tolist() == _python(few, values)


@given(st.integers(0, 1 << 32), st.integers(0, 3), st.booleans())
def test_rows_that_are_in_order_by_the_last_columns(seed: int, known: int, nearly: bool) -> None:
    """Also where only the last rows, or only ties, are not."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(2_000, 2_600))
    columns = [rng.integers(0, bound, rows) for bound in (4, 3, 30, 9)]
    order = np.lexsort(columns[:known:-1]) if known < 3 else np.arange(rows)
    columns = [columns[0], *(column[order] for column in columns[1:])]
    if nearly:
        columns[int(rng.integers(4))][-1] = -1
    assert order_by(*columns).tolist() == ordered_pure(*columns).tolist() == _python(*columns)


def test_the_widest_values() -> None:
    values = np.tile(np.array([_HIGHEST, 0, _LOWEST, -1, 1]), 500)
    assert order_by(values).tolist() == _python(values)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.uint64, np.float64, np.bool_])
def test_other_types(dtype: type) -> None:
    values = np.random.default_rng(3).integers(0, 2, 3_000).astype(dtype)
    assert order_by(values).tolist() == _python(values)


def test_columns_that_lie_apart() -> None:
    matrix = np.random.default_rng(4).integers(0, 9, (3_000, 2))
    assert order_by(matrix[:, 1], matrix[:, 0]).tolist() == _python(matrix[:, 1], matrix[:, 0])


@pytest.mark.parametrize("bound", [1, 3, 400, 1 << 40])
@pytest.mark.parametrize("rows", [0, 1, 3_000])
def test_ties_are_broken_by_the_last_column(rows: int, bound: int) -> None:
    rng = np.random.default_rng(bound)
    first, second, last = rng.integers(0, bound, (3, rows))
    order = order_by(first, second)
    break_ties(order, (first, second), last)
    assert order.tolist() == _python(first, second, last)


def test_rows_without_a_key_are_refused() -> None:
    compiled = pytest.importorskip("htk.base.native._order", reason="not built with a compiler")
    with pytest.raises(IndexError, match="a row that has no key"):
        compiled.reorder(np.arange(3), np.array([0, 1, 3]))
    with pytest.raises(ValueError, match="64-bit integers expected"):
        compiled.reorder(np.arange(3, dtype=np.int32), np.arange(3))
