"""A quantity that stands in several answers is one number in all of them."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.faces.cli import main
from htk.faces.report.content import gather_report
from htk.faces.report.tiles import render_tiles
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.history.run_facts import run_facts
from htk.verdicts.overview.summary import reach_verdict
from htk.verdicts.query.sql import run_query
from htk.whatif.api import whatif

SAMPLES = Path(__file__).parents[1] / "sample_traces"
RECORDINGS = ("simulated/llama2-7b",)
PUBLIC = (
    "hta/trace_diff/control/control.json.gz",
    "tracelens/mi300/resnet_act_checkpoint.json.gz",
    "tracelens/inference/vllm_prefilldecode_piecewise/graph_execution.json.gz",
)
Answer = Callable[[Trace], Any]


def added(
    name: str, column: str, keep: Callable[[dict[str, Any]], bool] = bool, **options: Any
) -> Answer:
    """Return the sum of a column of an answer, of the rows to keep."""

    def of(trace: Trace) -> int:
        rows = ask_trace(trace, name, **options).to_pylist()
        return sum(row[column] or 0 for row in rows if keep(row))

    return of


def sql(text: str) -> Answer:
    return lambda trace: run_query(trace, text).table.column(0)[0].as_py()


def median_step(name: str, column: str, **options: Any) -> Answer:
    def of(trace: Trace) -> float:
        rows = ask_trace(trace, name, **options).to_pylist()
        return int(median(row[column] for row in rows if row["step"] is not None))

    return of


def of_copies(row: dict[str, Any]) -> bool:
    return bool(row["kind"] == "memory")


def of_kernels(row: dict[str, Any]) -> bool:
    return not of_copies(row)


def operations(trace: Trace) -> int:
    """Return the operations of all calls that the roofline knows."""
    rows = ask_trace(trace, "roofline", n=0).to_pylist()
    return sum(int(row["flops_per_call"] or 0) * row["count"] for row in rows)


ALL: dict[str, Any] = {"n": 0}
ONE_NUMBER: dict[str, dict[str, Answer]] = {
    "busy time of the GPUs": {
        "time-breakdown": added("time_breakdown", "busy_ns"),
        "kernel-kinds": added("kernel_kinds", "total_ns", lambda row: row["rank"] is not None),
    },
    "idle time of the GPUs": {
        "time-breakdown": added("time_breakdown", "idle_ns"),
        "idle-breakdown": added("idle_breakdown", "idle_ns"),
    },
    "time of all activities": {
        "kernel-top": added("kernel_top", "total_ns", **ALL),
        "kernel-families": added("kernel_families", "total_ns"),
        "op-breakdown": added("op_breakdown", "device_self_ns", **ALL),
        "phase-breakdown": added("phase_breakdown", "device_ns"),
        "module-breakdown": added("module_breakdown", "device_self_ns", **ALL),
        "compile-graph-coverage": added("compile_graph_coverage", "device_ns"),
        "flops": added("flops", "device_ns"),
        "sql": sql("select sum(end_ns - start_ns)::bigint from kernels"),
    },
    "activities": {
        "kernel-top": added("kernel_top", "count", **ALL),
        "kernel-families": added("kernel_families", "count"),
        "compile-graph-coverage": added("compile_graph_coverage", "kernels"),
        "sql": sql("select count(*) from kernels"),
    },
    "linked activities": {
        "launch-stats": added("launch_stats", "kernels", **ALL),
        "launch-stats by kernel": added("launch_stats", "kernels", by="kernel", **ALL),
        "launch-stats by operator": added("launch_stats", "kernels", by="operator", **ALL),
        "sql": sql("select count(*) from kernel_links where launch_row is not null"),
    },
    "launches": {
        "launch-stats": added("launch_stats", "count", **ALL),
        "launch-stats by kernel": added("launch_stats", "count", by="kernel", **ALL),
        "queue-length": added("queue_length", "launched", lambda row: row["stream"] is None),
        "compile-graph-coverage": added("compile_graph_coverage", "launches"),
    },
    "time of copies and sets": {
        "memory-bandwidth": added("memory_bandwidth", "total_ns"),
        "kernel-families": added("kernel_families", "total_ns", of_copies),
    },
    "copies and sets": {
        "memory-bandwidth": added("memory_bandwidth", "count"),
        "kernel-families": added("kernel_families", "count", of_copies),
    },
    "time of kernels": {
        "short-kernels": added("short_kernels", "total_ns", **ALL),
        "kernel-families": added("kernel_families", "total_ns", of_kernels),
    },
    "kernels": {
        "short-kernels": added("short_kernels", "count", **ALL),
        "kernel-families": added("kernel_families", "count", of_kernels),
    },
    "operations of kernels": {
        "flops": added("flops", "hardware_flops"),
        "roofline": operations,
    },
    "operators": {
        "op-breakdown": added("op_breakdown", "count", **ALL),
        "op-tree": added("op_tree", "count", min_pct=0),
        "sql": sql("select count(*) from cpu_ops"),
    },
}
STEPS: dict[str, Answer] = {
    "step-times": median_step("step_times", "gpu_period_ns"),
    "time-breakdown": median_step("time_breakdown", "total_ns", per="step"),
    "flops": median_step("flops", "window_ns", per="step"),
}


def numbers(trace: Trace, places: dict[str, Answer]) -> dict[str, Any]:
    return {place: answer(trace) for place, answer in places.items()}


def differing(trace: Trace) -> dict[str, dict[str, Any]]:
    given = {quantity: numbers(trace, places) for quantity, places in ONE_NUMBER.items()}
    given["GPU step"] = numbers(trace, STEPS) if trace.has_steps else {}
    return {quantity: values for quantity, values in given.items() if len({*values.values()}) > 1}


@pytest.mark.parametrize("recording", RECORDINGS)
def test_every_answer_gives_the_same_number(recording: str) -> None:
    assert differing(open_trace(SAMPLES / recording)) == {}


@pytest.mark.parametrize("recording", PUBLIC)
def test_so_it_does_of_public_recordings(recording: str, shared: Path) -> None:
    assert differing(open_trace(shared / "traces" / recording)) == {}


def test_the_summary_tells_the_step_that_answers_tell() -> None:
    trace = open_trace(SAMPLES / RECORDINGS[0])
    assert reach_verdict(trace).step_ns == STEPS["step-times"](trace)
    kept = run_facts(trace, "run").row["step_time_ns"]
    assert kept == pytest.approx(reach_verdict(trace).step_ns, abs=1)
    report = gather_report(trace, title="run", command="htk report", whatif=False)
    assert f"{kept / 1e6:.0f} ms" in render_tiles(report)


def test_the_shares_of_the_summary_are_those_of_the_answers() -> None:
    trace = open_trace(SAMPLES / RECORDINGS[0])
    compute = next(share for share in reach_verdict(trace).shares if share.name == "compute")
    rows = ask_trace(trace, "time_breakdown").to_pylist()
    assert compute.time_ns == pytest.approx(mean(row["compute_ns"] for row in rows), abs=1)


def test_tokens_a_second_are_one_number(capsys: pytest.CaptureFixture[str]) -> None:
    """By the batch that was simulated: 8 ranks, of 8 sequences of 512 tokens each."""
    path = SAMPLES / RECORDINGS[0]
    tokens = 8 * 8 * 512
    (predicted,) = whatif(open_trace(path)).change("host", "2x").run().to_pylist()
    assert predicted["tokens_per_s"] * predicted["step_time_ns"] / 1e9 == pytest.approx(tokens)
    assert predicted["tokens_per_s_per_gpu"] == pytest.approx(predicted["tokens_per_s"] / 8)
    asked = ("prices", str(path), "--gpu", "a100-80gb", "--gpu", "h100", "--format", "json")
    assert main.run_command_line(asked) == 0
    for row in json.loads(capsys.readouterr().out)["rows"]:
        of_all = 8 * row["tokens_per_s_per_gpu"] * row["step_time_ns"] / 1e9
        assert of_all == pytest.approx(tokens)


def test_tokens_a_second_of_a_server_are_one_number(shared: Path) -> None:
    """One iteration of 32 requests in 10.5 ms, read from the names and times of its ranges."""
    path = shared / "traces/tracelens/inference/sglang_decode"
    (row,) = ask_trace(open_trace(path), "iteration_times").to_pylist()
    assert row["tokens_per_s"] == pytest.approx(32 / row["elapsed_ns_p50"] * 1e9, rel=1e-3)
    causes = [cause.evidence for cause in reach_verdict(open_trace(path)).causes]
    told = [text for text in causes if "in place of" in text]
    assert told and all(f"in place of {row['tokens_per_s']:,.0f}" in text for text in told)


def test_the_share_of_the_peak_is_one_number() -> None:
    """MFU in the answer, in the history of runs and on the report's tile."""
    trace = open_trace(SAMPLES / RECORDINGS[0])
    rows = ask_trace(trace, "flops").to_pylist()
    shares = [r["model_flops"] / r["window_ns"] / 10 / r["peak_tflops"] for r in rows]
    assert [row["mfu_pct"] for row in rows] == pytest.approx(shares)
    mfu = mean(shares)
    assert run_facts(trace, "run").row["mfu_pct"] == pytest.approx(mfu)
    report = gather_report(trace, title="run", command="htk report", whatif=False)
    assert f"{mfu:.1f} %" in render_tiles(report)


def test_the_peak_of_memory_is_one(tmp_path: Path) -> None:
    trace = open_trace(SAMPLES / "memory_snapshot")
    peaks = {row["peak_bytes"] for row in ask_trace(trace, "memory_peaks", n=0).to_pylist()}
    line = max(row["allocated_bytes"] for row in ask_trace(trace, "memory_timeline").to_pylist())
    replay = {row["peak_bytes"] for row in ask_trace(trace, "memory_replay").to_pylist()}
    assert peaks == {line} == replay
