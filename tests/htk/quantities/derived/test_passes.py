"""Passes on files small enough to check by eye, and the same sums from all who tell a pass."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from htk.answers.ask import ask_trace
from htk.traces.compare.runs import READERS, Side
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, op, span, step, write

MAIN, ENGINE = 1, 2
EVALUATES = "autograd::engine::evaluate_function: "
SMALL = (
    "hta/amd_trace",
    "hta/call_stack",
    "hta/cpu_only",
    "hta/critical_path/alexnet",
    "hta/nccl_parser_config",
    "hta/trace_diff/control",
    "hta/triton_example",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
    "tracelens/mi210/gpu_only_trace",
    "tracelens/mi300/resnet_act_checkpoint.json.gz",
    "tracelens/torch_compile_triton/trace.json.gz",
)


def forward_op(name: str, at: float, number: int, dur: float = 4, tid: int = MAIN) -> Event:
    return op(name, at, dur, tid, **{"Sequence number": number, "Fwd thread id": 0})


def backward_op(name: str, at: float, number: int, dur: float = 4, tid: int = ENGINE) -> Event:
    return op(name, at, dur, tid, **{"Sequence number": number, "Fwd thread id": 1})


def passes(path: Path, *events: Event) -> dict[str, tuple[str | None, str | None, bool]]:
    tables = open_trace(write(path / "t.json", *events), OpenOptions(cache=False)).tables
    rows = zip(tables["cpu_ops"]["name"].to_pylist(), tables["op_passes"].to_pylist(), strict=True)
    return {name: (r["phase"], r["basis"], r["recomputed"]) for name, r in rows}


def test_sequence_numbers_come_before_ranges(tmp_path: Path) -> None:
    """Lightning's optimizer range holds the closure that runs forward and backward."""
    found = passes(
        tmp_path,
        step(1, 0, 100),
        span("Optimizer.step#SGD.step", 1, 90),
        op("aten::linear", 5, 9), forward_op("aten::addmm", 6, 11), op("aten::expand", 7, 1),
        backward_op("AddmmBackward0", 30, 11), op("aten::mm", 31, 2, ENGINE),
        op("aten::add_", 60, 4),
    )  # fmt: skip
    assert found == {
        "aten::linear": ("forward", "sequence", False),
        "aten::addmm": ("forward", "sequence", False),
        "aten::expand": ("forward", "sequence", False),
        "AddmmBackward0": ("backward", "sequence", False),
        "aten::mm": ("backward", "sequence", False),
        "aten::add_": ("optimizer", "user range", False),
    }


def _hooks(tid: int) -> list[Event]:
    """Two evaluations, and what FSDP's hooks run between them, outside of both."""
    names = ("fsdp::chunk_cat", "c10d::_reduce_scatter_base_", "fsdp::split_with_sizes_copy")
    evaluated = [op(EVALUATES + "AddmmBackward0", at, 8, tid) for at in (20, 60)]
    return evaluated + [op(name, 30 + 5 * k, 3, tid) for k, name in enumerate((*names, *names))]


def test_a_thread_of_the_engine_may_run_hooks_most_of_the_time(tmp_path: Path) -> None:
    """Another thread is seen to make the nodes that it evaluates."""
    others = [op(f"aten::copy{k}", 5 * k, 2, 3) for k in range(6)]
    found = passes(
        tmp_path,
        forward_op("aten::addmm", 5, 11), backward_op("AddmmBackward0", 21, 11),
        *_hooks(ENGINE), *others,
    )  # fmt: skip
    for name in ("fsdp::chunk_cat", "c10d::_reduce_scatter_base_", "fsdp::split_with_sizes_copy"):
        assert found[name] == ("backward", "autograd thread", False)
    assert found["aten::addmm"][0] == "forward"
    assert all(found[f"aten::copy{k}"][0] != "backward" for k in range(6))


def test_a_thread_that_evaluates_by_the_way_is_no_engine_s(tmp_path: Path) -> None:
    """Nobody is seen to make nodes: it may be this thread."""
    found = passes(tmp_path, op("aten::linear", 5, 4, MAIN), *_hooks(MAIN))
    assert found["fsdp::chunk_cat"][0] != "backward"
    assert found["aten::linear"][0] != "backward"


