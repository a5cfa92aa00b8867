"""Ranges hold what autograd threads launch while their thread waits; three questions agree."""

import re
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import kernel, launch, of_rank, op, span, step, write

ENGINE = "autograd::engine::evaluate_function: MmBackward0"


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """Main thread 1, its autograd thread 2 with ranges of NCCL, a loader's thread 3 with its own,
    a helper 4 without ranges."""
    events = [
        step(7, 0, 1000),
        span("forward", 10, 200),
        launch(1, 20),
        kernel("gemm", 30, 50, 1),
        span("backward", 300, 500),
        op(ENGINE, 310, 400, 2),
        launch(2, 320, 1, 2),
        kernel("gemm", 330, 70, 2),
        span("nccl:all_reduce", 400, 60, 2),
        span("inner", 410, 20, 2),
        launch(3, 415, 1, 2),
        kernel("ncclDevKernel_AllReduce", 420, 200, 3, 20),
        span("prefetch", 350, 100, 3),
        launch(4, 360, 1, 3),
        kernel("copy", 365, 11, 4, 9),
        launch(5, 500, 1, 4),
        kernel("helper", 505, 13, 5, 9),
    ]
    return open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))


def test_each_range_holds_what_works_for_it(trace: Trace) -> None:
    rows = {r["name"]: r for r in ask_trace(trace, "annotation_breakdown").to_pylist()}
    held = {name: (row["kernels"], row["device_ns"] // 1000) for name, row in rows.items()}
    assert held == {
        "ProfilerStep": (5, 344),
        "forward": (1, 50),
        "backward": (2, 270),  # its gemm, the all-reduce in NCCL's range; not the helper's
        "nccl:all_reduce": (1, 200),
        "inner": (1, 200),
        "prefetch": (1, 11),  # a thread of its own, while backward waits
    }


@pytest.mark.parametrize("name", ["forward", "backward", "nccl:all_reduce", "inner", "prefetch"])
def test_a_selection_by_range_takes_the_same(trace: Trace, name: str) -> None:
    (row,) = ask_trace(trace, "annotation_breakdown", match=f"^{name}$").to_pylist()
    assert selected(trace, f"^{name}$") == (row["kernels"], row["device_ns"])


def test_a_selection_by_the_profilers_step_takes_the_step(trace: Trace) -> None:
    assert selected(trace, "^ProfilerStep#7$") == (5, 344_000)


def selected(trace: Trace, annotation: str) -> tuple[int, int]:
    rows: list[dict[str, Any]] = ask_trace(
        trace.sel(annotation=annotation), "kernel_top", n=0
    ).to_pylist()
    return sum(r["count"] for r in rows), sum(r["total_ns"] for r in rows)


def test_ranges_of_public_traces_agree_with_their_selection(shared: Path) -> None:
    for path in ("trace_diff/control", "trace_compare"):
        for file in sorted((shared / "traces/hta" / path).glob("*.json*"))[:2]:
            trace = open_trace(file)
            for row in ask_trace(trace, "annotation_breakdown").to_pylist()[:6]:
                if row["kernels"] and row["name"] != "ProfilerStep":
                    name = "^" + re.escape(row["name"]) + "$"
                    assert selected(trace, name) == (row["kernels"], row["device_ns"])
