"""Whether a GPU is slower than others, by hand."""

from typing import Any

import pytest

from htk.analyses.kernels.gpu_speed import gpu_speed
from tests.tables import make


def tables(lengths: dict[int, list[int]], **more: Any) -> Any:
    """Runs of one kernel on each rank, 1000 ns apart."""
    rows = [
        {"rank": r, "name": "gemm", "kind": "compute", "grid": "[8,1,1]", "block": "[64,1,1]"}
        | {"start_ns": 1000 * k, "end_ns": 1000 * k + d, **more}
        for r, runs in lengths.items()
        for k, d in enumerate(runs)
    ]
    nothing = make("counters", [])
    return make("kernels", rows), make("kernel_links", [{}] * len(rows)), nothing


def test_a_slow_gpu() -> None:
    found = gpu_speed(*tables({0: [100] * 10, 1: [100] * 10, 2: [150] * 10})).to_pylist()
    assert [(r["rank"], r["slowness_pct"], r["lost_ns"]) for r in found] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 50, 500),
    ]
    assert [r["slow_kernels"] for r in found] == [0, 0, 10]
    assert all(r["coverage_pct"] == 100 for r in found)


def test_a_gpu_that_slows_down() -> None:
    found = gpu_speed(*tables({0: [100] * 8 + [130] * 4}), per="time", slices=3).to_pylist()
    assert [(r["slice"], r["slowness_pct"]) for r in found] == [
        (0, 0),
        (1, 0),
        (2, pytest.approx(30)),
    ]


def test_other_shapes_rare_kernels_and_communication_are_not_compared() -> None:
    rare = gpu_speed(*tables({0: [100] * 2, 1: [200] * 2})).to_pylist()
    assert [(r["kernels"], r["slowness_pct"], r["coverage_pct"]) for r in rare] == [
        (0, None, 0)
    ] * 2
    assert gpu_speed(*tables({0: [100] * 10}, kind="comm")).num_rows == 0
    unknown = gpu_speed(*tables({0: [100] * 10}, grid=None)).to_pylist()
    assert unknown[0]["slowness_pct"] is None


def test_a_clock_that_falls_stands_beside_the_slowness() -> None:
    kernels, links, _ = tables({0: [100] * 8 + [200] * 8})
    samples = [(0, 1_800), (8_000, 900)]
    counters = make(
        "counters",
        [
            {"rank": 0, "name": "SM Clock (MHz)", "process": "GPU 0 Counters", "series": ""}
            | {"time_ns": time, "value": value}
            for time, value in samples
        ],
    )
    found = gpu_speed(kernels, links, counters, per="time", slices=2).to_pylist()
    assert [(row["clock_mhz"], row["power_w"]) for row in found] == [(1_800, None), (900, None)]
