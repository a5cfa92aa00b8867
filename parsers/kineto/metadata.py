"""What a profile says of collectives: arguments of the events, and shapes of the calls of c10d."""

import re
from functools import cache, lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import build_nulls, build_numbers, codes_of, map_texts, read_numbers
from htk.base.columns.types import NONE, Mask, fill_none, take_or
from htk.base.names.collectives import collective_type, parse_c10d_range
from htk.base.schema import INT64
from htk.parsers.kineto.raw import TYPES, RawEvents
from htk.parsers.kineto.sorting import Columns, Sorted, mark_named

Rows = NDArray[np.int64]

RECORD = "record_param_comms"
# Operators whose shapes tell what the collective they launch carries.
OPERATOR = re.compile(
    r"c10d::|c10d_functional|_c10d_functional|symm_mem::|(?i:.*(?:all_?reduce|all_?gather"
    r"|reduce_?scatter|all_?to_?all|one_shot|two_shot|custom_ar))"
)
_ARGUMENTS = (
    "coll",
    "in_nelems",
    "out_nelems",
    "in_size_old",
    "out_size_old",
    "in_split",
    "out_split",
    "dtype",
    "group_size",
    "pg_name",
    "pg_id_old",
    "pg_desc",
    "pg_ranks",
    "seq",
    "comms_id",
    "src_rank",
    "dst_rank",
    "rank",
    "rank_start",
    "rank_stride",
    "is_async",
)
_SHAPES = ("in_dims", "in_type", "concrete")


def read_metadata(raw: RawEvents, events: Sorted) -> pa.Table:
    """The collective arguments of every event that carries any, and the shapes of c10d's calls."""
    carries = mark_named(raw, _is_call)
    for name in _ARGUMENTS:
        if name != "dtype" and raw.has(name):
            rows = raw.column_rows(name)
            carries[rows if rows is not None else slice(None)] = True
    chosen = events.complete[carries[events.complete]] if carries.any() else np.empty(0, np.int64)
    if not len(chosen):
        return _build_nothing()
    columns = Columns(raw, chosen, 0)
    arguments = {"event": build_numbers(chosen, INT64)}
    for name in (*_ARGUMENTS, *_SHAPES):
        is_number = TYPES[name] == INT64
        arguments[name] = columns.number(name) if is_number else columns.text(name)
    return pa.table(arguments)


@cache
def _build_nothing() -> pa.Table:
    """Return the table of a file without collectives."""
    none = {name: build_nulls(TYPES[name], 0) for name in (*_ARGUMENTS, *_SHAPES)}
    return pa.table({"event": build_nulls(INT64, 0), **none})


@lru_cache(maxsize=100_000)
def _is_call(name: str) -> bool:
    """Return a call whose shapes may tell what a collective carries."""
    if "(" in name or " " in name:  # Python frames and kernels, the most of all names
        return False
    return name == RECORD or is_operator(name) or parse_c10d_range(name) is not None


@lru_cache(maxsize=100_000)
def is_operator(name: str) -> bool:
    """Return whether the shapes of an operator of that name tell what a collective carries."""
    return OPERATOR.match(name) is not None


class Metadata:
    """The table that `read_metadata` makes, found by event."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._event = read_numbers(table["event"])
        self.type = map_texts(table["coll"], collective_type)
        codes, names = codes_of(self.type)
        self._type_codes = codes
        self._types = names.to_pylist()
        self._numbers: dict[str, Rows] = {}

    def rows(self, events: Rows) -> Rows:
        """Row of each event (NONE: it has no collective arguments)."""
        if not len(self._event):
            return fill_none(len(events))
        position = np.minimum(np.searchsorted(self._event, events), len(self._event) - 1)
        return np.where(self._event[position] == events, position, NONE)

    def numbers(self, name: str, rows: Rows) -> Rows:
        """Return a number of each row; -1: it has none, or there is no row."""
        if name not in self._numbers:
            self._numbers[name] = np.append(read_numbers(self.table[name], NONE), -1)
        return self._numbers[name][rows]

    def named(self, rows: Rows) -> Mask:
        """Return which rows name a collective."""
        named: Mask = (rows != NONE) & (take_or(self._type_codes, rows) != -1)
        return named

    def is_type(self, rows: Rows, *wanted: str) -> Mask:
        chosen = [k for k, name in enumerate(self._types) if name in wanted]
        is_wanted: Mask = (rows != NONE) & np.isin(take_or(self._type_codes, rows), chosen)
        return is_wanted


def take_either(facts: Metadata, rows: Rows, *names: str) -> Rows:
    """Return the first of several numbers that an event has; -1: none."""
    out = facts.numbers(names[0], rows)
    for name in names[1:]:
        out = np.where(out < 0, facts.numbers(name, rows), out)
    return out


def take_values(column: pa.Array | pa.ChunkedArray, rows: Rows) -> pa.Array:
    """Return the values of rows; null for NONE."""
    if column.null_count == len(column):
        return pa.nulls(len(rows), column.type)
    indices = build_numbers(np.maximum(rows, 0), INT64, rows != NONE)
    taken = column.take(indices)
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def texts_at(column: pa.ChunkedArray, rows: Rows) -> list[str | None]:
    """Return the texts of rows; None where there is none.

    Taken by their codes: Arrow makes an object of each row.
    """
    codes, dictionary = codes_of(column)
    if len(dictionary) > len(rows):
        return take_values(column, rows).to_pylist()  # type: ignore[no-any-return]
    names = [*dictionary.to_pylist(), None]
    return [names[code] for code in take_or(codes, rows).tolist()]
