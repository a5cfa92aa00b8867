"""Phases of a step, from ranges and inferred, on files small enough to check by eye."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import open_trace
from tests.kineto_file import Event, kernel, launch, op, span, step, write

MAIN, AUTOGRAD = 1, 2


def work(at: float, dur: float, name: str, tid: int = MAIN) -> list[Event]:
    """An operator that launches a kernel which runs from 100 us later on."""
    correlation = int(at) + 1
    return [
        op(name, at, 4, tid),
        launch(correlation, at + 1, 1, tid),
        kernel(f"k{name}", at + 100, dur, correlation),
    ]


def phases(path: Path, **options: Any) -> dict[Any, tuple[Any, Any, Any]]:
    rows = ask_trace(open_trace(path), "phase_breakdown", **options).to_pylist()
    return {r["phase"]: (r["device_busy_ns"], r["kernels"], r["inferred"]) for r in rows}


def test_from_ranges(tmp_path: Path) -> None:
    events = [
        step(1, 0, 90),
        span("enumerate(DataLoader)#_X.__next__", 0, 9), *work(2, 3, "aten::copy_"),
        span("## forward ##", 10, 19), *work(12, 5, "aten::mm"),
        span("## backward ##", 30, 19), *work(32, 7, "MmBackward0", AUTOGRAD),
        span("Optimizer.step#SGD.step", 50, 19), *work(52, 2, "aten::add_"),
        *work(80, 1, "aten::log"),
    ]  # fmt: skip
    found = phases(write(tmp_path / "ranges.json", *events))
    assert found == {
        "dataloader": (3000, 1, False),
        "forward": (5000, 1, False),
        "backward": (7000, 1, False),
        "optimizer": (2000, 1, False),
        "other": (1000, 1, None),
    }


def test_inferred_from_operators(tmp_path: Path) -> None:
    events = [
        step(1, 0, 90),
        *work(12, 5, "aten::mm"),
        *work(32, 7, "autograd::engine::evaluate_function: MmBackward0", AUTOGRAD),
        *work(52, 2, "aten::_fused_adamw_"),
    ]
    found = phases(write(tmp_path / "ops.json", *events))
    assert found == {
        "forward": (5000, 1, True),
        "backward": (7000, 1, True),
        "optimizer": (2000, 1, True),
    }


def test_without_training_all_is_forward_and_carry_in_is_of_no_phase(tmp_path: Path) -> None:
    events = [kernel("early", 0, 5, 999), *work(12, 5, "aten::mm")]
    found = phases(write(tmp_path / "serve.json", *events))
    assert found == {"forward": (5000, 1, True), None: (5000, 1, None)}


def test_host_time_step_by_step(tmp_path: Path) -> None:
    events = [step(1, 0, 50), span("forward", 5, 20), step(2, 50, 50), span("forward", 60, 30)]
    rows = ask_trace(
        open_trace(write(tmp_path / "host.json", *events)), "phase_breakdown", per="step"
    ).to_pylist()
    assert [(r["step"], r["phase"], r["cpu_ns"], r["device_busy_ns"]) for r in rows] == [
        (1, "forward", 20_000, None),
        (2, "forward", 30_000, None),
    ]


def test_gpu_time_of_all_phases_is_that_of_all_kernels(shared: Path) -> None:
    trace = open_trace(shared / "traces/hta/nccl_parser_config")
    rows = ask_trace(trace, "phase_breakdown").to_pylist()
    kernels = trace.tables["kernels"]
    length = kernels["end_ns"].to_numpy() - kernels["start_ns"].to_numpy()
    assert sum(r["device_ns"] for r in rows) == length.sum()
    assert sum(r["kernels"] for r in rows) == len(length)


def test_nothing_to_tell_phases_from() -> None:
    from htk.analyses.time.phase_breakdown import phase_breakdown
    from tests.tables import answer_of

    with pytest.raises(MissingTable):
        answer_of(phase_breakdown)


def test_an_operator_without_length_hides_none_that_begins_with_it(tmp_path: Path) -> None:
    """A range of 30 us in which a forward operator runs for 10: it loads data for the others."""
    known = {"Sequence number": 3}
    events = [
        span("enumerate(DataLoader)#_X.__next__", 0, 30),
        op("aten::empty", 10, 0, **{"External id": 4}),
        op("aten::mul", 10, 10, **known, **{"External id": 5}),
        op("MulBackward0", 50, 5, AUTOGRAD, **known, **{"External id": 6, "Fwd thread id": 1}),
    ]
    rows = ask_trace(open_trace(write(tmp_path / "i.json", *events)), "phase_breakdown").to_pylist()
    times = {row["phase"]: row["cpu_ns"] for row in rows}
    assert times == {"dataloader": 20_000, "forward": 10_000, "backward": 5000}


def test_a_range_over_the_end_of_a_step_is_of_both(tmp_path: Path) -> None:
    events = [step(1, 0, 30), step(2, 30, 40), span("Optimizer.step#SGD.step", 10, 50)]
    events += [op("aten::mul", 5, 1), op("aten::mul", 65, 1)]
    trace = open_trace(write(tmp_path / "two.json", *events))
    rows = ask_trace(trace, "phase_breakdown", per="step").to_pylist()
    times = {row["step"]: row["cpu_ns"] for row in rows if row["phase"] == "optimizer"}
    assert times == {1: 20_000, 2: 30_000}
