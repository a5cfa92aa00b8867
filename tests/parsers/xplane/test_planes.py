"""Planes of an XPlane file: times, and lengths beyond its head."""

from pathlib import Path
from typing import Any

from htk.base.core.parser import Head
from htk.parsers import xplane
from htk.traces.trace.trace import Trace
from sample_traces.xplane_export import LINE_NS, Plane, message
from tests.parsers.opened_files import opened, rows


def test_times_beyond_reason_are_left_out(tmp_path: Path) -> None:
    plane = Plane("/device:GPU:0")
    plane.line("Stream #1(Kernel)", [("far", 1 << 53, 5, {}), ("near", 5, 5, {})])
    (tmp_path / "t.pb").write_bytes(plane.bytes())
    assert [k["name"] for k in rows(opened(tmp_path / "t.pb"), "kernels")] == ["near", "far"]
    plane.line("Stream #1(Kernel)", [("backward", 9, -4, {})])
    (tmp_path / "t.pb").write_bytes(plane.bytes())
    assert len(rows(opened(tmp_path / "t.pb"), "kernels")) == 2


def test_a_plane_that_is_longer_than_the_head_is_recognised() -> None:
    start = message(1, message(2, "/host:CPU") + b"\x22" * 100_000)[: 64 * 1024]
    assert xplane.sniff(Head("x", start))
    assert not xplane.sniff(Head("x", message(1, message(2, "a plane of another kind"))))


def origin(of: Trace) -> int:
    base: int = rows(of, "ranks")[0]["base_time_ns"]
    return base + LINE_NS


def columns(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def test_every_field_of_what_a_gpu_did(tmp_path: Path) -> None:
    plane = Plane("/device:GPU:3", profile_start_time=7_000)
    shape = {"kernel_details": "regs:9 grid:4,5,6 block:7,8,9 occ_pct:1", "correlation_id": 11}
    moved = {"memcpy_details": "kind_src:device kind_dst:pinned size:64 dest:0 async:1"}
    events: list[Any] = [
        ("a.kd", 10, 5, shape),
        ("b", 20, 6, {}),
        ("MemcpyD2H", 30, 7, moved),
        ("MemcpyP2P", 40, 8, {}),
        ("fill", 50, 9, {"memset_details": "size:32"}),
        ("MemsetX", 60, 4, {"correlation_id": 0}),
        ("mark", 70, 0, {}),
    ]
    plane.line("Stream #12(Kernel)", events)
    plane.line("XLA Ops", events)
    (tmp_path / "t.pb").write_bytes(plane.bytes())
    trace = opened(tmp_path / "t.pb")
    begun, found = origin(trace), rows(trace, "kernels")
    assert begun == 7_000 + LINE_NS
    assert [(k["start_ns"] - begun, k["end_ns"] - k["start_ns"]) for k in found] == [
        (10, 5), (20, 6), (30, 7), (40, 8), (50, 9), (60, 4),
    ]  # fmt: skip
    told = ("name", "activity", "correlation", "size_bytes", "grid", "block")
    assert [columns(k, *told) for k in found] == [
        ("a", "kernel", 11, None, "[4,5,6]", "[7,8,9]"),
        ("b", "kernel", None, None, None, None),
        ("Memcpy DtoH (Device -> Pinned)", "copy", None, 64, None, None),
        ("Memcpy PtoP (Unknown -> Unknown)", "copy", None, None, None, None),
        ("fill", "set", None, 32, None, None),
        ("MemsetX", "set", None, None, None, None),
    ]
    assert {columns(k, "device", "stream") for k in found} == {(3, 12)}


def test_what_the_host_did_is_told_apart_by_name_and_step(tmp_path: Path) -> None:
    host, gpu = Plane("/host:CPU"), Plane("/device:GPU:0")
    gpu.line("Stream #1", [("k", 5, 5, {})])
    events: list[Any] = [
        ("cudaLaunchKernel", 10, 1, {"correlation_id": 4}),
        ("cuMemsetD8Async", 20, 2, {}),
        ("hipFree", 30, 3, {}),
        ("cudalike", 40, 4, {}),
        ("$a.py:3 f", 50, 5, {}),
        ("train", 60, 6, {"step_num": 0}),
    ]
    host.line("main", events)
    (tmp_path / "t.pb").write_bytes(gpu.bytes() + host.bytes())
    trace = opened(tmp_path / "t.pb")
    calls = rows(trace, "launches")
    assert [columns(c, "name", "api", "correlation", "thread") for c in calls] == [
        ("cudaLaunchKernel", "cuda_runtime", 4, "main"),
        ("cuMemsetD8Async", "cuda_driver", None, "main"),
        ("hipFree", "hip_runtime", None, "main"),
    ]
    assert [c["end_ns"] - c["start_ns"] for c in calls] == [1, 2, 3]
    (step,) = [a for a in rows(trace, "annotations") if a["step"] is not None]
    assert (step["step"], step["end_ns"] - step["start_ns"]) == (0, 6)
    (python,) = rows(trace, "python_calls")
    assert "a.py" in python["name"] and not python["name"].startswith("$")
    elsewhere = {r["name"] for t in ("cpu_ops", "annotations") for r in rows(trace, t)}
    assert "cudalike" in elsewhere


def test_times_that_are_absolute_are_not_moved_again(tmp_path: Path) -> None:
    """Times of 11 days and more cannot count from the profile's start."""
    for number, (start, base) in enumerate(((10**15 - LINE_NS - 1, 7_000), (10**15 - LINE_NS, 0))):
        plane = Plane("/device:GPU:0", profile_start_time=7_000)
        plane.line("Stream #1", [("k", start, 5, {})])
        path = tmp_path / f"{number}.pb"
        path.write_bytes(plane.bytes())
        (kernel,) = rows(opened(path), "kernels")
        assert kernel["start_ns"] == start + LINE_NS + base
