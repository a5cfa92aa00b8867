"""How fast copies are, by hand."""

from pathlib import Path

import pytest

from htk.analyses.kernels.memory_bandwidth import memory_bandwidth
from htk.answers.ask import ask_trace
from htk.base.core.analysis import coverage_of
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import kernel, write
from tests.tables import make

PINNED = "Memcpy HtoD (Pinned -> Device)"


def copy(name: str, start: int, length: int, size: int | None, **more: float) -> dict[str, object]:
    activity = "set" if name.startswith("Memset") else "copy"
    row = {"name": name, "activity": activity, "start_ns": start, "end_ns": start + length}
    return {**row, "size_bytes": size, **more}


def test_by_hand() -> None:
    rows = [
        copy(PINNED, 0, 100, 2_000_000),
        copy(PINNED, 50, 100, 1_000),  # overlaps the first by half
        copy("Memcpy DtoH (Device -> Pageable)", 300, 10, None),
        copy("Memset (Device)", 400, 10, None, bandwidth_gbps=50.0),
        {"name": "gemm", "activity": "kernel", "start_ns": 0, "end_ns": 1000},
    ]
    found = {r["direction"]: r for r in memory_bandwidth(make("kernels", rows)).to_pylist()}
    up = found["HtoD"]
    assert (up["memory"], up["count"], up["size_bytes"]) == ("Pinned -> Device", 2, 2_001_000)
    assert (up["total_ns"], up["busy_ns"], up["small_count"]) == (200, 150, 1)
    assert up["bandwidth_gbps"] == pytest.approx(2_001_000 / 150)
    assert up["copy_gbps_max"] == pytest.approx(20_000)
    down = found["DtoH"]
    assert (down["size_bytes"], down["bandwidth_gbps"], down["without_size"]) == (None, None, 1)
    assert found["set"]["size_bytes"] == 500


@pytest.mark.parametrize(("begin", "off"), [(5000, 1000), (5001, None)])
def test_rates_of_whole_microseconds_say_how_far_off_durations_are(
    begin: int, off: int | None
) -> None:
    rows = [copy(PINNED, begin, 1000, 4096), copy(PINNED, 9000, 2000, 4096)]
    facts = coverage_of(memory_bandwidth(make("kernels", rows)))
    assert facts.get("durations_off_by_up_to_ns") == off


def test_xpu_names() -> None:
    """Pageable memory of the host and its pinned, as Level Zero's copies say it."""
    ways = ("M2D", "D2H", "D2D")
    name = "zeCommandListAppendMemoryCopy({})".format
    kernels = make("kernels", [copy(name(way), 10 * k, 10, 10) for k, way in enumerate(ways)])
    found = memory_bandwidth(kernels).to_pylist()
    assert {(row["direction"], row["memory"]) for row in found} == {
        ("HtoD", "Pageable -> Device"),
        ("DtoH", "Device -> Pinned"),
        ("DtoD", "Device -> Device"),
    }


def test_hip_names() -> None:
    found = memory_bandwidth(make("kernels", [copy("CopyHostToDevice", 0, 10, 10)])).to_pylist()
    assert found[0]["direction"] == "HtoD"


@pytest.mark.parametrize("engine", ["compiled", "pure"])
def test_directions_beside_the_name(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTK_ENGINE", engine)
    ways = ("HtoD", "DtoH", "HtoD", None)
    copies = [kernel("Memcpy", 10 * k, 5) | {"cat": "gpu_memcpy"} for k in range(len(ways))]
    for event, way in zip(copies, ways, strict=True):
        event["args"] |= {"bytes": 1000} | ({"copy kind": way} if way else {})
    path = write(tmp_path / "t.json", *copies)
    trace = open_trace(path, OpenOptions(cache=False))
    rows = ask_trace(trace, "memory_bandwidth").to_pylist()
    assert {r["direction"]: (r["count"], r["size_bytes"]) for r in rows} == {
        "HtoD": (2, 2000), "DtoH": (1, 1000), "copy": (1, 1000),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("direction", "source", "target", "memory"),
    [
        ("HtoD", "pageable", "device", "Pageable -> Device"),
        ("DtoH", "device", "pinned", "Device -> Pinned"),
        ("HtoD", "device", "device", None),  # the direction rules that out
        ("HtoD", None, "device", None),
    ],
)
def test_kinds_of_memory_beside_the_name(
    direction: str, source: str | None, target: str, memory: str | None, tmp_path: Path
) -> None:
    event = kernel("Memcpy", 0, 5) | {"cat": "gpu_memcpy"}
    kinds = {"copy kind": direction, "src kind": source, "dst kind": target}
    event["args"] |= {"bytes": 1000} | {name: word for name, word in kinds.items() if word}
    path = write(tmp_path / "t.json", event)
    (row,) = ask_trace(open_trace(path, OpenOptions(cache=False)), "memory_bandwidth").to_pylist()
    assert (row["direction"], row["memory"]) == (direction, memory)


def test_no_copies() -> None:
    assert memory_bandwidth(make("kernels", [])).num_rows == 0
