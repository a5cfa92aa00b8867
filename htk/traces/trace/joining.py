"""Tables of files one after the other, with whose their rows are: all at once, not file by file.

Of a thousand small files, a column of ranks for each table of each costs more than their rows.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import build_nulls, build_numbers, read_numbers
from htk.base.schema import index_of
from htk.traces.trace.file import TraceFile


def rows_before(schema: pa.Schema, files: Sequence[TraceFile]) -> dict[str, list[int]]:
    """Return what makes row numbers of each file those of all, for columns that hold such."""
    before = {}
    for column in schema:
        target = index_of(column)
        if target:
            before[column.name] = [0, *accumulate(file.entry.rows(target) for file in files)]
    return before


def rows_of_all(
    schema: pa.Schema,
    files: Sequence[TraceFile],
    tables: Sequence[pa.Table | None],
    added: Mapping[str, Sequence[int]],
) -> pa.Table | None:
    """Return the rows of the files' own tables; `added` is added to the numbers of a column, one of
    each file. None: their columns differ."""
    held = [(k, table) for k, table in enumerate(tables) if table is not None and table.num_rows]
    if not held:
        return schema.empty_table()
    if any(table.schema != held[0][1].schema for _, table in held):
        return None
    rows = np.array([table.num_rows for _, table in held])
    own = pa.concat_tables([table for _, table in held]).unify_dictionaries()
    columns = []
    for field in schema:
        if field.name in own.column_names and field.name != "cycle":
            column = own[field.name]
        elif field.name in ("rank", "cycle"):
            column = _repeat_by_file(
                [getattr(files[k], field.name) for k, _ in held], rows, field.type
            )
        else:
            column = build_nulls(field.type, own.num_rows)
        if field.name in added:
            more = np.array([added[field.name][k] for k, _ in held], np.int64)
            column = pc.add(column, pa.array(np.repeat(more, rows)))
        columns.append(column)
    return pa.table(columns, schema=schema)


def _repeat_by_file(numbers: Sequence[int | None], rows: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return a number for each row of each file; null where the file has none."""
    values = np.repeat(np.array([n or 0 for n in numbers]), rows)
    if None not in numbers:
        return build_numbers(values, kind)
    return build_numbers(values, kind, np.repeat(np.array([n is not None for n in numbers]), rows))


def rows_of_chosen(
    table: pa.Table, files: Sequence[TraceFile], is_chosen: Callable[[TraceFile], bool]
) -> pa.Table:
    """Return the rows of some of the files in what was made of all of them together."""
    if "rank" in table.column_names:  # of all cycles: a rank has one clock
        ranks = {-1 if part.rank is None else part.rank for part in files if is_chosen(part)}
        return table.filter(pa.array(np.isin(read_numbers(table["rank"], -1), list(ranks))))
    chosen = [  # a row for each collective, in the order of the files
        np.full(part.entry.rows("collectives"), is_chosen(part)) for part in files
    ]
    return table.filter(pa.array(np.concatenate([np.empty(0, bool), *chosen])))
