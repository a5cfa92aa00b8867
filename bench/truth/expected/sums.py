"""Sums, quantiles and unions, by plain loops."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

Row = dict[str, Any]
Rows = dict[tuple[Any, ...], Row]
Item = TypeVar("Item")


def group(items: Iterable[Item], key: Callable[[Item], Hashable]) -> dict[Any, list[Item]]:
    """Return the items by their key, in the order of their first."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, linearly interpolated."""
    ordered = sorted(values)
    nth = share * (len(ordered) - 1)
    low = int(nth)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (nth - low)


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of the population."""
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5)


def percent(part: float, all_time: float) -> float | None:
    return 100 * part / all_time if all_time else None


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what at least one span covers, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def length_of(spans: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


def clip(spans: Iterable[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """Return the spans cut at both ends of a window."""
    cut = [(max(start, low), min(end, high)) for start, end in spans]
    return [(start, end) for start, end in cut if start < end]
