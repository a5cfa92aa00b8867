"""Rows grouped by a key, and what can be said of each group: vectorised, exact on integers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.columns.arrow import numbers
from htk.columns.types import NONE, Floats, Ints

_WIDEST = 1 << 62  # what one number may hold


@dataclass(frozen=True)
class Groups:
    """Which group each row is in; groups are in the order of their keys."""

    keys: Ints  # a row for each group
    group_ids: Ints  # group of each row
    first_row: Ints  # first row of each group

    @classmethod
    def by_keys(cls, keys: NDArray[np.integer[Any]]) -> "Groups":
        """Group rows by one column of keys, or several (a column each)."""
        columns = (keys if keys.ndim == 2 else keys[:, None]).astype(np.int64, copy=False)
        if not len(columns):
            return cls(columns, np.empty(0, np.int64), np.empty(0, np.int64))
        distinct, group_ids = numbered(_flat(columns))
        first = np.empty(len(distinct), np.int64)
        rows = np.arange(len(group_ids))
        first[group_ids[::-1]] = rows[::-1]  # the last one written is the first
        return cls(columns[first], group_ids, first)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def count(self) -> Ints:
        return np.bincount(self.group_ids, minlength=len(self)).astype(np.int64)

    @cached_property
    def _narrow(self) -> NDArray[np.integer[Any]]:
        """Group of each row: what fits 16 bits is sorted by its digits, in a fifth of the time."""
        return self.group_ids.astype(np.uint16) if len(self) <= 1 << 16 else self.group_ids

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self._narrow, kind="stable")

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

    def distinct(self, values: Ints) -> Ints:
        """Return how many different values each group has."""
        pairs = Groups.by_keys(np.column_stack([self.group_ids, values]))
        return np.bincount(pairs.keys[:, 0], minlength=len(self)).astype(np.int64)

    def rank_within(self, *by: Ints | Floats) -> Ints:
        """Place of each row in its group, from 0: by these values, the first before the others."""
        order = np.lexsort((*by[::-1], self._narrow))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order)) - self._starts[self.group_ids[order]]
        return ranks

    def running(self, values: Ints) -> Ints:
        """Return the sum of each group up to each row, in the order of rows."""
        sums = np.cumsum(values[self._order])
        before = np.append(0, sums)[self._starts]
        running_sums = np.empty(len(values), np.int64)
        running_sums[self._order] = sums - before[self.group_ids[self._order]]
        return running_sums

    def std(self, values: Ints) -> Floats:
        """Standard deviation of the population; centred first, so that it loses no digits."""
        mean = self.sum(values) / np.maximum(self.count, 1)
        off = (values - mean[self.group_ids]) ** 2
        total = np.bincount(self.group_ids, off, minlength=len(self))
        return np.sqrt(total / np.maximum(self.count, 1))

    def quantiles(self, values: Ints | Floats, shares: Sequence[float]) -> list[Floats]:
        """Quantiles, linearly interpolated."""
        ordered = values[np.lexsort((values, self._narrow))]
        quantiles = []
        for q in shares:
            position = q * (self.count - 1)  # within the group: the same wherever its rows lie
            below = np.floor(position).astype(np.int64)
            low = self._starts + below
            high = np.minimum(low + 1, self._starts + self.count - 1)
            quantiles.append(ordered[low] + (position - below) * (ordered[high] - ordered[low]))
        return quantiles


def rows_by_number(values: Ints) -> Callable[[int], Ints]:
    """Return a function that returns the rows of a number, in order; sorts once for all numbers."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]

    def rows(value: int) -> Ints:
        first, last = (np.searchsorted(ordered, value, side) for side in ("left", "right"))
        return order[first:last]

    return rows


def row_of(keys: Ints, wanted: Ints) -> Ints:
    """Return the row of `keys` that each wanted key is (-1: none); of several the first."""
    group_ids = Groups.by_keys(np.concatenate([keys, wanted])).group_ids
    row = np.full(int(group_ids.max(initial=-1)) + 1, -1, np.int64)
    row[group_ids[: len(keys)][::-1]] = np.arange(len(keys))[::-1]  # the last one written stays
    return np.asarray(row[group_ids[len(keys) :]])


def quotient(part: NDArray[Any], total: Ints) -> Floats:
    """part/whole; 0 where there is no whole."""
    return np.asarray(np.divide(part, total, out=np.zeros(len(total)), where=total > 0))


def numbered(values: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Return the distinct values in their order, and the place of each row's value among them.

    As np.unique has it; values that lie close together need no sorting.
    """
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span > 4 * len(values) + 4096:
        distinct, numbers_of_rows = np.unique(values, return_inverse=True)
        return distinct.astype(np.int64), numbers_of_rows.ravel()
    offset = values.astype(np.int64, copy=False) - low
    there = np.zeros(span, bool)
    there[offset] = True
    return np.flatnonzero(there) + low, (np.cumsum(there) - 1)[offset]


def _flat(columns: Ints) -> Ints:
    """Return one number for each row that sorts as its columns do, the first before the others."""
    flat, width = np.zeros(len(columns), np.int64), 1
    for column in columns.T:
        low, high = int(column.min()), int(column.max())
        if width * (high - low + 1) >= _WIDEST:  # the numbers in use, not the range that they span
            distinct, flat = numbered(flat)
            width = len(distinct)
            distinct, column = numbered(column)
            low, high = 0, len(distinct) - 1
        flat = flat * (high - low + 1) + (column - low)
        width *= high - low + 1
    return flat


def event_keys(table: pa.Table) -> Ints:
    """Return rank, cycle and event of each row, which name an event in every table."""
    columns = (numbers(table[c], NONE) for c in ("rank", "cycle", "event"))
    return np.column_stack([column.astype(np.int64) for column in columns])


def hosts(table: pa.Table) -> Ints:
    """Return one number for each (rank, cycle), the same in every table."""
    return paired(numbers(table["rank"], NONE), numbers(table["cycle"], 0))


def paired(high: NDArray[np.integer[Any]], low: NDArray[np.integer[Any]]) -> Ints:
    """Return two columns of 32 bits as one of 64, which holds them exactly; -1 stays apart."""
    return np.asarray((high.astype(np.int64) << 32) | (low.astype(np.int64) & 0xFFFFFFFF))


def unpaired(pairs: Ints) -> tuple[Ints, Ints]:
    """Return the two columns that `paired` put together."""
    return pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.uint32).view(np.int32).astype(np.int64)
