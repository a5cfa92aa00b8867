"""The compiled loop of the replay (native/replay.cpp)."""

from numpy import int64
from numpy.typing import NDArray

def longest(
    time: NDArray[int64], src: NDArray[int64], dst: NDArray[int64], weight: NDArray[int64]
) -> None:
    """Raise each head to its tail plus the weight, edge by edge, in place."""
