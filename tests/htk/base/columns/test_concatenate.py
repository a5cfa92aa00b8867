"""Tables one after the other are those that Arrow makes of them."""

import numpy as np
import pyarrow as pa
import pytest

from htk.base.columns.arrow import codes_of
from htk.base.columns.concatenate import concatenate_tables
from htk.base.schema import TEXT
from tests.thinned import thinned

SCHEMA = pa.schema(
    {
        "small": pa.int32(),
        "row": pa.int64(),
        "large": pa.uint64(),
        "share": pa.float64(),
        "flag": pa.bool_(),
        "name": TEXT,
    }
)
WORDS = ["gemm", "copy", "all_reduce", "", "softmax", "élan"]


def _table(random: np.random.Generator, rows: int, with_nulls: bool) -> pa.Table:
    def lacking() -> np.ndarray:
        return random.random(rows) < (0.3 if with_nulls else 0.0)

    words = random.permutation(WORDS)[: 1 + random.integers(len(WORDS))]
    columns = [
        pa.array(random.integers(-9, 9, rows), pa.int32(), mask=lacking()),
        pa.array(random.integers(0, 9, rows), pa.int64(), mask=lacking()),
        pa.array(random.integers(0, 1 << 63, rows).astype(np.uint64) * 2, mask=lacking()),
        pa.array(random.standard_normal(rows), pa.float64(), mask=lacking()),
        pa.array(random.random(rows) < 0.5, pa.bool_(), mask=lacking()),
        pa.array(random.choice(words, rows), pa.string(), mask=lacking()).dictionary_encode(),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.mark.parametrize("by_numpy", [False, True])
@pytest.mark.parametrize("seed", thinned(range(40), 5))
def test_rows_are_those_of_the_tables_and_row_numbers_are_moved(seed: int, by_numpy: bool) -> None:
    random = np.random.default_rng(seed)
    tables = [
        _table(random, int(random.integers(0, 20)), bool(random.integers(2)))
        for _ in range(int(random.integers(2, 6)))
    ]
    if seed % 3 == 0:  # a slice of another table, in two pieces
        both = pa.concat_tables([_table(random, 11, True), _table(random, 9, True)])
        tables[-1] = both.slice(3, 14)
    added = [int(n) for n in np.cumsum(random.integers(0, 1000, len(tables)))]
    joined = concatenate_tables(SCHEMA, tables, {"row": added}, by_numpy=by_numpy)
    assert joined.schema.equals(SCHEMA)
    assert not by_numpy or all(column.num_chunks == 1 for column in joined.columns)
    joined.validate(full=True)
    rows = [
        row | {"row": None if row["row"] is None else row["row"] + more}
        for table, more in zip(tables, added, strict=True)
        for row in table.to_pylist()
    ]
    assert joined.to_pylist() == rows
    as_arrow = pa.concat_tables(tables).unify_dictionaries()
    codes, texts = codes_of(joined["name"])
    expected, expected_texts = codes_of(as_arrow["name"])
    assert texts.to_pylist() == expected_texts.to_pylist() and codes.tolist() == expected.tolist()
