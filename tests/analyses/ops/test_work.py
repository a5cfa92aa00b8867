"""Work and rooflines: shares and rates on paper, and against reports of another tool."""

import ast
import csv
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

from htk.analyses.ops.flops import flops
from htk.analyses.ops.roofline import roofline
from htk.answers.ask import ask_trace
from htk.base.errors import HtkError
from htk.physics.op_costs import compute_call_cost
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make
from tests.thinned import thinned

BF16 = '["c10::BFloat16","c10::BFloat16"]'
SHAPES = "[[1000,1000],[1000,1000]]"


def one_call(name: str = "aten::mm", outer: str = "aten::matmul") -> dict[str, pa.Table]:
    """matmul calls mm, which launches a kernel and a set: 20 µs in all."""
    described = {"input_dims": SHAPES, "input_types": BF16, "process": "1", "thread": "1"}
    ops = [
        {"name": outer, "start_ns": 0, "end_ns": 100, **described},
        {"name": name, "start_ns": 10, "end_ns": 90, **described},
    ]
    links = [
        {"depth": 0, "thread_index": 0, "selected": True},
        {"parent_row": 0, "depth": 1, "thread_index": 0, "selected": True},
    ]
    kernels = [
        {"name": "gemm", "activity": "kernel", "kind": "compute", "start_ns": 0, "end_ns": 18_000},
        {"name": "Memset", "activity": "set", "kind": "memory", "start_ns": 0, "end_ns": 2_000},
    ]
    window = {"start_ns": 0, "end_ns": 100_000, "complete": True}
    return {
        "cpu_ops": make("cpu_ops", ops),
        "op_links": make("op_links", links),
        "kernels": make("kernels", kernels),
        "kernel_links": make("kernel_links", [{"op_row": 1, "carry_in": False}] * 2),
        "ranks": make("ranks", [{"device_name": "NVIDIA H100 80GB HBM3"}]),
        "rank_windows": make("rank_windows", [window]),
    }


def test_counters_stand_beside_the_roofline() -> None:
    """10 µs at 40 %, 8 at 90; the set in the first 2: (10·40 + 8·90 + 2·40) ÷ 20."""
    samples = [
        {"name": "SM Active (%)", "process": "GPU 0", "series": "", "time_ns": time, "value": value}
        for time, value in ((0, 40.0), (10_000, 90.0))
    ]
    (row,) = answer_of(roofline, **one_call(), counters=make("counters", samples))
    assert (row["sm_active_pct"], row["memory_busy_pct"]) == (60, None)


@pytest.mark.parametrize("inner", ["aten::mm", "vendor::gemm"])
def test_a_call_counts_once_at_the_innermost_operator_that_is_known(inner: str) -> None:
    (row,) = answer_of(roofline, **one_call(inner))
    assert row["name"] == ("aten::mm" if inner == "aten::mm" else "aten::matmul")
    assert (row["count"], row["kernels"], row["device_ns"]) == (1, 2, 20_000)
    assert row["flops_per_call"] == 2e9
    assert row["achieved_tflops"] == pytest.approx(100)
    assert row["achieved_tbps"] == pytest.approx(6e6 / 20e-6 / 1e12)
    assert row["roofline_ns"] == pytest.approx(2e9 / 989e12 * 1e9)
    assert row["roofline_pct"] == pytest.approx(100 * 2e9 / 989e12 / 20e-6)
    assert row["bound"] == "launch"  # two activities of a microsecond at best
    (row,) = answer_of(roofline, **one_call(inner), options={"launch_us": 0.1})
    assert row["bound"] == "compute"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_copy_from_the_host_leaves_its_row_without_a_roofline(order: tuple[int, int]) -> None:
    """Whether it is launched first or last: half of the time is that of another link."""
    tables = one_call()
    copied = tables["kernels"].to_pylist()
    copied[1] |= {"name": "Memcpy HtoD (Pinned -> Device)", "activity": "copy"}
    tables["kernels"] = make("kernels", [copied[place] for place in order])
    (row,) = answer_of(roofline, **tables)
    assert (row["bound"], row["roofline_ns"], row["roofline_pct"]) == (None, None, None)
    assert row["note"].startswith("copy between host and GPU") and row["flops_per_call"] == 2e9


