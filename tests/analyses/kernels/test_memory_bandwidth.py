"""How fast copies are, by hand."""

import pytest

from htk.analyses.kernels.memory_bandwidth import memory_bandwidth
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


def test_hip_names() -> None:
    found = memory_bandwidth(make("kernels", [copy("CopyHostToDevice", 0, 10, 10)])).to_pylist()
    assert found[0]["direction"] == "HtoD"


def test_no_copies() -> None:
    assert memory_bandwidth(make("kernels", [])).num_rows == 0
