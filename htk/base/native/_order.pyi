"""The compiled order of rows (native/order.cpp)."""

from numpy import int64
from numpy.typing import NDArray

def reorder(keys: NDArray[int64], rows: NDArray[int64]) -> None:
    """Sort rows by their keys, in place; equal ones stay in order."""
