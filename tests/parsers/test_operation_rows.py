"""Operation-level rows of jobs: columns by name, units, losses counted, other files refused."""

import io
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import htk
from htk.base.errors import MalformedTrace, UnknownFormat
from htk.base.schema.operation_types import CODES, operation_type
from htk.parsers import operation_rows
from htk.quantities.straggler.streamed import job_of
from tests.parsers.operation_files import ROW, SAMPLES, lines, parsed, rows


def test_each_type_and_its_other_names() -> None:
    assert operation_type("optimizer-clip-main-grad") == "clip_grads"
    assert operation_type("Forward Compute") == operation_type("fwd") == "forward_compute"
    assert operation_type("batch-generator") == "data_loading"
    assert operation_type("my-own") == "my-own"
    assert all(operation_type(name) == name for name in CODES)


def test_broken_rows_are_left_out_and_counted() -> None:
    good = ROW | {"start_ns": 10, "end_ns": 30}
    backwards, lost = ROW | {"start_ns": 30, "end_ns": 10}, ROW | {"start_ns": None, "end_ns": 10}
    far = ROW | {"start_ns": 1 << 62, "end_ns": (1 << 62) + 1}
    data = lines(good, backwards, lost, far, good | {"step": None}) + b'\n{"rank": 3, "dp'
    found = parsed(operation_rows, data)
    assert len(rows(found)) == 1
    issues = {r["kind"]: r["count"] for r in found.tables["parse_issues"].to_pylist()}
    assert issues == {"invalid_time": 3, "without_step": 1, "broken_row": 1}


def test_a_parquet_file_of_something_else_is_no_trace() -> None:
    buffer = io.BytesIO()
    parquet.write_table(pa.table({"rank": [1], "loss": [0.5]}), buffer)
    with pytest.raises(UnknownFormat, match="without operation-level rows"):
        parsed(operation_rows, buffer.getvalue())


def test_a_parquet_file_that_is_cut_is_refused_in_a_line() -> None:
    whole = (SAMPLES / "operation_rows/slow_worker.parquet").read_bytes()
    with pytest.raises(MalformedTrace, match="truncated or damaged Parquet file") as raised:
        parsed(operation_rows, whole[: len(whole) // 2])
    assert "\n" not in str(raised.value)


def test_a_parquet_file_that_claims_too_many_rows_is_refused() -> None:
    """A few kilobytes of runs that unpack to a hundred times as many rows."""
    count = 1_000_000
    zeros = pa.array([0] * count, pa.int64())
    names = ("rank", "step", "type", "start_ns", "end_ns")
    buffer = io.BytesIO()
    parquet.write_table(pa.table({name: zeros for name in names}), buffer, compression="zstd")
    assert len(buffer.getvalue()) < count // 8
    with pytest.raises(MalformedTrace, match="claims 1,000,000 rows"):
        parsed(operation_rows, buffer.getvalue())


def test_a_parquet_file_is_read_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit is that of the first rows, also where later ones would tell another."""
    first = 1_700_000_000_000_000  # us
    starts = [first, first + 10, first + 20, 30, first + 40]
    table = pa.table({
        "rank": [0, 1, 2, 3, 4], "step": [7, 7, 7, 7, 8], "duration": [5, 6, 7, 8, -9],
        "type": ["fwd", "bwd", "fwd", "opt", "gc"], "start": starts,
    })  # fmt: skip
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    alone = rows(parsed(operation_rows, buffer.getvalue()))
    monkeypatch.setattr(operation_rows, "_ROWS_AT_ONCE", 2)
    found = parsed(operation_rows, buffer.getvalue())
    assert rows(found) == alone and len(alone) == 4
    assert [row["start_ns"] for row in alone] == [1000 * start for start in starts[:4]]
    assert [row["type"] for row in alone] == [
        "forward_compute", "backward_compute", "forward_compute", "optimizer",
    ]  # fmt: skip
    issues = found.tables["parse_issues"].to_pylist()
    assert [(row["kind"], row["count"]) for row in issues] == [("invalid_time", 1)]


def test_files_of_each_rank_are_one_job(tmp_path: Path) -> None:
    whole = parquet.read_table(SAMPLES / "operation_rows/slow_worker.parquet")
    ranks = whole["rank"].to_pylist()
    for rank in sorted(set(ranks)):
        mine = whole.filter([r == rank for r in ranks])
        parquet.write_table(mine, tmp_path / f"operations-rank{rank}.0.parquet")
    (tmp_path / "layout.yaml").write_bytes((SAMPLES / "job_layout/layout.yaml").read_bytes())
    trace = htk.open(tmp_path)
    one = htk.open(SAMPLES / "operation_rows/slow_worker.parquet")
    assert job_of(trace.tables["job_operations"]).recorded.tolist() == (
        job_of(one.tables["job_operations"]).recorded.tolist()
    )
    answer = htk.run(trace, "straggler_slowdown")
    assert answer.coverage["gpus"] == 48
    chosen = htk.run(trace.sel(steps=[11, 12]), "straggler_slowdown").table
    assert chosen["step"].to_pylist() == [None, 11, 12]
