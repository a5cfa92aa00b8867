"""Step times on both clocks, by hand and on public traces."""

from pathlib import Path
from typing import Any

import pytest

from htk.analyses.time.step_times import step_times
from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make


def window(rank: int, step: int | None, start: int, end: int) -> dict[str, Any]:
    return {"rank": rank, "step": step, "start_ns": start, "end_ns": end, "complete": True}


def host(rank: int, step: int, start: int, end: int) -> dict[str, Any]:
    return {"rank": rank, "step": step, "start_ns": start, "end_ns": end, "on_gpu": False}


def test_both_clocks() -> None:
    windows = [
        window(0, 1, 5, 25),
        window(0, 2, 25, 40),
        window(1, 1, 5, 35),
        window(0, None, 40, 50),
    ]
    steps = [host(0, 1, 0, 12), host(0, 2, 12, 30), host(1, 1, 0, 10)]
    found = answer_of(
        step_times,
        step_windows=make("step_windows", windows),
        annotations=make("annotations", steps),
    )
    kept = ("rank", "step", "cpu_ns", "gpu_period_ns", "duration_ns", "launch_lag_ns", "skew_ns")
    assert [tuple(r[c] for c in kept) for r in found] == [
        (0, 1, 12, 20, 20, 13, 0),
        (0, 2, 18, 15, 15, 10, 0),
        (1, 1, 10, 30, 30, 25, 10),
    ]
    assert [r["over_usual_ns"] for r in found] == [-5, 0, 5]


def test_without_gpu_work_the_host_s_steps_are_left() -> None:
    found = answer_of(step_times, annotations=make("annotations", [host(0, 7, 10, 25)]))
    assert [(r["step"], r["duration_ns"], r["gpu_period_ns"]) for r in found] == [(7, 15, None)]


def test_without_steps() -> None:
    with pytest.raises(MissingTable, match="no steps") as caught:
        answer_of(step_times)
    assert caught.value.lacks == "step_windows"


def test_the_host_s_time_is_not_the_step_time(shared: Path) -> None:
    """On this trace the host's steps take 82 to 166 ms, the GPU's 115 to 123 from the second on."""
    rows = ask_trace(open_trace(shared / "traces/hta/trace_diff/test"), "step_times").to_pylist()
    cpu = [r["cpu_ns"] / 1e6 for r in rows]
    assert (round(min(cpu)), round(max(cpu))) == (82, 166)
    gpu = [r["gpu_period_ns"] / 1e6 for r in rows[1:]]
    assert min(gpu) > 114 and max(gpu) < 124


def test_a_window_without_steps_does_not_say_that_none_was_recorded() -> None:
    with pytest.raises(MissingTable, match=r"^nothing within times from 5.00 s on$"):
        ask_trace(open_trace("sample").sel(from_ns=5 * 10**9), "step_times")


def test_a_step_of_the_host_that_a_window_cuts_is_not_complete() -> None:
    trace = open_trace(Path(__file__).parents[3] / "sample_traces/recorded/transformer")
    for end_ms, complete in ((150, {3: True, 4: False}), (300, {3: True, 4: True})):
        rows = ask_trace(trace.sel(to_ns=end_ms * 1_000_000), "step_times").to_pylist()
        assert {row["step"]: row["complete"] for row in rows} == complete
