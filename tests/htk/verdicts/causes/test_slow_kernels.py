"""Products that take far longer than an H100 needs, in steps that nothing else holds up."""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.slow_kernels import FINDING
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "numSms": 132}
# Two matrices of 4096 by 4096 are 137.4 GFLOP; stas00/ml-engineering measured 794.5 TFLOP/s.
USUAL_US = 173
STEPS = 4
CALLS = 10


def recorded(folder: Path, product_us: int) -> Trace:
    """Steps of products on one stream, for whose last one the host waits."""
    events: list[Event] = []
    shapes = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::BFloat16"] * 2}
    step_us = 30 + CALLS * product_us
    for k in range(STEPS):
        begin = k * step_us
        events.append(step(k, begin, step_us))
        for call in range(CALLS):
            number = 1 + k * CALLS + call
            called = begin + 10 * call
            events += [
                op("aten::mm", called, 8, **shapes),
                launch(number, called + 2),
                kernel("nvjet_hsh_128x256", begin + 10 + call * product_us, product_us, number),
            ]
        waited = launch(1_000 + k, begin + 10 * CALLS, 10 + CALLS * (product_us - 10))
        events.append(waited | {"name": "cudaDeviceSynchronize"})
    facts = of_rank(0) | {"deviceProperties": [H100]}
    return open_trace(write(folder / "t.json", *events, **facts), OpenOptions(cache=False))


def slow_kernels(answer: Result) -> list[dict[str, object]]:
    return [row for row in answer.to_pylist() if row["finding"] == FINDING]


def test_a_product_far_from_what_is_usual_is_a_cause_by_what_a_step_gains(tmp_path: Path) -> None:
    trace = recorded(tmp_path, 500)
    (cause,) = slow_kernels(ask_trace(trace, "recommendations"))
    gained_ns = 1_000 * CALLS * (500 - USUAL_US)
    assert cause["basis"] == "replay"
    assert cause["step_gain_ns"] == pytest.approx(gained_ns, rel=0.06)
    assert cause["step_gain_ns_lo90"] < gained_ns < cause["step_gain_ns_hi90"]
    assert cause["event_names"] == "nvjet_hsh_128x256"
    assert "kernel-gap" in str(cause["advice"])


def test_a_product_at_the_usual_pace_is_none(tmp_path: Path) -> None:
    assert not slow_kernels(ask_trace(recorded(tmp_path, 230), "recommendations"))


def test_kernel_gap_replays_what_the_usual_pace_gains(tmp_path: Path) -> None:
    trace = recorded(tmp_path, 500)
    (row,) = ask_trace(trace, "kernel_gap", gain=True).to_pylist()
    assert row["step_gain_ns"] == pytest.approx(1_000 * CALLS * (500 - USUAL_US), rel=0.06)
    (silent,) = ask_trace(trace, "kernel_gap").to_pylist()
    assert silent["step_gain_ns"] is None


def test_all_rows_together_gain_what_each_does_on_one_stream(tmp_path: Path) -> None:
    answer = ask_trace(recorded(tmp_path, 300), "kernel_gap", gain=True)
    (row,) = answer.to_pylist()
    assert answer.coverage["step_gain_of_all"]["step_gain_ns"] == row["step_gain_ns"]
