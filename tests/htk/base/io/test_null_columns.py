"""Columns that hold nothing are read as they were, and take no room."""

from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from htk.base.io.null_columns import LEAST_BYTES, share_nulls
from htk.base.io.table_file import read_tables, write_tables

TEXT = pa.dictionary(pa.int32(), pa.string())
KINDS = [pa.int64(), pa.int32(), pa.uint8(), pa.float64(), pa.bool_(), pa.string(), TEXT]
ENOUGH = LEAST_BYTES // 8


def _stored(path: Path, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    write_tables(path, tables, "key", path.name)
    stored = read_tables(path, "key", path.name, thorough=True)
    return {name: stored[name] for name in tables}


def _column(kind: pa.DataType, filled: str, rows: int) -> pa.Array:
    if filled == "nothing":
        return pa.array([None] * rows, kind)
    some = [k % 2 if pa.types.is_boolean(kind) else k % 100 for k in range(rows)]
    values = [None if filled == "some" and k % 3 else value for k, value in enumerate(some)]
    texts = [None if value is None else str(value) for value in values]
    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else bool(v) for v in values], kind)
    of_texts = pa.types.is_string(kind) or pa.types.is_dictionary(kind)
    return pa.array(texts if of_texts else values).cast(kind)


@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(["nothing", "some", "all"])),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([0, 1, 7, ENOUGH, 3 * ENOUGH + 5]),
)
def test_a_table_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, columns: list[tuple[pa.DataType, str]], rows: int
) -> None:
    fields = [
        pa.field(f"c{k}", kind, metadata={"doc": f"{k}"}) for k, (kind, _) in enumerate(columns)
    ]
    schema = pa.schema(fields, metadata={"of": "a test"})
    table = pa.table([_column(kind, filled, rows) for kind, filled in columns], schema=schema)
    path = tmp_path_factory.mktemp("tables") / "t.arrow"
    read = _stored(path, {"first": table, "second": table})
    for name in ("first", "second"):
        assert read[name].equals(table, check_metadata=True)
        read[name].validate(full=True)


def test_what_was_not_recorded_takes_no_room(tmp_path: Path) -> None:
    rows = 100_000
    times = pa.array(range(rows), pa.int64())
    lone = pa.table({"time": times})
    wide = pa.table(
        {"time": times, "id": share_nulls(pa.int64(), rows), "name": share_nulls(TEXT, rows)}
    )
    _stored(tmp_path / "lone.arrow", {"t": lone})
    _stored(tmp_path / "wide.arrow", {"t": wide})
    sizes = [(tmp_path / f"{name}.arrow").stat().st_size for name in ("lone", "wide")]
    assert sizes[1] - sizes[0] < 2000
    assert sizes[0] > 8 * rows


def test_the_table_of_all_events_is_compressed_and_the_others_are_mapped(tmp_path: Path) -> None:
    rows = 50_000
    table = pa.table({"time": pa.array(range(rows), pa.int64()), "name": ["relu"] * rows})
    read = _stored(tmp_path / "t.arrow", {"events": table, "kernels": table})
    assert read["events"].equals(table) and read["kernels"].equals(table)
    both = (tmp_path / "t.arrow").stat().st_size
    _stored(tmp_path / "t.arrow", {"kernels": table})
    assert both < 1.7 * (tmp_path / "t.arrow").stat().st_size


def test_nulls_can_be_joined_filtered_and_counted() -> None:
    column = pa.chunked_array(
        [share_nulls(TEXT, 5), pa.array(["a"]).cast(TEXT)]
    ).unify_dictionaries()
    assert column.to_pylist() == [None] * 5 + ["a"]
    number = pa.chunked_array([share_nulls(pa.int64(), 4), pa.array([7])])
    assert (pc.sum(number).as_py(), number.null_count) == (7, 4)
    assert number.filter(pa.array([True, False, True, False, True])).to_pylist() == [None, None, 7]
    assert share_nulls(pa.string(), 3).to_pylist() == [None] * 3