def test_utilisation() -> None:
    (row,) = answer_of(flops, **one_call())
    assert row["modelled_pct"] == 100
    assert row["dtype"] == "bf16"
    assert row["mfu_pct"] == pytest.approx(100 * 2e9 / (100e-6 * 989e12))
    assert row["mfu_pct"] == row["hfu_pct"]
    (row,) = answer_of(flops, **one_call(), options={"peak_tflops": 200.0})
    assert row["mfu_pct"] == pytest.approx(10)


def test_recomputed_work_is_no_model_work() -> None:
    tables = one_call("aten::mm", "CheckpointFunctionBackward")
    (row,) = answer_of(flops, **tables)
    assert (row["model_flops"], row["hardware_flops"]) == (0, 2e9)


def test_an_unknown_gpu_and_operator_are_said_to_be() -> None:
    tables = one_call("mine::op", "mine::outer") | {"ranks": make("ranks", [{}])}
    (row,) = answer_of(roofline, **tables)
    assert (row["note"], row["family"], row["roofline_ns"]) == ("no model", None, None)
    (row,) = answer_of(flops, **tables)
    assert (row["modelled_pct"], row["mfu_pct"]) == (0, None)


def test_copies_from_the_host_have_no_roofline() -> None:
    copied = [{"name": "Memcpy HtoD (Pageable -> Device)", "activity": "copy", "end_ns": 50_000}]
    kernels = make("kernels", [{"start_ns": 0, "kind": "memory", **copied[0]}])
    links = make("kernel_links", [{"op_row": 1, "carry_in": False}])
    tables = one_call("aten::copy_") | {"kernels": kernels, "kernel_links": links}
    (row,) = answer_of(roofline, **tables)
    assert (row["bytes_per_call"], row["bound"], row["roofline_pct"]) == (4e6, None, None)
    assert "host" in row["note"]


_COMPILED = "compiled functions whose kernels belong to no recorded operator"
# Every public trace that records shapes: the least share of the GPU time that it launched, less
# communication, whose work is known; and why, where that is under the 95 % that are aimed at.
SHARES = {
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto": (99.9, ""),
    "hta/call_stack/backward_thread.json": (99.9, ""),
    "hta/triton_example/triton_example": (99.9, ""),
    "hta/timeline_analysis/sampled_rank-0": (96.0, ""),
    "hta/trace_filter/sampled_rank-1": (95.0, ""),
    "hta/trace_diff/control/control": (95.3, ""),
    "hta/trace_diff/test/test": (56.0, _COMPILED),
    "dlrm_8rank/worker0_step_12.1694128201545.pt.trace": (97.0, ""),
    "tracelens/b200/eager_trace": (99.9, ""),
    "tracelens/h100/Falconsai_nsfw_image_detection__1016002": (99.9, ""),
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005": (99.9, ""),
    "tracelens/h100/facebook_timesformer-base-finetuned-k400__1016002": (99.9, ""),
    "tracelens/h100/gaunernst_bert-small-uncased__1016001": (99.2, ""),
    "tracelens/mi300/Falconsai_nsfw_image_detection__1016002": (99.9, ""),
    "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005": (99.9, ""),
    "tracelens/mi300/facebook_timesformer-base-finetuned-k400__1016002": (99.9, ""),
    "tracelens/mi300/gaunernst_bert-small-uncased__1016001": (99.3, ""),
    "tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001": (99.9, ""),
    "tracelens/mi300/resnet_act_checkpoint": (99.5, ""),
    "tracelens/torch_compile_triton/trace": (99.9, ""),
    "tracelens/inference/sglang_decode": (99.5, ""),  # with its captures
    "tracelens/inference/vllm_prefilldecode_piecewise": (99.9, ""),
}


