"""What lies beside what at the times of a replay, compiled (native/overlaps.cpp)."""

from numpy import float64, int64
from numpy.typing import NDArray

_Ints = NDArray[int64]

def busy(
    time: _Ints,
    first_start: _Ints,
    first_end: _Ints,
    second_start: _Ints,
    second_end: _Ints,
    third_start: _Ints,
    third_end: _Ints,
) -> tuple[int, int, int]:
    """Return how long the first of three sets is on, any of two, any of three."""

def beside(
    time: _Ints,
    start: _Ints,
    end: _Ints,
    other_start: _Ints,
    other_end: _Ints,
    share: NDArray[float64],
) -> None:
    """Write the share of each span that others cover."""