def test_a_thread_of_the_engine_is_backward_whatever_it_runs(tmp_path: Path) -> None:
    found = passes(
        tmp_path,
        op("aten::mm", 5, 4),
        op(EVALUATES + "MulBackward0", 20, 8, ENGINE), op("aten::mul", 21, 3, ENGINE),
        op(EVALUATES + "AddBackward0", 30, 8, ENGINE),
        op("c10d::allreduce_", 40, 3, ENGINE),  # a hook, outside what is evaluated
        op("aten::_fused_adamw_", 60, 4), op("aten::log", 70, 4),
    )  # fmt: skip
    assert found["c10d::allreduce_"] == found["aten::mul"] == ("backward", "autograd thread", False)
    assert found["aten::mm"] == ("forward", "order", False)
    assert found["aten::_fused_adamw_"] == ("optimizer", "name", False)
    assert found["aten::log"] == ("other", None, False)


def test_on_the_cpu_the_main_thread_evaluates_and_is_not_the_engines(tmp_path: Path) -> None:
    found = passes(
        tmp_path,
        forward_op("aten::mul", 5, 1), forward_op("aten::sum", 10, 2),
        op(EVALUATES + "SumBackward0", 20, 6), backward_op("SumBackward0", 21, 2, 4, MAIN),
        op(EVALUATES + "MulBackward0", 30, 6), backward_op("MulBackward0", 31, 1, 4, MAIN),
        op("aten::zeros_like", 40, 3), op(EVALUATES + "AccumulateGrad", 50, 6),
        op("aten::detach", 51, 3), op("aten::add_", 60, 4),
    )  # fmt: skip
    assert found["aten::mul"] == found["aten::sum"] == ("forward", "sequence", False)
    assert found["aten::zeros_like"] == ("forward", "order", False)
    assert found["aten::detach"] == ("backward", "autograd thread", False)
    assert found["aten::add_"] == ("other", None, False)


def test_two_main_threads_each_with_its_own_backward(tmp_path: Path) -> None:
    events = []
    for tid, shift in ((1, 0), (3, 3)):
        events += [
            forward_op(f"aten::tanh{tid}", 5 + shift, 1, tid=tid),
            op(EVALUATES + f"TanhBackward{tid}", 30 + shift, 6, tid),
            backward_op(f"TanhBackward{tid}", 31 + shift, 1, 4, tid),
        ]
    found = passes(tmp_path, *events)
    assert [found[f"aten::tanh{tid}"][0] for tid in (1, 3)] == ["forward"] * 2
    assert [found[f"TanhBackward{tid}"][0] for tid in (1, 3)] == ["backward"] * 2


def checkpointed(node: str) -> list[Event]:
    """Three operators run without a graph, and run again inside the node."""
    forward = ["aten::conv2d", "aten::batch_norm", "aten::relu"]
    again = [
        forward_op(name, 51 + 5 * k, 20 + k, tid=ENGINE, dur=3) for k, name in enumerate(forward)
    ]
    return [
        *(op(name, 5 + 5 * k, 4) for k, name in enumerate(forward)),
        forward_op("aten::log", 30, 7),
        op(EVALUATES + node, 49, 40, ENGINE), backward_op(node, 50, 7, 38),
        *again, op("aten::mul", 70, 3, ENGINE),
    ]  # fmt: skip


@pytest.mark.parametrize("node", ["CheckpointFunctionBackward", "MulBackward0"])
def test_forward_work_that_is_done_again(tmp_path: Path, node: str) -> None:
    trace = open_trace(write(tmp_path / "t.json", *checkpointed(node)), OpenOptions(cache=False))
    names = trace.tables["cpu_ops"]["name"].to_pylist()
    again = trace.tables["op_passes"]["recomputed"].to_pylist()
    assert Counter(n for n, mark in zip(names, again, strict=True) if mark) == {
        "aten::conv2d": 1,
        "aten::batch_norm": 1,
        "aten::relu": 1,
    }


def test_a_gradient_that_is_differentiated_again_repeats_nothing(tmp_path: Path) -> None:
    """create_graph=True numbers what the gradient computes."""
    events = [
        *(forward_op(n, 5 + 5 * k, k) for k, n in enumerate(["aten::linear", "aten::tanh"])),
        op(EVALUATES + "TanhBackward0", 49, 30, ENGINE), backward_op("TanhBackward0", 50, 1, 28),
        *(forward_op(f"aten::{n}", 51 + 5 * k, 9 + k, 3, ENGINE)
          for k, n in enumerate(["mul", "rsub", "mul"])),
    ]  # fmt: skip
    assert not any(again for _, _, again in passes(tmp_path, *events).values())


