"""Chrome timelines of operation-level rows."""

import json
from typing import Any

import pytest

from htk.base.errors import MalformedTrace
from htk.parsers import operation_timeline
from htk.quantities.straggler.streamed import job_of
from tests.parsers.operation_files import SAMPLES, parsed, rows


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


def event(name: str, tid: int, ts: float, dur: float, pid: int = 9, **arguments: Any) -> Any:
    plain = {"step": 4, "model_chunk": 1, "mb_id": 2, "seq_id": 6}
    place = {"name": name, "cat": name, "ph": "X", "pid": pid, "tid": tid}
    return {**place, "ts": ts, "dur": dur, "args": plain | arguments}


def called(kind: str, name: str, pid: int, tid: int = 0) -> Any:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def test_every_field_of_an_operation() -> None:
    """Process 9 is replica 5; of its threads 1 is stage 3, 2 another tensor rank, 3 unnamed.
    Process 8 is not named: its number stands for the replica."""
    events = [
        event("forward-compute", 1, 10.0, 2.5),
        event("forward-compute", 2, 10.0, 2.5),
        event("backward-compute", 3, 20.0, 1.0, mb_id=-1),
        event("optimizer", 1, 30.0, 4.0, pid=8, step="x"),
        event("optimizer", 1, 40.0, 4.0, pid=8),
        event("optimizer", 1, True, 4.0, pid=8),
        {**event("optimizer", 1, 50.0, 4.0), "ph": "B"},
        {**event("optimizer", 1, 50.0, 4.0), "args": None},
        called("process_name", "DP rank [5]", 9),
        called("thread_name", "PP rank 3 TP rank 0", 9, 1),
        called("thread_name", "PP rank 3 TP rank 2", 9, 2),
        called("process_name", "PP rank 7", 9, 3),
        called("thread_name", "DP rank 7", 8),
    ]
    log = parsed(operation_timeline, json.dumps({"traceEvents": events}).encode())
    told = ("dp_rank", "stage", "chunk", "micro_batch", "step", "index_in_type", "type")
    found = [tuple(row[n] for n in (*told, "start_ns", "end_ns")) for row in rows(log)]
    assert found == [
        (5, 3, 1, 2, 4, 6, "forward_compute", 10_000, 12_500),
        (5, None, 1, None, 4, 6, "backward_compute", 20_000, 21_000),
        (8, None, 1, 2, 4, 6, "optimizer", 40_000, 44_000),
    ]
    kinds = {issue["kind"]: issue["count"] for issue in log.tables["parse_issues"].to_pylist()}
    assert kinds == {"without_step": 1, "invalid_time": 1}


def test_a_cut_timeline_keeps_its_whole_events() -> None:
    events = [event("forward-compute", 1, 10.0 * k, 5.0) for k in range(3)]
    data = json.dumps({"traceEvents": events}).encode()
    log = parsed(operation_timeline, data[: data.rindex(b"seq_id")])
    assert [row["start_ns"] for row in rows(log)] == [0, 10_000]
    (issue,) = log.tables["parse_issues"].to_pylist()
    assert issue["kind"] == "truncated"
