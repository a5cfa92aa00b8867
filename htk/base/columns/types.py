"""Types of columns as NumPy holds them, and the row number that means none."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NONE = -1  # no row, no rank, no step
NO_TIME = -(1 << 62)  # a time that was not recorded; those of a recording lie within ±2^61 ns


def fill_none(rows: int) -> Ints:
    """Return as many rows, none of which names another."""
    return np.full(rows, NONE, np.int64)


def take_or(values: NDArray[Any], rows: NDArray[Any], otherwise: Any = NONE) -> NDArray[Any]:
    """Return the values of the rows, and for a row that is none what is given instead.

    >>> take_or(np.array([10, 20, 30]), np.array([2, NONE, 0])).tolist()
    [30, -1, 10]
    """
    taken: NDArray[Any] = np.append(values, otherwise)[rows]
    return taken
