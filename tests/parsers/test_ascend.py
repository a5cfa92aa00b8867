"""A small timeline of Ascend's by hand, its own sums, and damage to it."""

import io
import json
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.core.parser import Head, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.parsers import ascend
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace

SAMPLE = Path(__file__).parents[2] / "sample_traces/ascend/trace_view.json"


@pytest.fixture(scope="module")
def sample() -> Trace:
    return open_trace(SAMPLE, OpenOptions(cache=False))


def test_tasks_copies_and_collectives_are_activities(sample: Trace) -> None:
    rows = sample.tables["kernels"].sort_by("start_ns").to_pylist()
    found = [
        (row["name"].split("_")[-1], row["kind"], row["stream"], row["end_ns"] - row["start_ns"])
        for row in rows
    ]
    assert found == [
        ("MatMulV2", "compute", 2, 30_250),
        ("Add", "compute", 2, 4_500),
        ("ASYNC", "memory", 2, 6_000),
        ("1", "comm", 0, 40_000),
    ]
    assert [row["name"] for row in sample.tables["syncs"].to_pylist()] == ["EVENT_WAIT_SQE"]


def test_arrows_tell_the_launch_and_the_operator(sample: Trace) -> None:
    """One launch was recorded as a call of CANN; of the others the arrow is all there is."""
    names = [sample.tables[table]["name"].to_pylist() for table in ("launches", "cpu_ops")]
    links = sample.tables["kernel_links"].to_pylist()
    launches, operators = (
        [None if link[row] is None else of[link[row]] for link in links]
        for row, of in zip(("launch_row", "op_row"), names, strict=True)
    )
    assert launches == ["Node@launch", "HostToDevice", "HostToDevice", None]
    assert operators == ["aten::mm", "aten::add", "aten::copy_", None]
    assert [link["launch_start_ns"] for link in links][1] == 1_760_000_000_000_060_000


def test_busy_time_is_that_of_its_own_overlap_analysis(sample: Trace) -> None:
    row = ask_trace(sample, "time_breakdown").to_pylist()[0]
    assert (row["compute_ns"], row["comm_ns"], row["exposed_memory_ns"]) == (34_750, 40_000, 6_000)


def test_what_is_not_read_is_counted(sample: Trace) -> None:
    """The planes of HCCL, which its groups hold."""
    issues = sample.tables["parse_issues"].to_pylist()
    assert [(issue["kind"], issue["count"]) for issue in issues] == [("unread_events", 2)]
    assert "Communication" in issues[0]["text"]


def test_ranks_of_a_job_stand_beside_their_folders(tmp_path: Path) -> None:
    for rank in (0, 3):
        folder = tmp_path / f"host_{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT"
        folder.mkdir(parents=True)
        (folder.parent / f"profiler_info_{rank}.json").write_text("{}")
        (folder / "trace_view.json").write_bytes(SAMPLE.read_bytes())
    ranks = open_trace(tmp_path, OpenOptions(cache=False)).tables["ranks"].to_pylist()
    assert [(row["rank"], row["rank_from"]) for row in ranks] == [
        (0, "profiler_info"), (3, "profiler_info"),
    ]  # fmt: skip


def test_damage_is_refused_or_read() -> None:
    whole = SAMPLE.read_bytes()
    for data in (whole[: len(whole) // 2], b"[]", b'[{"ts": 1}', b"[1, null]"):
        with pytest.raises(MalformedTrace):
            ascend.parse(Source("t.json", lambda data=data: io.BytesIO(data)), ParseOptions())
    broken = json.loads(whole)
    for event in broken:
        event.pop("args", None)
    text = json.dumps(broken).encode()
    read = ascend.parse(Source("t.json", lambda: io.BytesIO(text)), ParseOptions())
    assert read.tables["cpu_ops"].num_rows == 3


def test_other_arrays_of_events_are_not_taken() -> None:
    kineto = b'[{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1704161511420306.491, "dur": 1}]'
    assert not ascend.sniff(Head("t.json", kineto))
    assert ascend.sniff(Head("t.json", SAMPLE.read_bytes()))
