"""Each rule fires on what it is for, and only then."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from htk.analyses.causes.recommendations import recommendations
from htk.analyses.time.host_stalls import RETURNS as STALLS
from htk.analyses.time.idle_breakdown import RETURNS as IDLE
from htk.analyses.time.time_breakdown import RETURNS as TIMES
from htk.answers.ask import ask
from htk.trace.opening import open_trace
from tests.tables import answer_of, make


def rows_of(schema: pa.Schema, *rows: dict[str, Any]) -> pa.Table:
    plain = pa.schema([
        (f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in schema
    ])  # fmt: skip
    return pa.Table.from_pylist(list(rows), plain).cast(schema)


EMPTY = {"host_stalls": rows_of(STALLS), "idle_breakdown": rows_of(IDLE)}


def advice(
    idle: tuple[tuple[str, int], ...] = (), exposed: int = 0, **tables: pa.Table
) -> dict[str, int | None]:
    """Findings and their gains, of a rank that recorded 1000 ns."""
    time = {"rank": 0, "total_ns": 1000, "comm_ns": 400, "exposed_comm_ns": exposed,
            "exposed_memory_ns": 100}  # fmt: skip
    causes = [{"rank": 0, "cause": c, "idle_ns": n, "count": 1} for c, n in idle]
    given = {"host_stalls": rows_of(STALLS)} | tables
    found = answer_of(
        recommendations,
        time_breakdown=rows_of(TIMES, time),
        idle_breakdown=rows_of(IDLE, *causes),
        **given,
    )
    return {r["finding"]: r["gain_ns"] for r in found}


def test_nothing_wrong_nothing_said() -> None:
    assert advice() == {}
    assert advice(idle=(("host_gc", 5),)) == {}, "below a percent"


def test_causes_of_idle_time_worst_first() -> None:
    found = advice(idle=(("host_data_loading", 100), ("host_python", 80), ("host_operator", 70)))
    assert list(found.items()) == [
        ("launch-bound: the host launches slower than the GPU works", 150),
        ("the GPU waits for data", 100),
    ]


def test_ranks_that_compute_unequally() -> None:
    """100, 100 and 160: the mean is 120, which the others wait 40 beyond."""
    times = [{"rank": r, "total_ns": 1000, "compute_ns": c, "comm_ns": 0, "exposed_comm_ns": 0,
              "exposed_memory_ns": 0} for r, c in enumerate((100, 100, 160))]  # fmt: skip
    found = answer_of(recommendations, time_breakdown=rows_of(TIMES, *times), **EMPTY)
    assert [(r["finding"], r["gain_ns"]) for r in found] == [("ranks compute unequally", 40)]
    assert "rank 2" in found[0]["evidence"]
    even = [row | {"compute_ns": 100} for row in times]
    assert answer_of(recommendations, time_breakdown=rows_of(TIMES, *even), **EMPTY) == []


def test_exposed_communication_splits_into_waiting_and_bytes() -> None:
    assert advice(exposed=200) == {"communication is exposed": 200}
    calls = [{"rank": 0}, {"rank": 1}]
    waits = [{"wait_ns": 30, "transfer_ns": 10}, {"wait_ns": 0, "transfer_ns": 0, "blamed": True}]
    found = advice(
        exposed=200,
        collectives=make("collectives", calls),
        aligned_matches=make("aligned_matches", waits),
    )
    assert found == {"ranks wait for late ranks": 150, "communication is exposed": 50}


def test_kernels() -> None:
    rows = [
        {"activity": "kernel", "kind": "compute", "family": "gemm", "name": "volta_sgemm_32x32_nn",
         "start_ns": 0, "end_ns": 100, "blocks_per_sm": 4.0},
        {"activity": "kernel", "kind": "compute", "family": "elementwise", "name": "add",
         "start_ns": 100, "end_ns": 200, "blocks_per_sm": 0.25},
    ]  # fmt: skip
    assert advice(kernels=make("kernels", rows)) == {
        "kernels too small for the GPU": 75,
        "matrix kernels without tensor cores": 50,
    }


def advised(name: str, capability: str) -> str:
    major, minor = capability.split(".")
    properties = f'[{{"computeMajor": {major}, "computeMinor": {minor}, "warpSize": 32}}]'
    gemm = {"activity": "kernel", "kind": "compute", "family": "gemm", "start_ns": 0,
            "name": "volta_sgemm_32x32_nn", "end_ns": 100}  # fmt: skip
    time = {"rank": 0, "total_ns": 1000, "comm_ns": 0, "exposed_comm_ns": 0}
    (row,) = answer_of(
        recommendations,
        time_breakdown=rows_of(TIMES, time),
        kernels=make("kernels", [gemm]),
        ranks=make("ranks", [{"device_name": name, "device_properties": properties}]),
        **EMPTY,
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


def test_idle_time_is_offered_once() -> None:
    """Of 100 ns that the host was late, 70 follow a blocking call; 20 more it blocked in."""
    stall = {"rank": 0, "cause": ".item", "name": "cudaStreamSynchronize", "count": 3,
             "host_ns": 25, "gpu_idle_caused_ns": 90}  # fmt: skip
    idle = (("host_operator", 100), ("host_sync", 20))
    assert advice(idle=idle, host_stalls=rows_of(STALLS, stall)) == {
        "synchronising calls drain the GPU": 90,
        "launch-bound: the host launches slower than the GPU works": 30,
    }


def test_copies_and_memory() -> None:
    copies = [{"activity": "copy", "kind": "memory", "family": "copy", "name": "Memcpy HtoD",
               "start_ns": k, "end_ns": k + 1, "size_bytes": 8} for k in range(100)]  # fmt: skip
    memory = [{"device_type": 1, "reserved_bytes": 95, "time_ns": 0}]
    ranks = [{"device_properties": '[{"totalGlobalMem": 100}]'}]
    found = advice(
        kernels=make("kernels", copies), memory=make("memory", memory), ranks=make("ranks", ranks)
    )
    assert found == {"GPU memory is nearly full": None, "many small copies": 100}


def test_a_public_trace_that_waits_for_its_data(shared: Path) -> None:
    trace = open_trace(
        shared / "traces/tracelens/mi300/google_owlv2-large-patch14-ensemble__1016001.json.gz"
    )
    first = ask(trace, "recommendations").to_pylist()[0]
    assert first["finding"] == "the GPU waits for data" and round(first["gain_pct"]) == 62


def test_work_that_is_done_twice(shared: Path) -> None:
    """TraceLens finds 4.122 ms of recomputed GPU time here; it loses the 24 sets among it."""
    trace = open_trace(shared / "traces/tracelens/mi300/resnet_act_checkpoint.json.gz")
    found = {r["finding"]: r["gain_ns"] for r in ask(trace, "recommendations").to_pylist()}
    assert found["activations are recomputed"] == 4_122_223 + 87_735
