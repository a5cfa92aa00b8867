"""Snapshots of PyTorch's allocator."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from htk.base.errors import TraceError
from htk.traces.trace.opening import OpenOptions, open_trace
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


def test_a_history_of_two_devices_by_hand(tmp_path: Path) -> None:
    """Device 0 ends with 7 bytes in use of 40, and its history adds 10 - 4 and 32 - 8: before it
    there were 1 in use of 16. Device 1 ends with 5 of 6 and adds nothing."""

    def event(action: str, size: int, micros: int, **more: Any) -> dict[str, Any]:
        return {"action": action, "size": size, "time_us": micros, "addr": 64 + micros, **more}

    code = [{"filename": f"f{k}.py", "line": k, "name": f"g{k}"} for k in range(14)]
    frames = [{"filename": "a.cpp", "line": 1, "name": "x"}, *code[:1], "odd", *code[1:]]
    history = [
        event("segment_alloc", 24, 10),
        event("segment_map", 8, 11),
        event("alloc", 10, 12, frames=frames),
        event("free_requested", 4, 13),  # it may still be in use by another stream
        event("free_completed", 4, 14),
        event("segment_unmap", 5, 15),
        event("segment_free", 3, 16),
        event("oom", 99, 17),
        event("snapshot", 0, 18),
    ]
    states = [(3, "active_allocated"), (2, "active_pending_free"), (2, "active_awaiting_free")]
    blocks = [{"size": size, "state": state} for size, state in [*states, (9, "inactive")]]
    segments = [
        {"device": 0, "total_size": 30, "blocks": blocks},
        {"device": 1, "total_size": 6, "blocks": [{"size": 5, "state": "active_allocated"}]},
        {"device": 0, "total_size": 10, "blocks": []},
    ]
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [history, []]}))
    found = rows(path)
    assert [(r["device"], r["name"], r["size_bytes"]) for r in found] == [
        (0, "[memory]", 1),  # what was there before
        *[(0, "[memory]", size) for size in (0, 0, 10, 0, -4, 0, 0)],
        (0, "[OutOfMemory]", 99),
        (0, "[memory]", 0),
        (1, "[memory]", 5),
    ]
    assert [r["allocated_bytes"] for r in found] == [1, 1, 1, 11, 11, 7, 7, 7, 7, 7, 5]
    assert [r["reserved_bytes"] for r in found] == [16, 40, 48, 48, 48, 48, 43, 40, 40, 40, 6]
    assert [r["time_ns"] for r in found] == [*[1_000 * k for k in (10, *range(10, 19))], 0]
    assert [r["address"] for r in found] == [None, *[str(74 + k) for k in range(9)], None]
    stacks = [r["call_stack"] for r in found]
    assert stacks[3] == ";".join(f"f{k}.py({k}): g{k}" for k in range(12))  # no more than 12
    assert {stack for k, stack in enumerate(stacks) if k != 3} == {None}
    assert [r["event"] for r in found] == list(range(11))


@pytest.mark.parametrize(
    "wrong",
    [{"size": "four"}, {"size": 1 << 50}, {"time_us": None}, {"time_us": 1 << 61}, {"action": 3}],
)
def test_events_without_a_size_a_time_or_an_action_are_counted(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    good = {"action": "alloc", "size": 4, "time_us": 7, "addr": 1}
    path = tmp_path / "odd.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [[good, good | wrong, good]]}))
    trace = open_trace(str(path), OpenOptions(cache=False))
    assert [r["size_bytes"] for r in trace.tables["memory"].to_pylist()] == [-8, 4, 4]
    (issue,) = trace.tables["parse_issues"].to_pylist()
    assert (issue["kind"], issue["count"]) == ("broken_event", 1)
