"""Tables as CSV: for people, whose spreadsheets take some texts for formulas, or exact."""

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import plain_text
from htk.base.core.humanize import make_visible
from htk.base.schema import STRING

# What makes a spreadsheet calculate, fetch or start something; a number is none of it.
_FORMULA = r"^[=+\-@\t\r\n\x{ff1d}\x{ff0b}\x{ff0d}\x{ff20}]"
_BETWEEN_BREAKS = re.compile(r"[^\t\n]+")  # tabs and ends of lines steer nothing
_NUMBER = r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$"


def write_csv(table: pa.Table, target: Any, *, raw: bool = False) -> None:
    """Write a table to a path or stream. Texts that a spreadsheet would take for a formula begin
    with an apostrophe, which it does not show, and what steers a terminal is spelled out; `raw`
    leaves both as they are."""
    from pyarrow import csv

    table = _flatten_table(plain_text(table))
    csv.write_csv(table if raw else _make_inert(table), target)


def _flatten_table(table: pa.Table) -> pa.Table:
    """Write out values that CSV does not know: a query may answer with lists and structs."""
    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_interval(field.type):
            cells = table.column(index).to_pylist()
            words = pa.array(
                [None if cell is None else _encode_json(cell) for cell in cells], STRING
            )
            table = table.set_column(index, field.name, words)
    return table


def _encode_json(cell: Any) -> str:
    return json.dumps(cell, ensure_ascii=False, default=str)


def _make_inert(table: pa.Table) -> pa.Table:
    columns = [
        _inert_texts(column) if _is_text(column.type) else column for column in table.columns
    ]
    names = _inert_texts(pa.array(table.column_names, STRING)).to_pylist()
    return pa.table(columns, names=names)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _inert_texts(cells: Any) -> Any:
    starts_formula = pc.match_substring_regex(cells, _FORMULA)
    if not pc.any(starts_formula).as_py():
        return _without_steering(cells)
    is_formula = pc.and_not(starts_formula, pc.match_substring_regex(cells, _NUMBER))
    marked = pc.binary_join_element_wise(
        pa.scalar("'", cells.type), cells, pa.scalar("", cells.type)
    )
    return _without_steering(pc.if_else(is_formula, marked, cells))


def _without_steering(cells: Any) -> Any:
    if pc.all(pc.utf8_is_printable(cells)).as_py():
        return cells
    return pa.array(map(_spell_steering, cells.to_pylist()), cells.type)


def _spell_steering(text: str | None) -> str | None:
    return text and _BETWEEN_BREAKS.sub(lambda match: make_visible(match[0]), text)
