"""Snapshots of PyTorch's allocator."""

import os
import pickle
from pathlib import Path

import pytest

from htk.errors import TraceError
from htk.trace.opening import OpenOptions, open_trace
from tests.parsers.memory_rows import SAMPLES, rows

MIB = 1 << 20


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


def test_what_is_of_another_type_is_counted(tmp_path: Path) -> None:
    """Each mistake in a segment is one issue; what is right beside it counts."""
    block = {"size": 3 * MIB, "state": "active_allocated"}
    good = {"device": 0, "total_size": 4 * MIB, "blocks": [block]}
    shared: list = []
    for _ in range(60):
        shared = [shared, shared]
    bad = [
        good | {"blocks": 4},
        good | {"blocks": [block, None, "x"]},
        good | {"blocks": [block, block | {"size": shared}]},
        good | {"total_size": 1 << 60},
        good | {"device": shared},
        5,
    ]
    path = tmp_path / "held.pickle"
    for segments, allocated, reserved in ((bad, 12, 16), ([good, *bad], 15, 20)):
        path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [7]}))
        trace = open_trace(str(path), OpenOptions(cache=False))
        (row,) = trace.tables["memory"].to_pylist()
        assert row["allocated_bytes"] == MIB * allocated
        assert row["reserved_bytes"] == MIB * reserved
        issues = trace.tables["parse_issues"].to_pylist()
        assert {issue["kind"] for issue in issues} == {"mistyped_value"}
        assert sum(issue["count"] for issue in issues) == 8
