"""What a cut left, as the header of a trimmed file carries it. Nothing in a header is trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import drop_fields, plain_type
from htk.base.mappings import Facts, Fields, NamedTables
from htk.base.schema import CUT_WINDOWS, PASSING, TABLES

KEY = "htk_cut"
RECORDED = "recorded_tables"  # the fact that names the tables of which the whole recording has rows
BY_ACTIVITY = "activities_chosen"  # the fact that GPU activities were chosen by name or stream
_FARTHEST_NS = 1 << 62  # what is farther is no time
_TABLES = {
    "cut_windows": drop_fields(CUT_WINDOWS, "rank", "cycle"),
    "passing": drop_fields(PASSING, "rank", "cycle", "event"),
}


@dataclass(frozen=True)
class CutHeader:
    """What a header tells of one recording of its file."""

    tables: NamedTables
    facts: Mapping[str, object]


def header_of(tables: NamedTables, facts: Mapping[str, object]) -> Fields:
    """Return what tells of a cut: facts, and tables column by column."""
    columns = {
        name: [tables[name][column].to_pylist() for column in schema.names]
        for name, schema in _TABLES.items()
    }
    return {**columns, "facts": dict(facts)}


def cut_headers(header: Facts) -> list[CutHeader]:
    """Return what a trimmed file tells of each of its recordings; nothing where it is not one."""
    cuts = header.get(KEY)
    if not isinstance(cuts, list):
        return []
    try:
        return [_build_header(cut) for cut in cuts]
    except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException):
        return []


def _build_header(cut: Facts) -> CutHeader:
    facts: dict[str, object] = {
        RECORDED: [name for name in TABLES if name in cut["facts"][RECORDED]]
    }
    for name in ("start_ns", "end_ns"):
        time = cut["facts"].get(name)
        if isinstance(time, int) and abs(time) < _FARTHEST_NS:
            facts[name] = time
    if cut["facts"].get(BY_ACTIVITY):
        facts[BY_ACTIVITY] = True
    return CutHeader(
        {name: _build_cut_table(cut[name], schema) for name, schema in _TABLES.items()}, facts
    )


def _build_cut_table(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    arrays = [
        pa.array(list(values), plain_type(field.type)).cast(field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    table = pa.table(arrays, schema=schema)
    for name in ("start_ns", "end_ns"):
        far = pc.any(pc.greater(pc.abs_checked(table[name]), _FARTHEST_NS)).as_py()
        if far or table[name].null_count:
            raise ValueError(name)
    return table
