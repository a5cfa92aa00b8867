"""Tables one after the other: as Arrow joins them, or each column in one piece that NumPy made.
Arrow is five times as fast; where NumPy's arrays lie in files, so do tables that it joined."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    NUMPY_OF,
    build_booleans,
    build_numbers,
    codes_of,
    mark_valid,
    read_booleans,
    read_numbers,
)
from htk.base.columns.types import Mask
from htk.base.schema import BOOL, INT32, TEXT


def concatenate_tables(
    schema: pa.Schema,
    tables: Sequence[pa.Table],
    added: Mapping[str, Sequence[int]],
    *,
    by_numpy: bool,
) -> pa.Table:
    """Return the rows of all tables; `added` is added to the numbers of a column, one of each
    table. A text has one code, in the order in which texts first come."""
    return _by_numpy(schema, tables, added) if by_numpy else _by_arrow(schema, tables, added)


def _by_arrow(
    schema: pa.Schema, tables: Sequence[pa.Table], added: Mapping[str, Sequence[int]]
) -> pa.Table:
    moved = list(tables)
    for name, numbers_added in added.items():
        index = schema.get_field_index(name)
        for k, more in enumerate(numbers_added[: len(moved)]):
            if more:
                column = pc.add(moved[k].column(index), more)
                moved[k] = moved[k].set_column(index, schema.field(index), column)
    return pa.concat_tables(moved).unify_dictionaries()


def _by_numpy(
    schema: pa.Schema, tables: Sequence[pa.Table], added: Mapping[str, Sequence[int]]
) -> pa.Table:
    columns = []
    for field in schema:
        parts = [table[field.name] for table in tables]
        if field.type == TEXT:
            columns.append(_concatenate_texts(parts))
        elif field.type == BOOL:
            columns.append(
                build_booleans(
                    _join_parts([read_booleans(part) for part in parts], bool),
                    _mark_valid_rows(parts),
                )
            )
        else:
            columns.append(_concatenate_numbers(parts, field.type, added.get(field.name)))
    return pa.table(columns, schema=schema)


def _concatenate_numbers(
    parts: Sequence[pa.ChunkedArray], kind: pa.DataType, added: Sequence[int] | None
) -> pa.Array:
    values = np.empty(sum(map(len, parts)), NUMPY_OF[kind])
    first = 0
    for k, part in enumerate(parts):
        piece = values[first : first + len(part)]
        piece[:] = read_numbers(part)
        if added is not None and added[k]:
            piece += added[k]
        first += len(part)
    return build_numbers(values, kind, _mark_valid_rows(parts))


def _concatenate_texts(parts: Sequence[pa.ChunkedArray]) -> pa.Array:
    coded = [codes_of(part) for part in parts]
    dictionary = _all_texts([texts for _, texts in coded])
    codes = np.empty(sum(map(len, parts)), np.int32)
    first = 0
    before = None
    code_in_all = np.empty(0, np.int32)
    for own, texts in coded:
        if before is None or not texts.equals(before):  # those of neighbours are mostly the same
            before = texts
            code_in_all = np.append(read_numbers(pc.index_in(texts, dictionary)), -1).astype(
                np.int32
            )
        np.take(code_in_all, own, out=codes[first : first + len(own)], mode="wrap")  # -1: the last
        first += len(own)
    indices = build_numbers(codes, INT32, _mark_valid_rows(parts))
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def _all_texts(dictionaries: Sequence[pa.Array]) -> pa.Array:
    """Return the distinct texts of all, in the order in which they first come."""
    first = dictionaries[0]
    if all(other is first or other.equals(first) for other in dictionaries):
        return first
    return pc.unique(pa.chunked_array(dictionaries))


def _mark_valid_rows(parts: Sequence[pa.ChunkedArray]) -> Mask | None:
    """Return which rows hold a value; None: all."""
    if not any(part.null_count for part in parts):
        return None
    return _join_parts([mark_valid(part) for part in parts], bool)


def _join_parts(parts: Sequence[NDArray[np.bool_]], kind: type) -> NDArray[np.bool_]:
    return np.concatenate([np.empty(0, kind), *parts])
