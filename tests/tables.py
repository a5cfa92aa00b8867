"""Tables of the vocabulary from a few rows, for tests: what is left out is null."""

from typing import Any

import pyarrow as pa

from htk.core.analysis import Analysis
from htk.schema import DERIVED, TABLES


def make(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """A table of that name; `rank`, `cycle` and `device` are 0 unless a row says otherwise."""
    schema = {**TABLES, **DERIVED}[name]
    defaults = {k: 0 for k in ("rank", "cycle", "device") if k in schema.names}
    wholes = [{**defaults, **row} for row in rows]
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in wholes]
        kind = pa.string() if pa.types.is_dictionary(field.type) else field.type
        columns.append(pa.array(values, kind).cast(field.type))
    return pa.table(columns, schema=schema)


def answer_of(
    analysis: Analysis[...], *, options: dict[str, Any] | None = None, **tables: pa.Table
) -> Any:
    """Return the rows that an analysis answers from these tables; missing ones are empty."""
    given = [tables[name] if name in tables else make(name, []) for name in analysis.reads]
    return analysis(*given, **(options or {})).to_pylist()
