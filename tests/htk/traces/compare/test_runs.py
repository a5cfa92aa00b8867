"""Two recordings side by side, by hand; and a trace compared with itself."""

from pathlib import Path
from typing import Any

import pytest

from htk.base.core.analysis import coverage_of
from htk.traces.compare.items import EACH
from htk.traces.compare.runs import compare_runs
from htk.traces.trace.opening import open_trace
from tests.htk.traces.compare.small_recording import recording
from tests.kineto_file import kernel, launch, of_rank, op, step, write


def rows(base: Any, new: Any, by: str) -> dict[str, dict[str, Any]]:
    found = compare_runs(base, new, (by,), 0).to_pylist()  # type: ignore[arg-type]
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
        "noisy": ("unclear", False),
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


def test_without_steps_calls_and_seconds_are_compared(tmp_path: Path) -> None:
    """Base: 2 ranks of 100 us with two calls of 4 us each. New: 1 rank of 400 us with four of 4 us,
    and one of 5 us that ends it. As many calls a second less, and no call is slower for it."""
    for rank in (0, 1):
        events = [op("aten::mm", 0, 8), launch(1, 0), kernel("gemm", 0, 4, 1)]
        events += [op("aten::mm", 50, 8), launch(2, 51), kernel("gemm", 96, 4, 2)]
        write(tmp_path / f"a{rank}.json", *events, **of_rank(rank, 2))
    events = [op("aten::mm", 0, 8)]
    for k in range(4):
        events += [launch(k + 1, 1 + k), kernel("gemm", 10 * k, 4, k + 1)]
    events += [launch(9, 7), kernel("relu", 395, 5, 9)]
    write(tmp_path / "b.json", *events)
    base = open_trace([tmp_path / f"a{rank}.json" for rank in (0, 1)]).tables
    new = open_trace(tmp_path / "b.json").tables
    gemm = rows(base, new, "kernel")["gemm"]
    assert (gemm["base_ns"], gemm["new_ns"], gemm["change"]) == (4000, 4000, "same")
    assert (gemm["base_count"], gemm["new_count"]) == (20_000, 10_000)  # 4 in 200 us, 4 in 400 us
    assert rows(base, new, "op")["aten::mm"]["new_ns"] == 8000
    times = rows(base, new, "time")
    assert (times["compute"]["base_ns"], times["compute"]["new_ns"]) == (80_000_000, 52_500_000)
    assert (times["compute"]["base_count"], times["compute"]["new_count"]) == (1, 1)
    assert "total" not in times  # of a second recorded it is a second
    assert {row["significant"] for row in times.values()} == {None}


def test_steps_of_one_side_alone_bound_nothing(tmp_path: Path) -> None:
    """New: 50 of 100 us busy, of which a step's are 10; base: 25 of 100, without a step."""
    gemms = [launch(1, 0), kernel("gemm", 0, 20, 1), launch(2, 90), kernel("gemm", 95, 5, 2)]
    write(tmp_path / "a.json", *gemms, **of_rank(0, 1))
    gemms = [launch(1, 0), kernel("gemm", 0, 20, 1), launch(2, 31), kernel("gemm", 40, 10, 2)]
    gemms += [step(3, 30, 10), launch(3, 60), kernel("gemm", 80, 20, 3)]
    write(tmp_path / "b.json", *gemms, **of_rank(0, 1))
    base, new = (open_trace(tmp_path / f"{name}.json").tables for name in "ab")
    for pair in ((base, new), (new, base)):
        spent = {n: (r["base_ns"], r["new_ns"]) for n, r in rows(*pair, "time").items()}
        turned = slice(None, None, -1 if pair[0] is new else 1)
        assert spent["compute"] == (250_000_000, 500_000_000)[turned]
        assert spent["idle"] == (750_000_000, 500_000_000)[turned]


def test_gpu_work_on_one_side_alone_is_said(tmp_path: Path) -> None:
    write(tmp_path / "a.json", op("aten::mm", 0, 8), **of_rank(0, 1))
    gpu = [op("aten::mm", 0, 8), launch(1, 1), kernel("gemm", 3, 4, 1)]
    write(tmp_path / "b.json", *gpu, **of_rank(0, 1))
    base, new = (open_trace(tmp_path / f"{name}.json").tables for name in "ab")
    for pair, where in (((base, new), "new recording"), ((new, base), "base")):
        (note,) = coverage_of(compare_runs(*pair))["notes"]
        assert note.startswith(f"GPU work was recorded in the {where} alone")
    assert "notes" not in coverage_of(compare_runs(new, new))


def test_without_steps_what_costs_more_in_all_comes_first(tmp_path: Path) -> None:
    """One call slower by 9 us, or twenty slower by 1 us each."""
    for name, once, often in (("a", 10, 4), ("b", 19, 5)):
        events = [launch(100, 0), kernel("once", 0, once, 100)]
        for k in range(20):
            events += [launch(k, 1 + k), kernel("often", 30 + 10 * k, often, k)]
        write(tmp_path / f"{name}.json", *events)
    base, new = (open_trace(tmp_path / f"{n}.json").tables for n in "ab")
    assert list(rows(base, new, "kernel")) == ["often", "once"]


def test_a_trace_against_itself(shared: Path) -> None:
    tables = open_trace(shared / "traces/hta/nccl_parser_config").tables
    found = compare_runs(tables, tables, EACH, 0).to_pylist()
    assert {r["by"] for r in found} >= {"time", "phase", "kernel", "op"}
    assert {(r["change"], r["diff_ns"]) for r in found} == {("same", 0.0)}


def test_public_traces_of_a_job_before_and_after(shared: Path) -> None:
    """HTA lists cudaMemcpy first among what grew; on the GPU it is copies on the device."""
    base, new = (
        open_trace(shared / f"traces/hta/trace_diff/{n}").tables for n in ("control", "test")
    )
    first = compare_runs(base, new, ("kernel",), 1).to_pylist()[0]
    assert first["name"] == "Memcpy DtoD (Device -> Device)" and first["significant"]
