"""The compiled loop of the replay (native/replay.cpp)."""

from numpy import int64
from numpy.typing import NDArray

def longest(
    time: NDArray[int64], src: NDArray[int64], dst: NDArray[int64], weight: NDArray[int64]
) -> None:
    """Raise each head to its tail plus the weight, edge by edge, in place."""

_Ints = NDArray[int64]

def critical(time: _Ints, src: _Ints, dst: _Ints, weight: _Ints, node: int, path: _Ints) -> int:
    """Write the edges that bound a node, last to first; return how many there are."""

def repeated(
    graph: tuple[_Ints, ...],
    wrap_seen: _Ints,
    low: int,
    passes: int,
    steady: float,
    first: _Ints,
    again: _Ints,
) -> tuple[int, int, int]:
    """Repeat a step until its period is steady: the first end, the period, the last end.

    `graph`: pinned times, tails, heads, ends, tails and heads of wraps, weights, weights of wraps.
    """

def repeated_beside(
    graph: tuple[_Ints, ...], wrap_seen: _Ints, low: int, passes: int, steady: float, more: _Ints
) -> tuple[int, int]:
    """Return the periods with more and with less than the weights."""
