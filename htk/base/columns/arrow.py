"""NumPy in, Arrow out, and back: without copies where it can be, and without importing pandas."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.mappings import Facts
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, STRING, TEXT

NUMPY_OF = {
    pa.int8(): np.int8,
    INT32: np.int32,
    INT64: np.int64,
    pa.uint64(): np.uint64,
    FLOAT64: np.float64,
}


def build_numbers(values: NDArray[Any], kind: pa.DataType, valid: Mask | None = None) -> pa.Array:
    """Return a column of numbers; rows that are not valid are null."""
    data = np.ascontiguousarray(values, NUMPY_OF[kind])
    return pa.Array.from_buffers(kind, len(data), [_pack_bits(valid), pa.py_buffer(data)])


def number_or_null(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Return a column of numbers that are none below zero; such a row is null."""
    return build_numbers(values, kind, values >= 0)


def build_booleans(values: Mask, valid: Mask | None = None) -> pa.Array:
    """Return a column of truth values."""
    return pa.Array.from_buffers(BOOL, len(values), [_pack_bits(valid), _pack_bits(values)])


def decode_texts(codes: NDArray[Any], dictionary: pa.Array, *, compact: bool = True) -> pa.Array:
    """Return a column of texts from their codes (-1: null), holding only the texts that occur."""
    codes = np.ascontiguousarray(codes, np.int32)
    valid = codes >= 0 if len(codes) and codes.min() < 0 else None  # None: all
    if compact:
        used = np.zeros(len(dictionary) + 1, bool)
        used[codes] = True  # -1 marks the spare last place
        used = used[:-1]
        if not used.all():
            renumber = np.append(np.cumsum(used, dtype=np.int32) - 1, np.int32(-1))
            codes = renumber[codes]
            dictionary = dictionary.take(pa.array(np.flatnonzero(used)))
    indices = build_numbers(codes, INT32, valid)
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def constant_text(value: str | None, length: int) -> pa.Array:
    """Return one text, for every row."""
    codes = np.full(length, -1 if value is None else 0, np.int32)
    values = [] if value is None else [value]
    return decode_texts(codes, pa.array(values, STRING), compact=False)


def build_texts(values: Sequence[str | None]) -> pa.Array:
    """Return a column of texts from Python strings."""
    return pa.array(values, STRING).dictionary_encode()  # int32 codes, as TEXT has


def build_nulls(kind: pa.DataType, length: int) -> pa.Array:
    """Return a column without any value."""
    if kind == TEXT:
        return constant_text(None, length)
    return pa.nulls(length, kind)


def codes_of(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.Array]:
    """Return the codes (-1: null) and dictionary of a column of texts."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        column = column.chunk(0)
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunk, or too long for one
            column = pa.concat_arrays(column.chunks) if column.num_chunks else build_nulls(TEXT, 0)
    return read_numbers(column.indices, -1), column.dictionary


def read_numbers(column: pa.Array | pa.ChunkedArray, null: int | float = 0) -> NDArray[Any]:
    """Return a column of numbers as NumPy, nulls replaced."""
    if not column.null_count:
        return column.to_numpy() if isinstance(column, pa.ChunkedArray) else _to_numpy(column)
    array = _only_chunk(column)
    dtype = NUMPY_OF.get(column.type)
    if array is None or dtype is None:
        filled = column.fill_null(pa.scalar(null, column.type))
        return filled.to_numpy() if isinstance(filled, pa.ChunkedArray) else _to_numpy(filled)
    if column.null_count == len(column):
        return np.full(len(column), null, dtype)
    values = np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]
    return np.where(_read_flags(array), values, np.array(null, dtype))


def read_keys(column: pa.Array | pa.ChunkedArray) -> Ints:
    """Return a column of numbers that tell rows apart (rank, device, step); NONE where null."""
    return read_numbers(column, NONE).astype(np.int64)


def read_times(
    table: pa.Table, rows: Ints | Mask | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return when each row of a table begins and ends; of some rows, if they are given."""
    start = read_numbers(table["start_ns"])
    end = read_numbers(table["end_ns"])
    return (start, end) if rows is None else (start[rows], end[rows])


