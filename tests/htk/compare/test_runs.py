"""Two recordings side by side, by hand; and a trace compared with itself."""

from pathlib import Path
from typing import Any

import pytest

from htk.compare.items import EACH
from htk.compare.runs import compare
from htk.trace.opening import open_trace
from tests.kineto_file import Event, kernel, launch, op, step, write


def recording(path: Path, steps: list[list[tuple[str, float]]]) -> Any:
    """Steps of 100 us, each running kernels of these names and lengths."""
    events: list[Event] = []
    for k, kernels in enumerate(steps):
        at = 100.0 * k
        events += [step(k, at, 100), op("aten::mm", at, 90)]
        for name, length in kernels:
            correlation = len(events)
            events += [launch(correlation, at + 1), kernel(name, at + 5, length, correlation)]
            at += length + 1
    return open_trace(write(path, *events)).tables


def rows(base: Any, new: Any, by: str) -> dict[str, dict[str, Any]]:
    found = compare(base, new, (by,), 0).to_pylist()  # type: ignore[arg-type]
    return {r["name"]: r for r in found}


def test_slower_added_removed_and_noise(tmp_path: Path) -> None:
    base = recording(tmp_path / "a.json", [
        [("gemm", 10), ("noisy", 5), ("old", 1)], [("gemm", 11), ("noisy", 9), ("old", 1)],
    ])  # fmt: skip
    new = recording(tmp_path / "b.json", [
        [("gemm", 20), ("noisy", 8), ("new", 2)], [("gemm", 21), ("noisy", 7), ("new", 2)],
    ])  # fmt: skip
    found = rows(base, new, "kernel")
    assert {n: (r["change"], r["significant"]) for n, r in found.items()} == {
        "gemm": ("slower", True),
        "noisy": ("same", False),
        "old": ("removed", True),
        "new": ("added", True),
    }
    gemm = found["gemm"]
    assert (gemm["base_ns"], gemm["new_ns"], gemm["diff_ns"]) == (10_500, 20_500, 10_000)
    # Variances of both means, and of two runs by 0.3 %: 250,000 twice, 31.5² twice. Two degrees of
    # freedom, and 1 % two-sided shared with `noisy`: t = 14.09.
    assert gemm["noise_ns"] == pytest.approx(14.09 * (500_000 + 2 * 31.5**2) ** 0.5, rel=0.02)
    assert found["old"]["diff_pct"] == -100 and found["new"]["diff_pct"] is None
    assert found["old"]["base_count"] == 1


def test_recordings_of_different_length_compare_by_step(tmp_path: Path) -> None:
    base = recording(tmp_path / "a.json", [[("gemm", 10)]] * 2)
    new = recording(tmp_path / "b.json", [[("gemm", 10)]] * 4)
    assert rows(base, new, "kernel")["gemm"]["diff_ns"] == 0
    assert rows(base, new, "op")["aten::mm"]["base_ns"] == 90_000


def test_without_steps_totals_are_compared_and_nothing_is_significant(tmp_path: Path) -> None:
    for name, length in (("a", 4), ("b", 7)):
        write(tmp_path / f"{name}.json", launch(1, 0), kernel("gemm", 2, length, 1))
    base, new = (open_trace(tmp_path / f"{n}.json").tables for n in "ab")
    gemm = rows(base, new, "kernel")["gemm"]
    assert (gemm["diff_ns"], gemm["significant"], gemm["noise_ns"]) == (3000, None, None)
    assert gemm["change"] == "slower"


def test_a_trace_against_itself(shared: Path) -> None:
    tables = open_trace(shared / "traces/hta/nccl_parser_config").tables
    found = compare(tables, tables, EACH, 0).to_pylist()
    assert {r["by"] for r in found} >= {"time", "phase", "kernel", "op"}
    assert {(r["change"], r["diff_ns"]) for r in found} == {("same", 0.0)}


def test_public_traces_of_a_job_before_and_after(shared: Path) -> None:
    """HTA lists cudaMemcpy first among what grew; on the GPU it is copies on the device."""
    base, new = (
        open_trace(shared / f"traces/hta/trace_diff/{n}").tables for n in ("control", "test")
    )
    first = compare(base, new, ("kernel",), 1).to_pylist()[0]
    assert first["name"] == "Memcpy DtoD (Device -> Device)" and first["significant"]
