"""The compiled replay through the caching allocator (native/allocator.cpp)."""

from numpy import int64
from numpy.typing import NDArray

def replay(
    rest: int,
    segments: NDArray[int64],
    before: NDArray[int64],
    keys: NDArray[int64],
    sizes: NDArray[int64],
    count: int,
    capacity: int,
    max_split: int,
) -> tuple[int, int, int, int, int, int, int]:
    """Return the figures of htk.physics.allocator_replay.AllocatorFigures; limits below 0: none."""
