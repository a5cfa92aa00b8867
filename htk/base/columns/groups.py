"""Rows grouped by a key, and what can be said of each group: vectorised, exact on integers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import read_numbers
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints

_WIDEST = 1 << 62  # what one number may hold
# One column, several in a list, or a matrix with a column each; a list may hold matrices too.
Keys = NDArray[np.integer[Any]] | Sequence[NDArray[Any]]


@dataclass(frozen=True)
class Groups:
    """Which group each row is in; groups are in the order of their keys."""

    keys: Ints  # a row for each group
    group_ids: Ints  # group of each row
    first_row: Ints  # first row of each group

    @classmethod
    def by_keys(cls, keys: Keys) -> "Groups":
        """Group rows by their keys."""
        columns = _list_columns(keys)
        rows = len(keys if isinstance(keys, np.ndarray) else keys[0])
        if not rows:
            none = np.empty(0, np.int64)
            return cls(np.empty((0, len(columns)), np.int64), none, none)
        flat, width = _flatten_keys(columns, rows)
        group_ids = _numbered_below(width, flat)[1]
        groups = int(group_ids.max()) + 1
        first = np.empty(groups, np.int64)
        first[group_ids[::-1]] = np.arange(rows - 1, -1, -1)  # the last one written is the first
        firsts = np.array([column[first] for column in columns], np.int64)
        return cls(firsts.reshape(len(columns), groups).T, group_ids, first)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def count(self) -> Ints:
        return np.bincount(self.group_ids, minlength=len(self)).astype(np.int64)

    @cached_property
    def _order(self) -> Ints:
        return order_by(self.group_ids)

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum(self.count) - self.count

    def sum(self, values: Ints) -> Ints:
        return self._fold_groups(np.add, values, np.zeros(len(self), np.int64))

    def min(self, values: Ints) -> Ints:
        return self._fold_groups(np.minimum, values, values[self.first_row])

    def max(self, values: Ints) -> Ints:
        return self._fold_groups(np.maximum, values, values[self.first_row])

    def _fold_groups(self, how: np.ufunc, values: Ints, begun: Ints) -> Ints:
        """Fold the values of each group into what it begins with, row by row: integers give the
        same in any order. Others are put in order first."""
        if not len(self):
            return np.empty(0, np.int64)
        if values.dtype != np.int64:
            return np.asarray(how.reduceat(values[self._order], self._starts))
        how.at(begun, self.group_ids, values)
        return begun

    def distinct(self, values: Ints) -> Ints:
        """Return how many different values each group has."""
        pairs = Groups.by_keys([self.group_ids, values])
        return np.bincount(pairs.keys[:, 0], minlength=len(self)).astype(np.int64)

    def rank_within(self, *by: Ints | Floats) -> Ints:
        """Place of each row in its group, from 0: by these values, the first before the others."""
        order = order_by(self.group_ids, *by)
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
        in_order = values[order_by(self.group_ids, values)]
        quantiles = []
        for q in shares:
            position = q * (self.count - 1)  # within the group: the same wherever its rows lie
            below = np.floor(position).astype(np.int64)
            low = self._starts + below
            high = np.minimum(low + 1, self._starts + self.count - 1)
            quantiles.append(in_order[low] + (position - below) * (in_order[high] - in_order[low]))
        return quantiles

    def lower_medians(self, values: Ints | Floats) -> NDArray[Any]:
        """Return the median of each group; of an even number the lower of the middle two."""
        in_order = values[order_by(self.group_ids, values)]
        return np.asarray(in_order[self._starts + (self.count - 1) // 2])


def rows_by_number(values: Ints) -> Callable[[int], Ints]:
    """Return a function that returns the rows of a number, in order; sorts once for all numbers."""
    order = order_by(values)
    in_order = values[order]

    def find_rows(value: int) -> Ints:
        first = np.searchsorted(in_order, value, "left")
        last = np.searchsorted(in_order, value, "right")
        return order[first:last]

    return find_rows


def row_of(keys: Keys, wanted: Keys) -> Ints:
    """Return the row of `keys` that each wanted key is (-1: none); of several the first."""
    columns = zip(_list_columns(keys), _list_columns(wanted), strict=True)
    both = Groups.by_keys([np.concatenate(pair) for pair in columns])
    rows = len(keys if isinstance(keys, np.ndarray) else keys[0])
    first = np.append(both.first_row, -1)
    return np.where(first < rows, first, -1)[both.group_ids[rows:]]


def divide_or_nan(part: NDArray[Any], total: Ints | Floats) -> Floats:
    """part/whole; 0 where there is no whole."""
    return np.asarray(np.divide(part, total, out=np.zeros(len(total)), where=total > 0))


def weighted_median(values: Floats, weights: Floats) -> float:
    """Return the value up to which half of the weight lies."""
    order = order_by(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def number_values(values: NDArray[np.integer[Any]]) -> tuple[Ints, Ints]:
    """Return the distinct values in their order, and the place of each row's value among them.

    As np.unique has it; values that lie close together need no sorting.
    """
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low = int(values.min())
    span = int(values.max()) - low + 1
    if span >= _WIDEST:
        return _sorted_apart(values.astype(np.int64, copy=False))
    distinct, group_ids = _numbered_below(span, values.astype(np.int64, copy=False) - low)
    return distinct + low, group_ids


def _numbered_below(bound: int, values: Ints) -> tuple[Ints, Ints]:
    """Number the distinct values, which lie from 0 to below a bound."""
    if bound > 4 * len(values) + 4096:
        return _sorted_apart(values)
    there = np.zeros(bound, bool)
    there[values] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[values]


def _sorted_apart(values: Ints) -> tuple[Ints, Ints]:
    """Number the distinct values by sorting them."""
    order = order_by(values)
    in_order = values[order]
    begins = np.append(True, in_order[1:] != in_order[:-1])
    group_ids = np.empty(len(values), np.int64)
    group_ids[order] = np.cumsum(begins) - 1
    return in_order[begins], group_ids


def _list_columns(keys: Keys) -> list[Ints]:
    parts = [keys] if isinstance(keys, np.ndarray) else keys
    columns = [column for part in parts for column in (part.T if part.ndim == 2 else (part,))]
    return [column.astype(np.int64, copy=False) for column in columns]


def _flatten_keys(columns: Sequence[Ints], rows: int) -> tuple[Ints, int]:
    """Return one number for each row that sorts as its columns do, the first before the others;
    and how many such numbers there may be, from 0."""
    flat = np.zeros(rows, np.int64)
    width = 1
    for column in columns:
        low = int(column.min())
        high = int(column.max())
        if width * (high - low + 1) >= _WIDEST:  # the numbers in use, not the range that they span
            distinct, flat = _numbered_below(width, flat)
            width = len(distinct)
            distinct, column = number_values(column)
            low = 0
            high = len(distinct) - 1
        if high > low:
            flat *= high - low + 1
            flat += column
            flat -= low
        width *= high - low + 1
    return flat, width


def event_keys(table: pa.Table) -> Ints:
    """Return rank, cycle and event of each row, which name an event in every table."""
    columns = (read_numbers(table[c], NONE) for c in ("rank", "cycle", "event"))
    return np.array([column.astype(np.int64, copy=False) for column in columns]).T


def number_hosts(table: pa.Table) -> Ints:
    """Return one number for each (rank, cycle), the same in every table; tables of a file, which
    do not say whose they are, have one host."""
    held = table.column_names
    rank = (
        read_numbers(table["rank"], NONE) if "rank" in held else np.zeros(table.num_rows, np.int64)
    )
    low = read_numbers(table["cycle"], 0) if "cycle" in held else np.zeros_like(rank)
    return pair_columns(rank, low)


def pair_columns(high: NDArray[np.integer[Any]], low: NDArray[np.integer[Any]]) -> Ints:
    """Return two columns of 32 bits as one of 64, which holds them exactly; -1 stays apart."""
    return np.asarray((high.astype(np.int64) << 32) | (low.astype(np.int64) & 0xFFFFFFFF))


def split_pairs(pairs: Ints) -> tuple[Ints, Ints]:
    """Return the two columns that `pair_columns` put together."""
    return pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.uint32).view(np.int32).astype(np.int64)
