"""Timelines of memory by category, in both forms."""

import gzip
import json
from pathlib import Path

import pytest

from htk.errors import TraceError
from htk.trace.opening import OpenOptions, open_trace
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
