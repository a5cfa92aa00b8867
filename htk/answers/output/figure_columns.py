"""Columns of an answer as a figure shows them: series, categories, one unit, words."""

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import plain_type
from htk.base.core.humanize import shorten_apart
from htk.base.schema import ABSOLUTE_TIMES, STRING
from htk.base.schema.columns import heading_of, unit_of

WITH_NUMBER = ("rank", "step", "device", "stage")  # axes whose marks say what they are
NO_NAME = "–"
_LETTERS = 50  # of a name beside its bar
_S = (1e-9, "s")
_MS = (1e-6, "ms")
_US = (1e-3, "µs")
_FROM_S = 2e9  # ns: an axis to 2000 ms reads worse than one to 2 s
_SIZES = ((2**30, "GiB"), (2**20, "MiB"))  # the first that the largest reaches
CODES = ("cause", "how")  # columns whose values are codes: late_host
_SHORT = re.compile(r"\bcomm\b")
_SIZES_LEAST = (1 / 2**10, "KiB")


def series_of(
    table: pa.Table, y: str | Sequence[str], color: str | None
) -> list[tuple[str, list[int], str]]:
    """(name, rows, y column) of each trace of a figure."""
    every = list(range(table.num_rows))
    if not isinstance(y, str):
        return [(words_of(name), every, name) for name in y]
    if color is None:
        return [(words_of(y), every, y)]
    values = table[color].to_pylist()
    return [
        (_name_series(color, value), [k for k in every if values[k] == value], y)
        for value in dict.fromkeys(values)
    ]


def _name_series(column: str, value: Any) -> str:
    """Return a series as the legend names it."""
    if isinstance(value, bool):
        return words_of(column) if value else f"not {words_of(column)}"
    if value is None:
        return NO_NAME
    word = "rank" if column.endswith("_rank") else column
    if column == "kind":  # of activities
        return written_out(str(value))
    if column in CODES:
        return str(value).replace("_", " ")
    return f"{word} {value}" if word in WITH_NUMBER else str(value)


def label_categories(table: pa.Table, name: str) -> list[Any]:
    values: list[Any] = table[name].to_pylist()
    if name in WITH_NUMBER:
        return [f"{name} {v}" if v is not None else "–" for v in values]
    if plain_type(table[name].type) == STRING:
        short = shorten_apart((v for v in values if v is not None), _LETTERS)
        return ["–" if v is None else short[v] for v in values]
    return values


def scale_column(table: pa.Table, name: str, rows: Sequence[int]) -> list[Any]:
    factor, _ = scale_of(table, name)
    values = table[name].to_pylist()
    if name in ABSOLUTE_TIMES:  # since the first of them
        origin = min((v for v in values if v is not None), default=0)
        values = [None if v is None else v - origin for v in values]
    return [
        v if factor is None or not isinstance(v, int | float) else v * factor
        for v in (values[k] for k in rows)
    ]


def words_of(name: str) -> str:
    return written_out(heading_of(name).removesuffix(" %"))


def written_out(words: str) -> str:
    """Return what tables shorten for want of room as a legend has it: "exposed communication"."""
    return _SHORT.sub("communication", words)


def scale_of(table: pa.Table, name: str) -> tuple[float | None, str]:
    """Return what numbers are multiplied by, and their unit then: one for all of a figure."""
    unit = unit_of(name)
    if unit == "bytes":
        sizes = [table[f.name] for f in table.schema if unit_of(f.name) == "bytes"]
        largest = max((pc.max(column).as_py() or 0 for column in sizes), default=0)
        return next(((1 / size, word) for size, word in _SIZES if largest >= size), _SIZES_LEAST)
    if unit == "ns":
        names = [f.name for f in table.schema if unit_of(f.name) == "ns"]
        lengths = [table[each] for each in names if each not in ABSOLUTE_TIMES]
        ends = [end for column in lengths for end in pc.min_max(column).as_py().values() if end]
        longest = max(map(abs, ends), default=0)
        return _MS if name in ABSOLUTE_TIMES else scale_of_lengths(longest)
    return None, unit


def scale_of_lengths(longest_ns: float) -> tuple[float, str]:
    """Return what ns are multiplied by, and their unit then, on an axis that reaches so far."""
    if longest_ns >= _FROM_S:
        return _S
    return _US if 0 < longest_ns < 1e6 else _MS


def title_of(table: pa.Table, name: str) -> str:
    unit = scale_of(table, name)[1]
    return f"{words_of(name)} [{unit}]" if unit else words_of(name)


def axis_title(table: pa.Table, name: str) -> str:
    """Nothing, where each mark says what it is."""
    if name == "step":
        return name
    return "" if name in (*WITH_NUMBER, "label") else title_of(table, name)
