"""Columns of a stored table that hold nothing: they take no room on disk, and none in memory.

What a trace did not record is a column of nulls, as wide as any other: up to a fifth of a table.
"""

import mmap

import pyarrow as pa

LEAST_BYTES = 64 << 10  # a smaller table is not worth the second schema


def without_nulls(table: pa.Table) -> pa.Table:
    """Return a table without the columns that hold nothing, if there are any to speak of."""
    if table.get_total_buffer_size() < LEAST_BYTES:
        return table
    held = [k for k in range(table.num_columns) if not _holds_nothing(table.column(k))]
    return table.select(held or [0])


def with_nulls(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with all columns of a schema; those that it lacks hold nothing."""
    rows = table.num_rows
    held = dict(zip(table.column_names, table.columns, strict=True))
    columns = [held.get(field.name) for field in schema]
    filled = [
        share_nulls(kind, rows) if column is None else column
        for kind, column in zip(schema.types, columns, strict=True)
    ]
    return pa.Table.from_arrays(filled, schema=schema)


def share_nulls(kind: pa.DataType, rows: int) -> pa.Array:
    """Return a column of nulls that shares its memory with all others: zeros that the system gives
    out once."""
    if pa.types.is_dictionary(kind):
        texts = pa.array([], kind.value_type)
        return pa.DictionaryArray.from_arrays(
            share_nulls(kind.index_type, rows), texts, ordered=kind.ordered, safe=False
        )
    width = 32 if pa.types.is_string(kind) else kind.bit_width  # of a text: where it begins
    zeros = _share_zeros((rows + 1) * width // 8 + 8)
    buffers = [zeros, zeros, zeros.slice(0, 0)] if pa.types.is_string(kind) else [zeros, zeros]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=rows)


def _holds_nothing(column: pa.ChunkedArray) -> bool:
    kind = column.type
    if not (pa.types.is_primitive(kind) or pa.types.is_string(kind) or _is_code(kind)):
        return False
    if column.null_count < len(column) or not len(column):
        return False
    return not _is_code(kind) or not any(len(chunk.dictionary) for chunk in column.chunks)


def _is_code(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))


_held: list[pa.Buffer] = []  # the largest so far; those before live as long as their columns


def _share_zeros(size: int) -> pa.Buffer:
    """Return zeros that were never written to: the system has one page of them for all."""
    if not _held or _held[-1].size < size:
        _held[:] = [pa.py_buffer(memoryview(mmap.mmap(-1, 1 << size.bit_length())).toreadonly())]
    return _held[-1].slice(0, size)