def test_what_a_graph_replays_has_the_pass_of_its_capture(tmp_path: Path) -> None:
    def call(name: str, at: float, correlation: int = 0, tid: int = MAIN) -> Event:
        return launch(correlation, at, 1, tid) | {"name": name}

    events = [
        call("cudaStreamBeginCapture_v2", 4),
        forward_op("aten::mm", 5, 1), launch(1, 6),
        op(EVALUATES + "MmBackward0", 20, 8), backward_op("MmBackward0", 21, 1, 6, MAIN),
        launch(2, 22), call("cudaStreamEndCapture", 40),
        call("cudaGraphLaunch", 100, 9), kernel("gemm", 110, 10, 9), kernel("gemm", 130, 30, 9),
    ]  # fmt: skip
    trace = open_trace(write(tmp_path / "t.json", *events), OpenOptions(cache=False))
    rows = trace.tables["kernel_passes"].to_pylist()
    assert [(r["phase"], r["basis"]) for r in rows] == [
        ("forward", "sequence"),
        ("backward", "sequence"),
    ]


def test_what_was_launched_outside_operators_goes_by_its_range(tmp_path: Path) -> None:
    events = [
        span("## forward ##", 0, 20), launch(1, 5), kernel("a", 10, 5, 1),
        launch(2, 30), kernel("b", 40, 5, 2), kernel("early", 1, 2),
    ]  # fmt: skip
    trace = open_trace(write(tmp_path / "t.json", *events), OpenOptions(cache=False))
    names = trace.tables["kernels"]["name"].to_pylist()
    found = dict(zip(names, trace.tables["kernel_passes"].to_pylist(), strict=True))
    assert found["a"] == {"phase": "forward", "basis": "user range", "recomputed": False}
    assert found["b"]["phase"] == "other" and found["early"]["phase"] is None


def sums(trace: Trace) -> dict[str | None, tuple[int, int]]:
    """Count and time of activities of each phase, one by one."""
    kernels, passes = trace.tables["kernels"], trace.tables["kernel_passes"]
    length = np.subtract(kernels["end_ns"].to_numpy(), kernels["start_ns"].to_numpy())
    total: dict[str | None, tuple[int, int]] = {}
    for phase, time in zip(passes["phase"].to_pylist(), length.tolist(), strict=True):
        count, before = total.get(phase, (0, 0))
        total[phase] = (count + 1, before + time)
    return total


@pytest.mark.parametrize("name", SMALL)
def test_all_tell_the_same_passes(shared: Path, name: str) -> None:
    trace = open_trace(shared / "traces" / name)
    expected = sums(trace)
    rows = [r for r in ask_trace(trace, "phase_breakdown").to_pylist() if r["kernels"]]
    told: Counter[str | None] = Counter()
    for row in rows:
        told[row["phase"]] += row["device_ns"]
    assert told == {phase: time for phase, (_, time) in expected.items()}
    items = READERS["phase"](Side(trace.tables))
    compared: Counter[str | None] = Counter()
    for code, time in zip(items.code.tolist(), items.time.tolist(), strict=True):
        compared[items.names[code] if code >= 0 else None] += time
    assert compared == told


@pytest.mark.parametrize("name", [name for name in SMALL if name != "hta/cpu_only"])
def test_recomputed_work_is_the_same_to_all(shared: Path, name: str) -> None:
    trace = open_trace(shared / "traces" / name)
    kernels, passes = trace.tables["kernels"], trace.tables["kernel_passes"]
    length = np.subtract(kernels["end_ns"].to_numpy(), kernels["start_ns"].to_numpy())
    again = np.array(passes["recomputed"].to_pylist(), bool)
    assert not again[np.array(passes["phase"].to_pylist()) != "backward"].any()
    advice = ask_trace(trace, "recommendations", min_pct=0.0).to_pylist()
    found = [r for r in advice if r["finding"] == "activations are recomputed"]
    assert len(found) == bool(length[again].sum())
    for row in found:  # what runs beside something else has less time of its own
        assert row["evidence"].startswith(f"{again.sum()} activities")
        lanes = max(len(ask_trace(trace, "time_breakdown").to_pylist()), 1)
        assert 0.99 * length[again].sum() <= lanes * row["gain_ns"] <= length[again].sum()


def test_recomputed_work_of_a_public_trace(shared: Path) -> None:
    """What FLOPs call recomputed is what recommendations do, less sets and what has no model."""
    trace = open_trace(shared / "traces/tracelens/mi300/resnet_act_checkpoint.json.gz")
    work = ask_trace(trace, "flops").coverage["recomputed_ns"]
    assert 0.97 * 4_122_223 <= work <= 4_122_223 + 87_735
