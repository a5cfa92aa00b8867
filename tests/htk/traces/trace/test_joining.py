"""Rows of several files at once, by hand and against the tables of each file."""

from pathlib import Path

import pyarrow as pa
import pytest

from htk.base.columns.concatenate import concatenate_tables
from htk.base.core.parser import Parsed
from htk.base.io.entry import MemoryEntry
from htk.base.schema import DERIVED, TABLES
from htk.traces.trace.file import TraceFile
from htk.traces.trace.joining import rows_before, rows_of_all
from htk.traces.trace.opening import OpenOptions, open_trace

RANKS = Path(__file__).parents[4] / "sample_traces/simulated/llama2-7b"
KERNELS = pa.schema(
    [
        ("event", pa.int64()),
        ("start_ns", pa.int64()),
        ("name", TABLES["kernels"].field("name").type),
    ]
)


def kernels(*names: str) -> pa.Table:
    """Return kernels of one file, one a ns."""
    numbers = list(range(len(names)))
    texts = pa.array(names, pa.string()).dictionary_encode()
    return pa.table([numbers, numbers, texts], schema=KERNELS)


def file(rank: int | None, cycle: int, table: pa.Table) -> TraceFile:
    entry = MemoryEntry(Parsed({"kernels": table}, rank, None, {}))
    return TraceFile(entry, f"{rank}-{cycle}", rank, cycle)


def test_by_hand() -> None:
    tables = [kernels("a", "b"), kernels(), kernels("b", "c", "b")]
    files = [file(3, 0, tables[0]), file(4, 0, tables[1]), file(None, 1, tables[2])]
    joined = rows_of_all(TABLES["kernels"], files, tables, {})
    assert joined is not None
    joined.validate(full=True)
    assert joined.schema.equals(TABLES["kernels"], check_metadata=True)
    assert joined.select(("rank", "cycle", "event", "name", "grid")).to_pydict() == {
        "rank": [3, 3, None, None, None],
        "cycle": [0, 0, 1, 1, 1],
        "event": [0, 1, 0, 1, 2],
        "name": ["a", "b", "b", "c", "b"],
        "grid": [None] * 5,
    }


def test_numbers_of_rows_count_those_of_the_files_before() -> None:
    schema = DERIVED["annotation_links"]
    links = [
        pa.table({"parent_row": pa.array(rows, pa.int64())}) for rows in ([None, 0], [], [1, None])
    ]
    files = [file(rank, 0, kernels()) for rank in range(3)]
    joined = rows_of_all(schema, files, links, {"parent_row": [0, 2, 7]})
    assert joined is not None
    assert joined["parent_row"].to_pylist() == [None, 0, 8, None]


def test_files_with_other_columns_are_not_joined_so() -> None:
    tables = [kernels("a"), kernels("b").drop_columns(["start_ns"])]
    files = [file(rank, 0, table) for rank, table in enumerate(tables)]
    assert rows_of_all(TABLES["kernels"], files, tables, {}) is None
    nothing = rows_of_all(TABLES["kernels"], files, [None, kernels()], {})
    assert nothing is not None
    assert nothing.equals(TABLES["kernels"].empty_table())


@pytest.mark.parametrize("name", ["kernels", "collectives", "kernel_links", "op_links", "stalls"])
def test_as_the_tables_of_each_file(name: str) -> None:
    trace = open_trace([*RANKS.glob("rank[013].*")], OpenOptions(cache=False))
    schema = (TABLES | DERIVED)[name]
    added = rows_before(schema, trace.files)
    assert all(part.holds_whole(name) for part in trace.files)
    joined = rows_of_all(schema, trace.files, [part.own(name) for part in trace.files], added)
    expected = [part.table(name) for part in trace.files]
    assert joined is not None
    assert joined.num_rows
    assert joined.equals(concatenate_tables(schema, expected, added, by_numpy=True))
