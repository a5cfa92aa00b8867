"""Timelines of memory by category, in both forms."""

import gzip
import json
from pathlib import Path

import pytest

from htk.base.errors import TraceError
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.parsers.memory_rows import SAMPLES, rows


def test_both_forms_of_a_timeline_agree() -> None:
    """They were exported from one recording; the second was cut after 60 moments."""
    raw, plain = (
        rows(SAMPLES / "memory_timeline" / name) for name in ("rank0.raw.json.gz", "rank1.json")
    )
    last = plain[-1]["time_ns"]
    until = [r for r in raw if r["time_ns"] // 1000 * 1000 <= last]
    assert sum(r["size_bytes"] for r in until) == plain[-1]["allocated_bytes"]
    assert raw[0]["category"] == "parameter"


def test_a_cut_timeline_keeps_its_whole_events(tmp_path: Path) -> None:
    path = tmp_path / "cut.raw.json.gz"
    path.write_bytes(gzip.compress(b"[[-1, 1, 100, 0], [5000, 2, 40, 4], [6000, 4, -4"))
    found = open_trace(str(path), OpenOptions(cache=False))
    assert [r["allocated_bytes"] for r in found.tables["memory"].to_pylist()] == [100, 140]
    assert found.tables["parse_issues"]["kind"].to_pylist() == ["truncated"]


def test_a_timeline_of_nonsense_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([[1795255041632534, 1795255041632535], "nonsense"]))
    with pytest.raises(TraceError, match="memory timeline"):
        open_trace(str(path), OpenOptions(cache=False)).tables["memory"]


def test_a_raw_timeline_by_hand(tmp_path: Path) -> None:
    """100 bytes were there before; 40 are allocated, change their category, and are freed, once
    written as a negative size and once not. Events are put in order of time."""
    events = [
        [-1, 1, 100, 0], [9_000, 4, -40, 5], [5_000, 2, 40, 4], [7_000, 3, -40, 4],
        [7_000, 3, 40, 5], [9_500, 4, 100, 0], [5_500, 2, 3, 7], ["x", 2, 3, 4], [6_000, 2, 3],
    ]  # fmt: skip
    path = tmp_path / "rank0.raw.json"
    path.write_text(json.dumps(events))
    trace = open_trace(str(path), OpenOptions(cache=False))
    told = ("event", "time_ns", "size_bytes", "allocated_bytes", "category")
    found = [tuple(r[name] for name in told) for r in trace.tables["memory"].to_pylist()]
    assert found == [
        (0, 5_000, 100, 100, "parameter"),
        (1, 5_000, 40, 140, "activation"),
        (2, 5_500, 3, 143, "unknown"),
        (3, 7_000, -40, 103, "activation"),
        (4, 7_000, 40, 143, "gradient"),
        (5, 9_000, -40, 103, "gradient"),
        (6, 9_500, -100, 3, "parameter"),
    ]
    (issue,) = trace.tables["parse_issues"].to_pylist()
    assert (issue["kind"], issue["count"]) == ("broken_event", 2)


def test_a_plain_timeline_by_hand(tmp_path: Path) -> None:
    """Times are microseconds; the first column of totals is none of a category."""
    start = 1_795_255_041_632_534
    totals = [[9, 5, 0, 0, 0, 0, 0, 0, 0], [8, 5, 0, 2, 0, 0, 0, 0, 1], [7, 4, 0, 2, 0, 0, 0, 0, 3]]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps([[start, start + 1, start + 5], totals]))
    told = ("time_ns", "size_bytes", "allocated_bytes", "category")
    first = 1_000 * start
    assert [tuple(r[name] for name in told) for r in rows(path)] == [
        (first, 5, 5, "parameter"),
        (first + 1_000, 2, 7, "input"),
        (first + 1_000, 1, 8, "unknown"),
        (first + 5_000, -1, 7, "parameter"),
        (first + 5_000, 2, 9, "unknown"),
    ]
