"""Each rule fires on what it is for, and only then."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.analyses.time.time_breakdown import RETURNS as TIMES
from htk.answers.ask import ask_trace
from htk.base.core.humanize import format_duration
from htk.quantities.derived.totals import op_totals
from htk.traces.trace.opening import open_trace
from htk.verdicts.causes.recommendations import recommendations
from tests.htk.verdicts.causes.advice_rows import assert_disjoint, rows_of
from tests.tables import answer_of, make

WINDOW = 10_000_000  # ns that a rank recorded


def idle_pieces(*pieces: tuple[str, int], rank: int = 0) -> list[dict[str, Any]]:
    """Gaps of one piece each, one behind the other."""
    rows, start = [], 0
    for cause, length in pieces:
        end = start + length
        gap = {"gap_start_ns": start, "gap_end_ns": end, "start_ns": start, "end_ns": end}
        rows.append({"rank": rank, "cause": cause, **gap})
        start = end
    return rows


def advised_rows(
    idle: tuple[tuple[str, int], ...] = (), exposed: int = 0, **tables: pa.Table
) -> list[dict[str, Any]]:
    """What is advised of one rank, all of whose kernels compute and whose copies are exposed."""
    kernels = tables.get("kernels", make("kernels", [])).to_pylist()
    total = {"compute": 0, "memory": 0}
    for row in kernels:
        total[row["kind"]] += row["end_ns"] - row["start_ns"]
    time = {"rank": 0, "total_ns": WINDOW, "comm_ns": 2 * exposed, "exposed_comm_ns": exposed,
            "compute_ns": total["compute"], "exposed_memory_ns": total["memory"],
            "idle_ns": sum(length for _, length in idle)}  # fmt: skip
    rows: list[dict[str, Any]] = answer_of(
        recommendations,
        **{
            "time_breakdown": rows_of(TIMES, time),
            "idle_causes": make("idle_causes", idle_pieces(*idle)),
            "rank_windows": make("rank_windows", [{"start_ns": 0, "end_ns": WINDOW}]),
            **tables,
        },
    )
    return rows


def advice(
    idle: tuple[tuple[str, int], ...] = (), exposed: int = 0, **tables: pa.Table
) -> dict[str, int | None]:
    """Findings and their gains."""
    return {r["finding"]: r["gain_ns"] for r in advised_rows(idle, exposed, **tables)}


def test_nothing_wrong_nothing_said() -> None:
    assert advice() == {}
    assert advice(idle=(("host_gc", 50_000),)) == {}, "below a percent"


def test_causes_of_idle_time_worst_first() -> None:
    """Gaps of a millisecond and more are no matter of launching."""
    causes = (
        ("host_data_loading", 1_000_000),
        ("host_python", 800_000),
        ("host_operator", 700_000),
        ("host_operator", 1_200_000),
        ("host_lazy_loading", 150_000),
        ("host_start_up", 160_000),
    )
    assert list(advice(idle=causes).items()) == [
        ("launch-bound: the host launches slower than the GPU works", 1_500_000),
        ("the GPU waits while the host works on something else", 1_200_000),
        ("the GPU waits for data", 1_000_000),
        ("the recording holds the start-up of the job", 310_000),
    ]


@pytest.mark.parametrize(
    ("calls", "finding"),
    [
        (["cudaGraphLaunch"], "the GPU waits for the host between graphs"),
        (
            ["cudaGraphLaunch", "cudaLaunchKernel"],
            "launch-bound: the host launches slower than the GPU works",
        ),
    ],
)
def test_a_job_whose_kernels_are_all_in_graphs_is_not_launch_bound(
    calls: list[str], finding: str
) -> None:
    launched = make("launch_totals", [{"name": call, "count": 2} for call in calls])
    assert advice(idle=(("launch_latency", 700_000),), launch_totals=launched) == {finding: 700_000}


def test_lost_time_that_no_cause_has_closes_the_table() -> None:
    """Of 3 ms without GPU work a third is garbage collection; nothing tells of the rest."""
    idle = (("host_gc", 1_000_000), ("unknown", 1_500_000), ("between_queued_kernels", 500_000))
    found = advised_rows(idle=idle, exposed=2_000_000)
    assert [(row["finding"], row["gain_ns"]) for row in found] == [
        ("communication is exposed", 2_000_000),
        ("Python collects garbage in the step", 1_000_000),
        ("unexplained", 2_000_000),
    ]
    assert {row["basis"] for row in found} == {"recorded"}


def test_exposed_communication_is_transfer_where_nothing_tells_waiting() -> None:
    assert advice(exposed=2_000_000) == {"communication is exposed": 2_000_000}


def compute_kernels() -> pa.Table:
    return make("kernels", [
        {"activity": "kernel", "kind": "compute", "family": "gemm", "name": "volta_sgemm_32x32_nn",
         "start_ns": 0, "end_ns": 1_000_000, "blocks_per_sm": 0.5},
        {"activity": "kernel", "kind": "compute", "family": "elementwise", "name": "add",
         "start_ns": 1_000_000, "end_ns": 2_000_000, "blocks_per_sm": 0.25},
    ])  # fmt: skip


def test_time_of_a_kernel_is_offered_once() -> None:
    """Tensor cores take half of the product; of the other half a half is the empty GPU."""
    rows = {r["finding"]: r for r in advised_rows(kernels=compute_kernels())}
    small, plain = (
        rows["kernels too small for the GPU"],
        rows["matrix kernels without tensor cores"],
    )
    assert plain["gain_ns"] == 500_000 and plain["event_names"] == "volta_sgemm_32x32_nn"
    assert small["gain_ns"] == 750_000 + 250_000
    assert (small["rank"], small["start_ns"], small["end_ns"]) == (0, 0, 1_000_000)


def test_recomputed_kernels_have_no_time_left_for_other_advice() -> None:
    passes = make("kernel_passes", [{"recomputed": True}, {"recomputed": False}])
    assert advice(kernels=compute_kernels(), kernel_passes=passes) == {
        "activations are recomputed": 1_000_000,
        "kernels too small for the GPU": 750_000,
    }


def test_kernels_beside_one_another_share_their_time() -> None:
    """Two kernels of 1 ms on two streams at the same time: 1 ms of compute in all."""
    time = {"rank": 0, "total_ns": WINDOW, "comm_ns": 0, "exposed_comm_ns": 0,
            "compute_ns": 1_000_000, "exposed_memory_ns": 0}  # fmt: skip
    passes = make("kernel_passes", [{"recomputed": True}] * 2)
    found = answer_of(
        recommendations,
        time_breakdown=rows_of(TIMES, time),
        kernels=compute_kernels(),
        kernel_passes=passes,
    )
    assert [r["gain_ns"] for r in found] == [1_000_000]


def advised(name: str, capability: str) -> str:
    major, minor = capability.split(".")
    properties = f'[{{"computeMajor": {major}, "computeMinor": {minor}, "warpSize": 32}}]'
    gemm = {"activity": "kernel", "kind": "compute", "family": "gemm", "start_ns": 0,
            "name": "volta_sgemm_32x32_nn", "end_ns": 100}  # fmt: skip
    time = {"rank": 0, "total_ns": 1000, "comm_ns": 0, "exposed_comm_ns": 0, "compute_ns": 100}
    (row,) = answer_of(
        recommendations,
        time_breakdown=rows_of(TIMES, time),
        kernels=make("kernels", [gemm]),
        ranks=make("ranks", [{"device_name": name, "device_properties": properties}]),
        op_totals=op_totals(make("cpu_ops", [{"name": "aten::mm"}]), make("op_links", [{}])),
    )
    return str(row["advice"])


@pytest.mark.parametrize(
    ("name", "capability", "has", "lacks"),
    [
        ("Tesla V100-SXM2-32GB", "7.0", "fp16 autocast", "TF32"),
        ("NVIDIA GeForce RTX 2080 Ti", "7.5", "fp16 autocast", "TF32"),
        ("NVIDIA A100-SXM4-80GB", "8.0", "bf16 autocast, or TF32", "fp16"),
        ("NVIDIA H100 80GB HBM3", "9.0", "bf16 autocast, or TF32", "fp16"),
    ],
)
def test_formats_are_those_of_the_gpu(name: str, capability: str, has: str, lacks: str) -> None:
    told = advised(name, capability)
    assert has in told and lacks not in told


def test_idle_time_after_a_blocking_call_is_offered_once() -> None:
    """A call blocks for 90 us. The GPU is idle for 20 of them and 100 after it: 70 of those are the
    call's, and what is left is launching.
    """
    call = {"name": "cudaStreamSynchronize", "process": "p", "thread": "t", "start_ns": 0,
            "end_ns": 90_000}  # fmt: skip
    gap = {"gap_start_ns": 70_000, "gap_end_ns": 190_000}
    pieces = [
        {"cause": "host_sync", "start_ns": 70_000, "end_ns": 90_000, **gap},
        {"cause": "host_operator", "start_ns": 90_000, "end_ns": 190_000, **gap},
    ]
    found = advice(
        launches=make("launches", [call]),
        launch_links=make("launch_links", [{}]),
        idle_causes=make("idle_causes", pieces),
        rank_windows=make("rank_windows", [{"start_ns": 0, "end_ns": 1_000_000}]),
        time_breakdown=rows_of(TIMES, {"rank": 0, "total_ns": 1_000_000}),
    )
    assert found == {
        "synchronising calls drain the GPU": 90_000,
        "launch-bound: the host launches slower than the GPU works": 30_000,
    }


def test_copies_and_memory() -> None:
    copies = [{"activity": "copy", "kind": "memory", "family": "copy", "name": "Memcpy HtoD",
               "start_ns": 9000 * k, "end_ns": 9000 * (k + 1), "size_bytes": 8}
              for k in range(100)]  # fmt: skip
    memory = [{"device_type": 1, "reserved_bytes": 95, "time_ns": 0}]
    ranks = [{"device_properties": '[{"totalGlobalMem": 100}]'}]
    found = advice(
        kernels=make("kernels", copies), memory=make("memory", memory), ranks=make("ranks", ranks)
    )
    assert found == {"GPU memory is nearly full": None, "many small copies": 900_000}


@pytest.mark.parametrize("name", [
    "dlrm_8rank", "hta/critical_path/alexnet", "hta/execution_trace", "hta/nccl_parser_config",
    "hta/trace_diff/test", "hta/trace_filter", "tracelens/b200/eager_trace.json.gz",
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/mi300/resnet_act_checkpoint.json.gz", "nsys/mfu_2gpu_after.sqlite",
])  # fmt: skip
def test_gains_never_exceed_what_there_is(shared: Path, name: str) -> None:
    trace = open_trace(shared / "traces" / name)
    answer = ask_trace(trace, "recommendations", min_pct=0.0)
    rows = answer.to_pylist()
    assert_disjoint(rows, answer.coverage["recorded_window_ns"])
    times = ask_trace(trace, "time_breakdown").to_pylist()
    idle = sum(r["idle_ns"] for r in times) // len(times)
    alone = len(times) == 1  # else what others wait is part of a finding on idle time
    causes = [r for r in rows if r["finding"] != "unexplained"]
    of_idle = [r["gain_ns"] for r in causes if r["analysis"] in ("idle_breakdown", "host_stalls")]
    assert not alone or sum(of_idle) <= idle


def test_what_causes_share_is_told_of_those_that_are_shown(shared: Path) -> None:
    """Between the first cause and the second lies one too short to be told here, without which the
    others gain nothing: it is in no sum."""
    trace = open_trace(shared / "traces/nsys/mfu_2gpu_after.sqlite")
    rows = ask_trace(trace, "recommendations").to_pylist()
    replayed = [row for row in rows if row["together_gain_ns"] is not None]
    assert len(replayed) >= 3 and len(ask_trace(trace, "recommendations", min_pct=0.0)) > len(rows)
    claimed = replayed[0]["step_gain_ns"]  # by the gains above, without what they share
    for row in replayed[1:]:
        claimed += row["step_gain_ns"]
        shared_ns = max(claimed - row["together_gain_ns"], 0)
        said = row["overlaps"] or f"{format_duration(0)} of it"
        is_said = shared_ns >= 0.2 * row["step_gain_ns"]
        assert said.startswith(f"{format_duration(shared_ns if is_said else 0)} of it"), row
        claimed -= shared_ns


def test_a_public_trace_that_waits_for_its_data(shared: Path) -> None:
    trace = open_trace(
        shared / "traces/tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz"
    )
    first = ask_trace(trace, "recommendations").to_pylist()[0]
    assert first["finding"] == "the GPU waits for data" and round(first["gain_pct"]) == 62


def test_work_that_is_done_twice(shared: Path) -> None:
    """TraceLens finds 4.122 ms of recomputed GPU time here; it loses the 24 sets among it."""
    trace = open_trace(shared / "traces/tracelens/mi300/resnet_act_checkpoint.json.gz")
    found = {r["finding"]: r for r in ask_trace(trace, "recommendations").to_pylist()}
    again = found["activations are recomputed"]
    assert again["evidence"].startswith("615 activities")
    assert 4_122_223 <= again["gain_ns"] <= 4_122_223 + 87_735, "sets run beside compute in part"
