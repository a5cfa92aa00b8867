"""What a server's GPU waits for, by hand."""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, kernel, launch, of_rank, span, write

DECODE = "execute_context_0(0)_generation_8(8)"


def copy(ts: float, dur: float, correlation: int) -> Event:
    return kernel("Memcpy HtoD (Pinned -> Device)", ts, dur, correlation) | {"cat": "gpu_memcpy"}


def test_host_work_between_iterations_and_copies_within(tmp_path: Path) -> None:
    """The GPU runs from 20 to 100 us and from 210 to 330, where a copy runs alone for 20; from the
    end of the first iteration to the second launch, at 200, the host is what is waited for."""
    write(
        tmp_path / "rank0.json",
        span(DECODE, 0, 50), launch(1, 10), kernel("gemm", 20, 80, 1),
        span("run_scheduler_loop", 90, 240),
        span("Scheduler.update_from_output", 100, 40),
        span("detokenize", 140, 20),
        span("detokenize", 0, 400, tid=2),  # of a thread that launches nothing
        span("Sampler: sample", 160, 15),
        span("gpu_model_runner: forward", 175, 40),
        span(DECODE, 180, 50), launch(2, 200), kernel("gemm", 210, 90, 2),
        launch(3, 202), copy(300, 20, 3), launch(4, 204), kernel("gemm", 320, 10, 4),
        **of_rank(0),
    )  # fmt: skip
    rows = ask_trace(open_trace(tmp_path, OpenOptions(cache=False)), "iteration_gaps").to_pylist()
    between = {r["cause"]: r["total_ns"] for r in rows if r["part"] == "between iterations"}
    within = {r["cause"]: r["total_ns"] for r in rows if r["part"] == "within iterations"}
    named = ("scheduler", "detokenising", "sampling")
    assert [between.pop(name) for name in named] == [40_000, 20_000, 15_000]
    assert between.pop("launch_latency") == 10_000 and sum(between.values()) == 25_000
    assert within == {"transfers": 20_000}
    (copied,) = [row for row in rows if row["cause"] == "transfers"]
    assert copied["per_iteration_ns"] == 10_000
    assert copied["elapsed_pct"] == pytest.approx(100 * 20 / 310)


@pytest.mark.parametrize(
    ("function", "cause"),
    [
        ("vllm/v1/core/sched/scheduler.py(309): schedule", "scheduler"),
        ("vllm/v1/core/sched/scheduler.py(1100): update_from_output", "scheduler"),
        ("vllm/v1/worker/gpu_model_runner.py(1200): _prepare_inputs", "scheduler"),
        ("vllm/v1/worker/gpu_model_runner.py(2900): sample_tokens", "sampling"),
        ("vllm/v1/sample/sampler.py(67): forward", "sampling"),
        ("vllm/v1/engine/output_processor.py(420): process_outputs", "detokenising"),
        ("sglang/srt/managers/scheduler.py(1800): get_next_batch_to_run", "scheduler"),
        ("scheduler_output_processor_mixin.py(280): process_batch_result_decode", "scheduler"),
        ("scheduler_output_processor_mixin.py(700): stream_output", "detokenising"),
        ("sglang/srt/layers/sampler.py(60): forward", "sampling"),
        ("pyexecutor/py_executor.py(1500): _prepare_and_schedule_batch", "scheduler"),
        ("pyexecutor/py_executor.py(1700): _sample_async", "sampling"),
        ("text_generation_server/utils/logits_process.py(40): __call__", "sampling"),
    ],
)
def test_functions_of_engines_name_the_work(tmp_path: Path, function: str, cause: str) -> None:
    """Of the 100 us between two iterations the host spends 60 in a function, as vLLM, SGLang,
    TensorRT-LLM and TGI call theirs."""
    write(
        tmp_path / "rank0.json",
        span(DECODE, 0, 50), launch(1, 10), kernel("gemm", 20, 80, 1), span(function, 110, 60),
        span(DECODE, 180, 50), launch(2, 195), kernel("gemm", 200, 90, 2),
        **of_rank(0),
    )  # fmt: skip
    rows = ask_trace(open_trace(tmp_path, OpenOptions(cache=False)), "iteration_gaps").to_pylist()
    assert {row["cause"]: row["total_ns"] for row in rows}[cause] == 60_000


def test_iterations_add_up_to_other_answers(tmp_path: Path) -> None:
    server = Config(
        model="llama2-7b", layers=2, nodes=1, gpus_per_node=2, tensor_parallel=2, steps=4,
        strategy="ddp", decode_requests=16,
    )  # fmt: skip
    simulate_job(check_config(server), tmp_path)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    iterations = ask_trace(trace, "serving_iterations").to_pylist()
    rows = ask_trace(trace, "iteration_gaps").to_pylist()
    between = sum(row["total_ns"] for row in rows if row["part"] == "between iterations")
    assert between == sum(max(row["gap_ns"] or 0, 0) for row in iterations) > 0
    for waits in ask_trace(
        trace, "comm_wait"
    ).to_pylist():  # of each rank, held to the truth elsewhere
        own = [row for row in iterations if row["rank"] == waits["rank"]]
        assert sum(row["comm_wait_ns"] for row in own) == waits["exposed_wait_ns"]
    exposed = ask_trace(trace, "time_breakdown").to_pylist()
    told = sum(row["exposed_comm_ns"] for row in iterations)
    assert told == sum(row["exposed_comm_ns"] for row in exposed) > 0
