"""Medians and percentiles of times that are not in memory together, exact to the nanosecond.

Times are counted in bins of 1/256 of their size; then those of the few bins that are asked for are
counted by value. Two passes over the blocks, and what comes back from them is small.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import Ints
from htk.quantities.straggler.program import Program

CountedValues = tuple[Ints, Ints]  # distinct values in order, and how often each is there
Counted = dict[int, CountedValues]  # by peers or label
Codes = Callable[[Program], Ints]  # peers or label of each operation
_SHIFT = 44  # bits of a double that do not count: eight of its fraction do


class TimedBlock(Protocol):
    """Operations of some steps, with the time that each takes by itself."""

    @property
    def program(self) -> Program: ...

    def durations(self, codes: Ints, code: int) -> Ints:
        """Return each operation's own time, in ns, of those with a code."""
        ...


def bins_of(times: Ints) -> Ints:
    """Return the bin of each time; a longer time is in the same bin or a later one."""
    size = np.abs(times).astype(np.float64).view(np.int64) >> _SHIFT
    return np.where(times < 0, -size, size)


def counted_bins(times: Ints) -> CountedValues:
    """Return the bins that hold times, and how many each holds."""
    bins = bins_of(times)
    low = int(bins.min(initial=0))
    counts = np.bincount(bins - low)
    filled = np.flatnonzero(counts)
    return filled + low, counts[filled]


@dataclass(frozen=True)
class CountedBins:
    """Counts a block's times in bins, by peers or label."""

    codes: Codes

    def __call__(self, block: TimedBlock) -> Counted:
        codes = self.codes(block.program)
        return {
            code: counted_bins(block.durations(codes, code)) for code in np.unique(codes).tolist()
        }


@dataclass(frozen=True)
class CountedTimes:
    """Counts a block's times by value, of chosen bins of each code."""

    codes: Codes
    bins: Mapping[int, Ints]

    def __call__(self, block: TimedBlock) -> Counted:
        codes = self.codes(block.program)
        counted: Counted = {}
        for code, wanted in self.bins.items():
            times = block.durations(codes, code)
            times = times[np.isin(bins_of(times), wanted)]
            counted[code] = np.unique(times, return_counts=True)
        return counted


def merge_counts(parts: Iterable[Counted]) -> Counted:
    """Return the counts of all blocks together."""
    by_code: dict[int, list[CountedValues]] = {}
    for part in parts:
        for code, counted in part.items():
            by_code.setdefault(code, []).append(counted)
    return {code: _add_counts(counted) for code, counted in by_code.items()}


def _add_counts(parts: list[CountedValues]) -> CountedValues:
    values, inverse = np.unique(np.concatenate([v for v, _ in parts]), return_inverse=True)
    counts = np.zeros(len(values), np.int64)
    np.add.at(counts, inverse, np.concatenate([c for _, c in parts]))
    return values, counts


def compute_quantiles(
    of_blocks: Callable[[Any], list[Any]],
    codes: Codes,
    bins: Iterable[Counted],
    shares: tuple[float, ...],
) -> dict[int, list[float]]:
    """Return quantiles of the times of each code, in ns, as NumPy interpolates them."""
    counted = merge_counts(bins)
    places = {
        code: _find_places(int(counts.sum()), shares) for code, (_, counts) in counted.items()
    }
    wanted = {
        code: values[np.unique(_find_positions(counts, places[code]))]
        for code, (values, counts) in counted.items()
    }
    times = merge_counts(of_blocks(CountedTimes(codes, wanted)))
    return {
        code: _interpolate_quantiles(counted[code], times[code], places[code], shares)
        for code in counted
    }


def compute_medians(
    of_blocks: Callable[[Any], list[Any]], codes: Codes, bins: Iterable[Counted]
) -> dict[int, float]:
    """Return the median time of each code, in ns."""
    return {
        code: values[0]
        for code, values in compute_quantiles(of_blocks, codes, bins, (0.5,)).items()
    }


def _find_places(count: int, shares: tuple[float, ...]) -> Ints:
    """Return which times, in their order, stand below and above each quantile."""
    below = np.floor((count - 1) * np.array(shares)).astype(np.int64)
    return np.stack([below, np.minimum(below + 1, count - 1)], axis=1).ravel()


def _find_positions(counts: Ints, places: Ints) -> NDArray[np.intp]:
    return np.searchsorted(np.cumsum(counts), places, side="right")


def _interpolate_quantiles(
    bins: CountedValues, times: CountedValues, places: Ints, shares: tuple[float, ...]
) -> list[float]:
    position = _find_positions(bins[1], places)
    before = np.cumsum(bins[1])[position] - bins[1][position]  # times of earlier bins
    bin_of_time = bins_of(times[0])
    upto = np.cumsum(times[1])
    first = np.searchsorted(bin_of_time, bins[0][position])
    earlier = upto[first] - times[1][first]  # of chosen bins before this one
    values = times[0][np.searchsorted(upto, places - before + earlier, side="right")]
    count = int(bins[1].sum())
    pairs = values.reshape(-1, 2).tolist()
    return [
        below + (above - below) * ((count - 1) * share - np.floor((count - 1) * share))
        for (below, above), share in zip(pairs, shares, strict=True)
    ]
