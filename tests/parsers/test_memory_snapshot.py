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
