"""Tables one after the other, each column in one piece that NumPy made: where its arrays lie in
files, so do joined tables."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from htk.columns.arrow import NUMPY_OF, boolean, codes_of, number, numbers, truths, valid
from htk.columns.types import Mask
from htk.schema import TEXT


def concatenated(
    schema: pa.Schema, tables: Sequence[pa.Table], added: Mapping[str, Sequence[int]]
) -> pa.Table:
    """Return the rows of all tables; `added` is added to the numbers of a column, one of each
    table. A text has one code, in the order in which texts first come."""
    columns = []
    for field in schema:
        parts = [table[field.name] for table in tables]
        if field.type == TEXT:
            columns.append(_texts(parts))
        elif field.type == pa.bool_():
            columns.append(boolean(_joined([truths(part) for part in parts], bool), _valid(parts)))
        else:
            columns.append(_numbers(parts, field.type, added.get(field.name)))
    return pa.table(columns, schema=schema)


def _numbers(
    parts: Sequence[pa.ChunkedArray], kind: pa.DataType, added: Sequence[int] | None
) -> pa.Array:
    values = np.empty(sum(map(len, parts)), NUMPY_OF[kind])
    first = 0
    for k, part in enumerate(parts):
        piece = values[first : first + len(part)]
        piece[:] = numbers(part)
        if added is not None and added[k]:
            piece += added[k]
        first += len(part)
    return number(values, kind, _valid(parts))


def _texts(parts: Sequence[pa.ChunkedArray]) -> pa.Array:
    coded = [codes_of(part) for part in parts]
    dictionary = _all_texts([texts for _, texts in coded])
    codes = np.empty(sum(map(len, parts)), np.int32)
    first = 0
    for own, texts in coded:
        code_in_all = np.append(numbers(pc.index_in(texts, dictionary)), -1).astype(np.int32)
        np.take(code_in_all, own, out=codes[first : first + len(own)], mode="wrap")  # -1: the last
        first += len(own)
    indices = number(codes, pa.int32(), _valid(parts))
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def _all_texts(dictionaries: Sequence[pa.Array]) -> pa.Array:
    """Return the distinct texts of all, in the order in which they first come."""
    first = dictionaries[0]
    if all(other is first or other.equals(first) for other in dictionaries):
        return first
    return pc.unique(pa.chunked_array(dictionaries))


def _valid(parts: Sequence[pa.ChunkedArray]) -> Mask | None:
    """Return which rows hold a value; None: all."""
    if not any(part.null_count for part in parts):
        return None
    return _joined([valid(part) for part in parts], bool)


def _joined(parts: Sequence[NDArray[np.bool_]], kind: type) -> NDArray[np.bool_]:
    return np.concatenate([np.empty(0, kind), *parts])
