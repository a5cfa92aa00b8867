"""Tables of the vocabulary from a few rows, for tests: what is left out is null."""

from functools import partial
from typing import Any

import pyarrow as pa

from htk.base.core.analysis import Analysis
from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived import registry


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
    arguments = [
        partial(_table, name, tables) if name in analysis.later else _table(name, tables)
        for name in analysis.reads
    ]
    return analysis(*arguments, **(options or {})).to_pylist()


_PASSES = {"op_passes": ("cpu_ops", "op_links"), "kernel_passes": ("kernels", "kernel_links")}


def _table(name: str, tables: dict[str, pa.Table]) -> pa.Table:
    """Return a table that is given, or empty; passes follow from the others, where these have
    links, and are unknown elsewhere."""
    if name == "stalls" and name not in tables and {"launches", "cpu_ops"} & tables.keys():
        maker = registry.find_maker(name)
        flat = {"rank": 0, "cycle": 0}
        stalls = maker.function(*(_table(read, tables) for read in maker.reads)).to_pylist()
        return make(name, [{**flat, **row} for row in stalls])
    if name in (*registry.TOTALS, *registry.BY_RANK) and name not in tables:
        maker = registry.find_maker(name)
        kernels = {"kernel_links": make("kernel_links", [{}] * len(tables.get("kernels", ())))}
        return maker.function(*(_table(read, {**kernels, **tables}) for read in maker.reads))
    rows, links = _PASSES.get(name, ("", ""))
    if name in tables or not rows:
        return tables[name] if name in tables else make(name, [])
    if links not in tables:
        return make(name, [{}] * len(tables.get(rows, ())))
    maker = registry.find_maker(name)
    flat = {"annotation_links": make("annotation_links", [{}] * len(tables.get("annotations", ())))}
    return maker.function(*(_table(read, {**flat, **tables}) for read in maker.reads))
