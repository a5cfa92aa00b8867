"""Blocks that fit a multiprocessor, by hand with NVIDIA's occupancy calculator and LLVM's rules."""

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from htk.physics.occupancy import Multiprocessor
from htk.traces.trace.opening import OpenOptions, open_trace

A100 = {
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536,
    "warpSize": 32,
    "sharedMemPerMultiprocessor": 167936,
    "computeMajor": 8,
    "computeMinor": 0,
}
T4 = A100 | {
    "maxThreadsPerMultiprocessor": 1024,
    "sharedMemPerMultiprocessor": 65536,
    "computeMajor": 7,
    "computeMinor": 5,
}
A10 = A100 | {
    "maxThreadsPerMultiprocessor": 1536,
    "sharedMemPerMultiprocessor": 102400,
    "computeMinor": 6,
}
L4 = A10 | {"computeMinor": 9}
MI300 = {
    "maxThreadsPerMultiprocessor": 2048,
    "warpSize": 64,
    "maxSharedMemoryPerMultiProcessor": 65536,
    "computeMajor": 9,
    "computeMinor": 4,
}


def blocks(gpu: dict[str, Any], threads: int, registers: int, shared: int = 0) -> int:
    limits = Multiprocessor.from_properties(gpu)
    assert limits is not None
    return int(limits.count_blocks(*(np.array([v]) for v in (threads, registers, shared)))[0])


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "shared", "fit"),
    [
        (A100, 128, 86, 32768, 4),  # 164 KiB by 33: a KiB of each block is CUDA's own
        (A100, 1024, 16, 0, 2),
        (A100, 32, 16, 0, 32),
        (A100, 224, 90, 0, 2),  # 5 warps to each quarter of the registers, 20 in all, by 7
        (A100, 32, 90, 0, 20),
        (T4, 32, 16, 0, 16),
        (A10, 32, 16, 0, 16),
        (L4, 32, 16, 0, 24),
        (MI300, 64, 32, 0, 32),  # single waves hold no barrier: 8 for each SIMD
        (MI300, 128, 32, 0, 16),
        (MI300, 256, 128, 0, 4),  # 512 registers by 128: 4 waves of a SIMD
        (MI300, 64, 32, 20000, 3),
        (A100, 128, 0, 0, 0),  # not recorded
    ],
)
def test_blocks_by_hand(
    gpu: dict[str, Any], threads: int, registers: int, shared: int, fit: int
) -> None:
    assert blocks(gpu, threads, registers, shared) == fit


@pytest.mark.parametrize("name", ["computeMajor", "warpSize", "regsPerMultiprocessor"])
def test_what_is_not_recorded_is_not_guessed(name: str) -> None:
    assert Multiprocessor.from_properties({k: v for k, v in A100.items() if k != name}) is None


@pytest.mark.parametrize(
    "trace",
    [
        "hta/trace_diff/test/test.json.gz",  # V100
        "hta/trace_diff/control/control.json.gz",  # A100
        "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
        "tracelens/b200/eager_trace.json.gz",
    ],
)
def test_the_occupancy_that_kineto_computed_by_cuda_s_own_code(shared: Path, trace: str) -> None:
    opened = open_trace([shared / "traces" / trace], OpenOptions(cache=False))
    (listed,) = opened.tables["ranks"]["device_properties"].to_pylist()
    gpu = json.loads(listed)[0]
    columns = ["name", "grid", "block", "registers", "shared_memory_bytes", "occupancy_pct"]
    distinct = {tuple(row.values()) for row in opened.tables["kernels"].select(columns).to_pylist()}
    recorded = [row for row in distinct if row[5]]
    for _, grid, block, registers, memory, occupancy in recorded:
        threads = prod(json.loads(block))
        fit = blocks(gpu, threads, registers, memory)
        resident = min(fit, prod(json.loads(grid)) / gpu["numSms"])
        share = 100 * resident * threads / gpu["maxThreadsPerMultiprocessor"]
        assert occupancy == pytest.approx(share, abs=1)
    assert len(recorded) > 15
