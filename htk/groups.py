"""Rows grouped by a key, and what can be said of each group: vectorised, exact on integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Groups:
    """Which group each row is in; groups are in the order of their keys."""

    keys: Ints  # a row for each group
    which: Ints  # group of each row
    first: Ints  # first row of each group

    @classmethod
    def of(cls, keys: NDArray[np.integer[Any]]) -> "Groups":
        """Group rows by one column of keys, or several (a column each)."""
        columns = (keys if keys.ndim == 2 else keys[:, None]).astype(np.int64, copy=False)
        if not len(columns):
            return cls(columns, np.empty(0, np.int64), np.empty(0, np.int64))
        flat = _flat(columns)
        _, first, which = np.unique(flat, return_index=True, return_inverse=True)
        return cls(columns[first], which.ravel(), first)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def count(self) -> Ints:
        return np.bincount(self.which, minlength=len(self)).astype(np.int64)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.which, kind="stable")

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum(self.count) - self.count

    def sum(self, values: Ints) -> Ints:
        if not len(self):
            return np.empty(0, np.int64)
        return np.asarray(np.add.reduceat(values[self._order], self._starts))

    def min(self, values: Ints) -> Ints:
        if not len(self):
            return np.empty(0, np.int64)
        return np.asarray(np.minimum.reduceat(values[self._order], self._starts))

    def max(self, values: Ints) -> Ints:
        if not len(self):
            return np.empty(0, np.int64)
        return np.asarray(np.maximum.reduceat(values[self._order], self._starts))

    def std(self, values: Ints) -> Floats:
        """Standard deviation of the population; centred first, so that it loses no digits."""
        mean = self.sum(values) / np.maximum(self.count, 1)
        off = (values - mean[self.which]) ** 2
        total = np.bincount(self.which, off, minlength=len(self))
        return np.sqrt(total / np.maximum(self.count, 1))

    def quantiles(self, values: Ints | Floats, at: Sequence[float]) -> list[Floats]:
        """Quantiles, linearly interpolated."""
        ordered = values[np.lexsort((values, self.which))]
        found = []
        for q in at:
            place = self._starts + q * (self.count - 1)
            low = np.floor(place).astype(np.int64)
            high = np.minimum(low + 1, self._starts + self.count - 1)
            found.append(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
        return found


def _flat(columns: Ints) -> Ints:
    """Several columns as one number that sorts alike."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    span = (high - low + 1).astype(object)
    if int(np.prod(span)) >= 2**62:  # too wide for one number: number the distinct rows instead
        return np.unique(columns, axis=0, return_inverse=True)[1].ravel()
    flat = np.zeros(len(columns), np.int64)
    for k in range(columns.shape[1]):
        flat = flat * int(span[k]) + (columns[:, k] - low[k])
    return flat
