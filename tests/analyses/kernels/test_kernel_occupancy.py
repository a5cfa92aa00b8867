"""How well kernels fill the GPU, by hand with the H100's limits."""

import json
from pathlib import Path
from typing import Any

import pytest

from htk.analyses.kernels.kernel_occupancy import kernel_occupancy
from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import open_trace
from tests.tables import make

H100 = {
    "id": 0,
    "name": "NVIDIA H100 80GB HBM3",
    "numSms": 132,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "warpSize": 32,
    "computeMajor": 9,
    "computeMinor": 0,
    "sharedMemPerMultiprocessor": 233472,
}


def occupancy(**kernel: Any) -> dict[str, Any]:
    row = {"name": "k", "kind": "compute", "family": "elementwise", "start_ns": 0, "end_ns": 10}
    ranks = [{"device_properties": json.dumps([H100])}]
    (found,) = kernel_occupancy(make("kernels", [row | kernel]), make("ranks", ranks)).to_pylist()
    result: dict[str, Any] = found
    return result


def test_threads_limit_the_blocks() -> None:
    found = occupancy(grid="[3168,1,1]", block="[128,1,1]", registers=16)
    assert (found["blocks"], found["threads_per_block"], found["multiprocessors"]) == (
        3168,
        128,
        132,
    )
    assert (found["resident_blocks"], found["occupancy_limit_pct"]) == (16, 100)  # 2048 / 128
    assert found["waves"] == 1.5  # 3168 / (16 · 132)
    assert found["tail_pct"] == 25  # half of the second of two waves
    assert found["blocks_per_sm"] == 24


def test_registers_and_shared_memory_limit_the_blocks() -> None:
    found = occupancy(grid="[132,1,1]", block="[256,1,1]", registers=128)
    assert (found["resident_blocks"], found["occupancy_limit_pct"]) == (
        2,
        25,
    )  # 65536 / (128 · 256)
    found = occupancy(grid="[132,1,1]", block="[32,1,1]", registers=16, shared_memory_bytes=100_000)
    assert found["resident_blocks"] == 2
    found = occupancy(grid="[132,1,1]", block="[32,1,1]", registers=16)
    assert found["resident_blocks"] == 32  # blocks, not threads


def test_a_block_takes_whole_warps() -> None:
    """100 threads take the places of 128, of 2048: as the profiler counts."""
    found = occupancy(grid="[132,1,1]", block="[100,1,1]", registers=16)
    assert (found["resident_blocks"], found["occupancy_limit_pct"]) == (16, 100)
    assert found["occupancy_pct"] == pytest.approx(100 * 128 / 2048)


def test_a_recorded_zero_of_what_runs_is_computed() -> None:
    large = {"registers": 168, "shared_memory_bytes": 231_424, "occupancy_pct": 0.0}
    found = occupancy(grid="[30,4,1]", block="[384,1,1]", **large)
    assert found["occupancy_pct"] == pytest.approx(100 * (120 / 132) * 384 / 2048)
    found = occupancy(grid="[528,1,1]", block="[384,1,1]", **large)
    assert found["occupancy_pct"] == found["occupancy_limit_pct"] == 18.75


def test_registers_that_were_not_recorded_leave_the_rest_empty() -> None:
    found = occupancy(grid="[132,1,1]", block="[384,1,1]", occupancy_pct=0.0)
    unknown = ("resident_blocks", "occupancy_pct", "occupancy_limit_pct", "waves", "tail_pct")
    assert [found[name] for name in unknown] == [None] * 5


def test_a_persistent_gemm_has_no_waves() -> None:
    found = occupancy(grid="[132,1,1]", block="[384,1,1]", family="gemm", registers=168)
    assert (found["persistent"], found["waves"], found["tail_pct"]) == (True, None, None)


def test_without_properties_the_recorded_figures_remain() -> None:
    rows = [
        {"name": "k", "kind": "compute", "start_ns": 0, "end_ns": 10, "occupancy_pct": 40.0}
        | {"grid": "[4,2,1]", "block": "[64,1,1]", "blocks_per_sm": 0.5}
    ]
    (found,) = kernel_occupancy(make("kernels", rows), make("ranks", [{}])).to_pylist()
    assert (found["blocks"], found["blocks_per_sm"], found["occupancy_pct"]) == (8, 0.5, 40)
    assert found["waves"] is found["multiprocessors"] is found["resident_blocks"] is None


def test_without_grids_it_says_so() -> None:
    with pytest.raises(MissingTable, match="no kernel records its grid"):
        kernel_occupancy(make("kernels", [{"name": "k"}]), make("ranks", [{}]))


def test_persistent_gemms_of_a_public_trace(shared: Path) -> None:
    file = "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    found = ask_trace(open_trace(shared / file), "kernel_occupancy", n=0).to_pylist()
    gemms = [r for r in found if r["family"] == "gemm"]
    assert sum(r["count"] for r in gemms if r["persistent"]) == 70
    assert sum(r["count"] for r in gemms if r["name"].startswith("sm90_xmma")) == 241
    plain = next(r for r in found if r["grid"] == "[17888,1,1]" and r["block"] == "[128,1,1]")
    assert plain["blocks_per_sm"] == pytest.approx(17888 / 132)
