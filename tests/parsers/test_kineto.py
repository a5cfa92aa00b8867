"""PyTorch profiler traces: told by their first bytes, parsed into tables, with what was mended."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from htk.base.core.parser import Head, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.parsers import kineto
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, launch, of_rank, op, write

BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    "data",
    [
        b'{"schemaVersion": 1,\n "deviceProperties": [',
        b'\n {"traceEvents":[{"ph":"X","ts":1}]}',
        BOM + b'{"distributedInfo" : {"rank": 0}}',
        b'[{"ph": "X", "name": "a", "ts": 1}]',
        BOM + b' [ {"name": "a", "ph": "X", "ts": 1}]',
    ],
)
def test_traces_of_all_ages_are_told(data: bytes) -> None:
    assert kineto.sniff(Head("a file", data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"traceevents": []}',
        b'"traceEvents": [',
        b'[{"ph": "X", "name": "no time"}]',
        b'{"communicators": [], "schemaVersion": 1}',
        b'[{"name": "a", "cat": "COLL", "ph": "b", "ts": 1}]',  # of NCCL's profiler plugin
        b'{"traceEvents": [{"model_chunk": 1}]}',  # a timeline of operations
    ],
)
def test_files_of_others_are_not_taken(data: bytes) -> None:
    assert not kineto.sniff(Head("a file", data))


def parsed(*events: dict[str, Any], text: bytes | None = None, **header: Any) -> Any:
    data = text or json.dumps({"schemaVersion": 1, **header, "traceEvents": list(events)}).encode()
    return kineto.parse(Source("rank7.json", lambda: io.BytesIO(data)), ParseOptions())


def issues(*events: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """First row and number of events of each kind of damage."""
    rows = parsed(*events).tables["parse_issues"].to_pylist()
    return {row["kind"]: (row["event"], row["count"]) for row in rows}


def test_a_recording_reaches_from_its_first_to_its_last_event() -> None:
    answer = parsed(
        op("aten::mm", 20, 5),
        launch(1, 22),
        kernel("gemm", 30, 40.5, 1),
        distributedInfo={"rank": 3, "world_size": 8},
    )
    assert (answer.rank, answer.world_size, answer.others) == (3, 8, ())
    assert (answer.facts["start_ns"], answer.facts["end_ns"]) == (20_000, 70_500)
    assert (answer.facts["events"], answer.facts["truncated"]) == (3, False)
    assert answer.tables["kernels"]["name"].to_pylist() == ["gemm"]


def test_what_was_mended_is_counted_by_kind() -> None:
    """Rows 1 to 5 are damaged, row 3 and 4 alike."""
    whole = op("aten::mm", 20, 5)
    no_length = {k: v for k, v in whole.items() if k != "dur"}
    untimed = {k: v for k, v in whole.items() if k != "ts"}
    nameless = {k: v for k, v in whole.items() if k != "ph"}
    long = whole | {"dur": 2 * 86_400e6}
    events = (whole, no_length, untimed, whole | {"dur": -3}, whole | {"dur": -4}, long, nameless)
    assert issues(*events) == {
        "no_phase": (6, 1),
        "no_duration": (1, 1),
        "negative_duration": (3, 2),
        "overflowed_duration": (5, 1),
        "no_time": (2, 1),
    }
    lengths = {
        row["event"]: row["end_ns"] - row["start_ns"]
        for row in parsed(*events).tables["cpu_ops"].to_pylist()
    }
    assert lengths == {0: 5000, 1: 0, 3: 0, 4: 0, 5: 0}
    assert issues(whole) == {}


def test_json_without_events_says_what_was_expected() -> None:
    with pytest.raises(MalformedTrace, match=r"rank7\.json: JSON without traceEvents, expected"):
        parsed(text=b'{"schemaVersion": 1}')


def test_queues_of_xpu_are_streams(tmp_path: Path) -> None:
    """Which names no stream, and draws all queues on row 0."""
    queued = [kernel("gemm", 10 * k, 5, k + 1, stream=0) for k in range(2)]
    for k, event in enumerate(queued):
        event["args"] = {"device": 0, "correlation": k + 1, "sycl queue": 64 + k}
    trace = open_trace(write(tmp_path / "t.json", *queued, **of_rank(0)), OpenOptions(cache=False))
    assert trace.tables["kernels"]["stream"].to_pylist() == [64, 65]