def read_lengths(table: pa.Table) -> NDArray[Any]:
    """Return how long each row of a table takes."""
    length: NDArray[Any] = read_numbers(table["end_ns"]) - read_numbers(table["start_ns"])
    return length


def mark_valid(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Return which rows hold a value."""
    if not column.null_count:
        return np.ones(len(column), bool)
    array = _only_chunk(column)
    if array is not None:
        return _read_flags(array)
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def read_booleans(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Return a column of truth values as NumPy, null being false."""
    if column.null_count:
        column = column.fill_null(False)
    if isinstance(column, pa.ChunkedArray):
        return np.asarray(column.to_numpy(), bool)
    return np.asarray(column.to_numpy(zero_copy_only=False), bool)


def match_texts(column: pa.Array | pa.ChunkedArray, wanted: Callable[[str], bool]) -> Mask:
    """Return which rows hold a text that is wanted; asked once for each distinct text."""
    codes, dictionary = codes_of(column)
    answers = np.array([wanted(value) for value in dictionary.to_pylist()] + [False], bool)
    return answers[codes]


def map_texts(column: pa.Array | pa.ChunkedArray, to: Callable[[str], str | None]) -> pa.Array:
    """Another text for each row; asked once for each distinct text."""
    if column.null_count == len(column):
        return build_nulls(TEXT, len(column))
    codes, dictionary = codes_of(column)
    mapped_texts = build_texts([to(value) for value in dictionary.to_pylist()])
    new, values = codes_of(mapped_texts)
    return decode_texts(take_or(new, codes, np.int32(-1)), values)


def build_table(schema: pa.Schema, columns: Facts, length: int) -> pa.Table:
    """Return a table of the schema from the given columns; the others are null."""
    arrays = [
        columns[field.name] if field.name in columns else build_nulls(field.type, length)
        for field in schema
    ]
    return pa.table(arrays, schema=schema)


def with_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the table with other values in a column of its own."""
    index = table.schema.get_field_index(name)
    return table.set_column(index, table.schema.field(index), column)


def drop_fields(schema: pa.Schema, *names: str) -> pa.Schema:
    """Return the schema without some of its columns."""
    return pa.schema([field for field in schema if field.name not in names])


def _only_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array | None:
    """Return the column as one array, if it lies in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else None


def _read_flags(array: pa.Array) -> Mask:
    """Return which rows of an array that has nulls hold a value."""
    marks = array.buffers()[0]
    if marks is None:  # of the type of nothing but nulls
        return np.zeros(len(array), bool)
    bits = np.frombuffer(marks, np.uint8)
    first = array.offset
    stop = array.offset + len(array)
    bits = bits[first // 8 : -(-stop // 8)]
    flags = np.unpackbits(bits, bitorder="little")[first % 8 : first % 8 + len(array)]
    return flags.view(bool)


def _to_numpy(column: pa.Array) -> NDArray[Any]:
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _pack_bits(flags: Mask | None) -> pa.Buffer | None:
    return None if flags is None else pa.py_buffer(np.packbits(flags, bitorder="little"))


def rank_alphabetically(codes: Ints | NDArray[np.int32], names: pa.Array) -> Ints:
    """Return the place of each text among all in alphabetical order, whatever was read first; -1
    without one."""
    order = order_by(np.array(names.to_pylist(), object))
    places = np.empty(len(order) + 1, np.int64)
    places[order] = np.arange(len(order))
    places[-1] = -1
    return places[codes]


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column once its texts are no codes."""
    return STRING if pa.types.is_dictionary(kind) else kind


def plain_text(table: pa.Table) -> pa.Table:
    """Return the table with dictionary columns as plain text, which other programs want."""
    fields = [field.with_type(plain_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(fields, metadata=table.schema.metadata))
