"""Shared by the analyses of time: sums over windows, and answers per rank or per step."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    number_or_null,
    read_booleans,
    read_numbers,
)
from htk.base.columns.groups import divide_or_nan
from htk.base.columns.types import NONE, Floats, Ints, fill_none
from htk.base.core.analysis import Later
from htk.base.schema import FLOAT64, INT32
from htk.quantities.derived.window_times import KindTimes

Per = Literal["rank", "step"]
Pool = Literal["all", "rank", "step"]
Compat = Literal["hta"]


def chosen_windows(per: Per, rank_windows: pa.Table, step_windows: pa.Table) -> pa.Table:
    return rank_windows if per == "rank" else step_windows


def chosen_times(per: Per, of_ranks: Later, of_steps: Later) -> tuple[pa.Table, KindTimes]:
    """Return the windows of ranks or of steps, and what runs how long in each."""
    windows = (of_ranks if per == "rank" else of_steps)()
    return windows, KindTimes.from_windows(windows)


def sum_windows(
    per: Per, windows: pa.Table, values: Mapping[str, Ints]
) -> tuple[dict[str, pa.Array], dict[str, Ints]]:
    """Windows of the same rank and device (and step) added up: who they are, and the sums."""
    step = read_numbers(windows["step"], NONE) if per == "step" else np.full(windows.num_rows, -1)
    who_ran = [read_numbers(windows[name], NONE) for name in ("rank", "device")]
    keys = np.stack([*who_ran, step_cycles(windows, step), step], axis=1).astype(np.int64)
    order = keys.copy()
    order[keys[:, 3] < 0, 3] = np.iinfo(np.int64).max  # what has no number comes last
    _, first, inverse = np.unique(order, axis=0, return_index=True, return_inverse=True)
    who = keys[first]
    complete = np.ones(len(first), bool)
    np.logical_and.at(complete, inverse.ravel(), read_booleans(windows["complete"]))
    columns = {
        "rank": _build_nullable(who[:, 0]),
        "device": _build_nullable(who[:, 1]),
        "cycle": build_numbers(who[:, 2], INT32, who[:, 3] >= 0),
        "step": _build_nullable(who[:, 3]),
        "complete": build_booleans(complete),
    }
    sums = {}
    for name, value in values.items():
        sums[name] = np.zeros(len(first), np.int64)
        np.add.at(sums[name], inverse.ravel(), value)
    return columns, sums


def step_cycles(windows: pa.Table, step: Ints) -> Ints:
    """Return the cycle of each numbered step, and for what has no number one behind them all.

    Two cycles may have equal step numbers; their time without a number is one row.
    """
    cycles = np.full(len(step), np.iinfo(np.int32).max, np.int64)
    if (step >= 0).any():  # a guest's windows have neither
        cycles[step >= 0] = read_numbers(windows["cycle"], 0)[step >= 0]
    return cycles


def pool_rows(per: Pool, rows: pa.Table, step: pa.ChunkedArray) -> Ints:
    """Rank, cycle and step of each row, as far as they are kept apart (-1 where they are not).

    Two cycles may have equal step numbers; their rows without a number are one.
    """
    rank = read_numbers(rows["rank"], NONE)
    number_of = read_numbers(step, NONE)
    nothing = fill_none(len(rank))
    cycle = np.where(number_of < 0, nothing, read_numbers(rows["cycle"], 0))
    columns = (
        nothing if per == "all" else rank,
        cycle if per == "step" else nothing,
        number_of if per == "step" else nothing,
    )
    return np.array(columns, np.int64).T  # each column in one piece


def who_columns(keys: Ints) -> list[pa.Array]:
    """Return the columns rank, cycle and step of what `pool_rows` keeps apart."""
    return [_build_nullable(keys[:, k]) for k in range(3)]


def build_percent(part: Ints | Floats, total: Ints | Floats) -> pa.Array:
    """100·part/whole; null where there is no whole."""
    return build_numbers(divide_or_nan(100.0 * part, total), FLOAT64, total > 0)


def build_ratio(part: Ints | Floats, total: Ints | Floats) -> pa.Array:
    """part/whole; null where there is no whole."""
    return build_numbers(divide_or_nan(part, total), FLOAT64, total > 0)


def _build_nullable(values: NDArray[np.int64]) -> pa.Array:
    return number_or_null(values, INT32)
