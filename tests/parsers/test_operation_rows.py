"""Operation-level rows of jobs: columns by name, units, losses counted, other files refused."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import htk
from htk.core.parser import Head, Parsed, ParseOptions, Source
from htk.errors import MalformedTrace, UnknownFormat
from htk.parsers import job_layout, operation_rows, operation_timeline
from htk.schema.operation_types import CODES, operation_type
from htk.straggler.streamed import job_of

SAMPLES = Path(__file__).parents[2] / "sample_traces"
ROW = {"rank": 3, "dp_rank": 1, "stage": 1, "step": 7, "type": "forward-compute"}


def parsed(parser: Any, data: bytes, name: str = "a file") -> Parsed:
    assert parser.sniff(Head(name, data[:65536], len(data) <= 65536))
    found: Parsed = parser.parse(Source(name, lambda: io.BytesIO(data)), ParseOptions())
    return found


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def rows(found: Parsed) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = found.tables["job_operations"].to_pylist()
    return listed


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"start_ns": 5_000_000_000, "duration_ns": 20}, (5_000_000_000, 5_000_000_020)),
        ({"start_us": 5, "duration_us": 2}, (5_000, 7_000)),
        ({"start_ms": 5.5, "end_ms": 6.25}, (5_500_000, 6_250_000)),
        ({"start_ts": 1.5, "duration": 0.25}, (1_500_000_000, 1_750_000_000)),
        ({"start": 1_700_000_000_123_456_789, "duration": 9}, (1_700_000_000_123_456_789, None)),
        ({"start": 1_700_000_000_123_456, "duration": 9}, (1_700_000_000_123_456_000, None)),
        ({"ts": 1_700_000_000_123, "dur": 2}, (1_700_000_000_123_000_000, None)),
        ({"start_ns": 4_000, "duration_us": 1.5}, (4_000, 5_500)),
        ({"start_s": 1_700_000_000.25, "duration_ms": 1}, (1_700_000_000_250_000_000, None)),
    ],
)
def test_units_are_those_of_the_names_else_of_the_numbers(
    times: dict[str, float], expected: tuple[int, int | None]
) -> None:
    (row,) = rows(parsed(operation_rows, lines(ROW | times)))
    assert row["start_ns"] == expected[0]
    if expected[1] is not None:
        assert row["end_ns"] == expected[1]
    assert row["end_ns"] > row["start_ns"]


def test_whole_numbers_that_tell_no_unit_are_refused() -> None:
    with pytest.raises(MalformedTrace, match="call it start_ns, start_us, start_ms or start_s"):
        parsed(operation_rows, lines(ROW | {"start": 12345, "duration": 9}))


def test_a_unit_that_is_asked_for_holds_where_no_name_says_it(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for times in ({"start": 12345, "duration": 9}, {"start": 12345.0, "duration": 9.0}):
        path.write_bytes(lines(ROW | times))
        table = htk.open(path, time_unit="us").tables["job_operations"]
        assert (table["start_ns"].to_pylist(), table["end_ns"].to_pylist()) == (
            [12_345_000], [12_354_000],
        )  # fmt: skip
    path.write_bytes(lines(ROW | {"start_ms": 3, "duration_ms": 9}))
    table = htk.open(path, time_unit="us").tables["job_operations"]
    assert table["end_ns"].to_pylist() == [12_000_000], "a name that says its unit knows better"
    with pytest.raises(htk.HtkError, match="time_unit='hours': expected one of s, ms, us, ns"):
        htk.open(path, time_unit="hours")


def test_columns_go_by_many_names() -> None:
    csv = (
        "global_rank,dp,pp,mc,mb_id,iteration,optype,start_us,duration_us\n"
        "5,2,1,0,3,40,backward-send,10.5,2.25\n"
        "5,2,1,0,-1,40,optimizer-clip-main-grad,20,1\n"
    )
    first, second = rows(parsed(operation_rows, csv.encode()))
    assert first == {
        "rank": 5, "dp_rank": 2, "stage": 1, "chunk": 0, "micro_batch": 3, "step": 40,
        "index_in_type": None, "type": "backward_send", "start_ns": 10_500, "end_ns": 12_750,
    }  # fmt: skip
    assert (second["type"], second["micro_batch"]) == ("clip_grads", None)


def test_each_type_and_its_other_names() -> None:
    assert operation_type("optimizer-clip-main-grad") == "clip_grads"
    assert operation_type("Forward Compute") == operation_type("fwd") == "forward_compute"
    assert operation_type("batch-generator") == "data_loading"
    assert operation_type("my-own") == "my-own"
    assert all(operation_type(name) == name for name in CODES)


def test_ranks_without_stages_are_replicas() -> None:
    plain = {"rank": 6, "step": 0, "type": "forward", "start_ns": 10, "end_ns": 30}
    (row,) = rows(parsed(operation_rows, lines(plain)))
    assert (row["dp_rank"], row["stage"], row["rank"]) == (6, 0, 6)


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
    with pytest.raises(MalformedTrace, match="cut or broken Parquet file") as raised:
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


def test_a_timeline_holds_what_its_threads_and_processes_say() -> None:
    data = (SAMPLES / "operation_timeline/slow_worker.json").read_bytes()
    found = parsed(operation_timeline, data)
    table = found.tables["job_operations"]
    workers = set(zip(table["dp_rank"].to_pylist(), table["stage"].to_pylist(), strict=True))
    assert workers == {(replica, stage) for replica in range(3) for stage in range(2)}
    job = job_of(table)
    assert job.replayed.tolist() == pytest.approx(job.recorded.tolist(), abs=5_000)  # us, rounded
    peers = data.replace(b"TP rank 0", b"TP rank 1")
    with pytest.raises(MalformedTrace, match="without operations"):
        parsed(operation_timeline, peers)


def test_a_layout_as_yaml_or_json() -> None:
    expected = {"dp_size": 3, "pp_size": 2, "tp_size": 8, "world_size": 48}
    yaml = (SAMPLES / "job_layout/layout.yaml").read_bytes()
    for data in (yaml, json.dumps(expected | {"trial_name": "sample"}).encode()):
        (row,) = parsed(job_layout, data).tables["job_layouts"].to_pylist()
        assert row["job"] == "sample"
        assert {name: row[name] for name in expected} == expected
    assert not job_layout.sniff(Head("x", b"dp_size: many\npp_size: 4\n", True))
    assert not job_layout.sniff(Head("x", yaml, False)), "longer than a head: no layout"


def test_a_layout_holds_the_facts_of_the_list_and_no_others() -> None:
    facts = {"slurm_job_id": "4711", "git_commit": "a" * 40}
    claimed = facts | {"password": "x", "slurm_partition": "p" * 500, "slurm_nodes": 3}
    sizes = {"dp_size": 3, "pp_size": 2}
    as_json = json.dumps(sizes | {"htk_environment": claimed}).encode()
    as_yaml = f"dp_size: 3\npp_size: 2\nhtk_environment: {json.dumps(claimed)}\n".encode()
    for data in (as_json, as_yaml):
        (row,) = parsed(job_layout, data).tables["job_layouts"].to_pylist()
        assert json.loads(row["environment"]) == facts
        assert (row["dp_size"], row["pp_size"]) == (3, 2)
    for text in ("htk_environment: {", "htk_environment: 7", "htk_environment: {}"):
        data = f"dp_size: 3\npp_size: 2\n{text}\n".encode()
        (row,) = parsed(job_layout, data).tables["job_layouts"].to_pylist()
        assert row["environment"] is None