@pytest.mark.parametrize("trace", thinned(SHARES, 3))
def test_share_of_gpu_time_that_is_modelled(shared: Path, trace: str) -> None:
    least, reason = SHARES[trace]
    path = shared / "traces" / trace
    found = [path] if path.exists() else [path.with_name(f"{path.name}.json.gz")]
    files = sorted(path.rglob("*.json.gz")) if path.is_dir() else found
    coverage = ask_trace(open_trace([str(file) for file in files]), "roofline").coverage
    share = coverage["modelled_pct_of_time_launched_here_less_communication"]
    assert share >= least, coverage["not_modelled_ns"]
    assert share >= 95 or reason, "a reason"
    assert share < 95 or not reason, "no reason is left"


_MODELS = {
    "Falconsai_nsfw_image_detection__1016002": ("GEMM", "SDPA_fwd", "CONV_fwd"),
    "Qwen_Qwen1.5-0.5B-Chat__1016005": ("GEMM", "SDPA_fwd"),
    "facebook_timesformer-base-finetuned-k400__1016002": ("GEMM", "CONV_fwd"),
    "gaunernst_bert-small-uncased__1016001": ("GEMM", "SDPA_fwd"),
}
REPORTS = [
    *((f"{gpu}/{model}", sheet)
      for gpu in ("h100", "mi300") for model, sheets in _MODELS.items() for sheet in sheets),
    ("mi300/resnet_act_checkpoint_recompute", "GEMM"),
    ("mi300/resnet_act_checkpoint_recompute", "CONV_fwd"),
    ("torch_compile_triton/trace", "GEMM"),
    ("torch_compile_triton/trace", "SDPA_fwd"),
    ("inference/vllm_prefilldecode_piecewise", "GEMM"),
    ("inference/sglang_decode", "GEMM"),
]  # fmt: skip


@pytest.mark.parametrize(("report", "sheet"), REPORTS)
def test_work_of_calls_as_another_tool_reports_it(shared: Path, report: str, sheet: str) -> None:
    """TraceLens's GEMM, SDPA and CONV sheets: its GFLOPS and mebibytes are ours, call by call.

    Different by intent: it halves causal attention, where (n + 1) / 2n of the pairs of equal
    lengths count; and it overlooks the bias of a convolution: an addition for each result.
    """
    folder = f"{report}/perf_csvs" if "inference" in report else f"{report}_perf_report_csvs"
    path = shared / f"traces/tracelens/{folder}/{sheet}.csv"
    for row in csv.DictReader(path.open()):
        dims, types, values = (
            json.dumps(_literal(row[f"{c}_first"]))
            for c in ("Input Dims", "Input type", "Concrete Inputs")
        )
        found = compute_call_cost(row["name"], dims, types, values)
        assert not isinstance(found, str), (row["name"], found)
        expected = float(row["GFLOPS_first"]) * 1e9
        if row.get("param: causal") == "True":
            length = int(row["param: N_Q"])
            expected *= (length + 1) / length
        moved = float(row["Data Moved (MB)_first"]) * 2**20
        if sheet == "CONV_fwd" and (bias := json.loads(dims)[2]):
            weight = math.prod(ast.literal_eval(row["param: filter_shape"])[1:])
            expected += expected / (2 * weight)
            moved += 2 * bias[0]
        assert found.flops == pytest.approx(expected, rel=1e-9), row["name"]
        assert found.bytes == pytest.approx(moved, rel=1e-9), row["name"]


def _literal(text: str) -> object:
    return ast.literal_eval(text)


@pytest.mark.nightly
def test_no_row_of_any_recording_is_above_its_compute_roof(shared: Path) -> None:
    """It would be proof of an error, so it is never printed as a number."""
    asked = 0
    for path in sorted((shared / "traces").rglob("*.json*")):
        try:
            trace = open_trace(path)
            rows = ask_trace(trace, "roofline", n=0).to_pylist()
            windows = ask_trace(trace, "flops").to_pylist()
        except HtkError:
            continue
        asked += 1
        above = [r for r in rows if r["bound"] == "compute" and (r["roofline_pct"] or 0) > 100]
        assert [path.name, above] == [path.name, []]
        assert all((row["mfu_pct"] or 0) <= 100 for row in windows)
    assert asked > 10
