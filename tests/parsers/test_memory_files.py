"""Exported memory timelines and CUDA memory snapshots."""

import gzip
import json
import os
import pickle
from pathlib import Path

import pytest

from htk.errors import TraceError
from htk.trace.opening import OpenOptions, open_trace

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
MIB = 1 << 20


def rows(path: Path) -> list[dict]:
    return open_trace(str(path), OpenOptions(cache=False)).tables["memory"].to_pylist()


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


def test_snapshot() -> None:
    """A MiB before the history, 4 and 8 allocated, 4 freed, and an allocation that failed."""
    found = rows(SAMPLES / "memory_snapshot" / "rank0_snapshot.pickle")
    kept = [r for r in found if r["name"] == "[memory]" and r["size_bytes"]]
    assert [r["allocated_bytes"] // MIB for r in kept] == [1, 5, 13, 9]
    assert [r["reserved_bytes"] // MIB for r in found] == [2, 22, 22, 22, 22, 22, 22]
    assert kept[1]["call_stack"] == "/app/train.py(10): forward"
    assert [r["size_bytes"] // MIB for r in found if r["name"] == "[OutOfMemory]"] == [64]


class _Evil:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("owned",)


def test_a_snapshot_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[_Evil()]]}))
    with pytest.raises(TraceError, match="mkdir"):
        open_trace(str(path), OpenOptions(cache=False)).tables["memory"]
    assert not (tmp_path / "owned").exists()


def test_a_snapshot_without_history_tells_what_is_held(tmp_path: Path) -> None:
    block = {"size": 3 * MIB, "state": "active_allocated"}
    segment = {
        "device": 1,
        "total_size": 4 * MIB,
        "blocks": [block, {"size": MIB, "state": "inactive"}],
    }
    path = tmp_path / "held.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": []}))
    (row,) = rows(path)
    assert (row["device"], row["allocated_bytes"], row["reserved_bytes"]) == (1, 3 * MIB, 4 * MIB)
