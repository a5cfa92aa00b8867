"""Advice knows the device, and whether shapes change."""

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.analyses.time.time_breakdown import RETURNS as TIMES
from htk.answers.ask import ask_trace
from htk.quantities.derived.totals import launch_totals, op_totals
from htk.traces import sample
from htk.traces.trace.opening import open_trace
from htk.verdicts.causes.launching import changing_shapes, launch_advice
from htk.verdicts.causes.program import FUSED_ELSEWHERE
from htk.verdicts.causes.recommendations import recommendations
from htk.verdicts.causes.recorded import CauseEvidence
from tests.htk.verdicts.causes.advice_rows import rows_of
from tests.tables import answer_of, make


def operators(*steps: list[str]) -> pa.Table:
    """aten::mm in each step, with these shapes of its input."""
    ops = [{"name": "aten::mm", "input_dims": dims} for step in steps for dims in step]
    links = [{"step": number} for number, step in enumerate(steps) for _ in step]
    return op_totals(make("cpu_ops", ops), make("op_links", links))


def advice(*steps: list[str], call: str = "cudaLaunchKernel", form: str = "kineto") -> str:
    launches = launch_totals(make("launches", [{"name": call}]))
    tables = {
        "op_totals": operators(*steps),
        "launch_totals": launches,
        "kernel_totals": make("kernel_totals", []),
        "ranks": make("ranks", [{"format": form}]),
    }
    return launch_advice(CauseEvidence(tables, None))


SAMPLE_FILE = "rank0.pt.trace.json.gz"
SAME = ["[[8, 8]]", "[[8, 16]]"]


def test_shapes_that_stay_and_shapes_that_change() -> None:
    assert changing_shapes(operators(SAME, SAME, SAME)) == 0
    # One of three calls of the second step has a shape that the first has not; that of the first
    # which comes twice there comes once here.
    assert changing_shapes(operators(SAME, [*SAME, "[[9, 9]]"])) == pytest.approx(1 / 5)
    assert changing_shapes(operators(SAME, [*SAME, SAME[0]])) == pytest.approx(3 / 5)
    assert changing_shapes(operators(SAME)) is None, "one step tells nothing"


def test_graphs_are_advised_only_where_shapes_stay() -> None:
    assert "CUDA graphs: shapes are the same in every step" in advice(SAME, SAME)
    changing = advice(SAME, ["[[8, 8]]", "[[8, 17]]"])
    assert "no CUDA graphs as it is: 50 % of operator calls" in changing
    assert "CUDA graphs if shapes are the same" in advice(SAME)
    assert "HIP graphs: shapes are the same" in advice(SAME, SAME, call="hipLaunchKernel")
    assert "more of the step in CUDA graphs" in advice(SAME, SAME, call="cudaGraphLaunch")
    assert "graphs" not in advice(SAME, SAME, form="xplane")


@pytest.mark.parametrize(("call", "form"), [
    ("runFunction - job_prep_and_submit_for_execution", "kineto"), ("Node@launch", "ascend"),
])  # fmt: skip
def test_ways_of_gpus_are_not_advised_to_what_has_others(call: str, form: str) -> None:
    assert "fewer and larger kernels" in advice(SAME, SAME, call=call, form=form)


def test_chains_on_other_accelerators_are_left_to_the_vendor_s_libraries(tmp_path: Path) -> None:
    recorded = gzip.decompress((Path(sample.__file__).parent / SAMPLE_FILE).read_bytes())
    ways = []
    for name, text in (
        ("gpu", recorded),
        ("npu", re.sub(rb'"(?:cuda|cu)([A-Z])', rb'"npu\1', recorded)),
    ):
        path = tmp_path / name / "rank0.pt.trace.json"
        path.parent.mkdir()
        path.write_bytes(text)
        chains = ask_trace(open_trace(path), "fusible_chains", n=0).to_pylist()
        ways.append({chain["implementation"] for chain in chains})
    assert "torch.compile" in ways[0] and ways[1] == {FUSED_ELSEWHERE}


def findings(device: str, capability: str, kernel: str) -> dict[str, Any]:
    major, minor = capability.split(".")
    properties = f'[{{"computeMajor": {major}, "computeMinor": {minor}, "warpSize": 32}}]'
    gemm = {"activity": "kernel", "kind": "compute", "family": "gemm", "start_ns": 0,
            "name": kernel, "end_ns": 90}  # fmt: skip
    time = {"rank": 0, "total_ns": 100, "comm_ns": 0, "exposed_comm_ns": 0, "compute_ns": 90}
    rows = answer_of(
        recommendations,
        time_breakdown=rows_of(TIMES, time),
        kernels=make("kernels", [gemm]),
        ranks=make("ranks", [{"device_name": device, "device_properties": properties}]),
    )
    return {row["finding"]: row for row in rows}


BF16 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
EIGHT = "matrix products in 16 bit on a GPU with FP8"


@pytest.mark.parametrize(
    ("device", "capability", "has"),
    [
        ("NVIDIA H100 80GB HBM3", "9.0", True),
        ("NVIDIA L4", "8.9", True),
        ("NVIDIA A100-SXM4-80GB", "8.0", False),
        ("Tesla V100-SXM2-32GB", "7.0", False),
    ],
)
def test_fp8_is_named_where_the_gpu_has_it(device: str, capability: str, has: bool) -> None:
    found = findings(device, capability, BF16)
    assert (EIGHT in found) is has
    if has:  # it changes what is computed, so that no time is promised
        assert found[EIGHT]["gain_ns"] is None and found[EIGHT]["event_names"] == BF16


@pytest.mark.parametrize("kernel", ["sm90_xmma_gemm_e4m3bf16_e4m3f32", "nvjet_qqtst_e4m3_bf16"])
def test_products_in_8_bit_are_left_alone(kernel: str) -> None:
    assert EIGHT not in findings("NVIDIA H100 80GB HBM3", "9.0", kernel)
