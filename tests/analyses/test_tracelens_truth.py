"""TraceLens's GPU timeline, met by a mapping; and what it leaves out.

It counts only activities that a recorded call launched, takes sets for compute, and its window
runs from the first of those to the last.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.analyses.time.time_breakdown import time_breakdown
from htk.answers.ask import ask_trace
from htk.base.columns.arrow import decode_texts, mark_valid, match_texts, read_numbers
from htk.quantities.derived.windows import rank_windows
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make

TRACES = (
    "h100/Falconsai_nsfw_image_detection__1016002",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005",
    "h100/facebook_timesformer-base-finetuned-k400__1016002",
    "h100/gaunernst_bert-small-uncased__1016001",
    "mi300/Falconsai_nsfw_image_detection__1016002",
    "mi300/facebook_timesformer-base-finetuned-k400__1016002",
    "mi300/gaunernst_bert-small-uncased__1016001",
    "mi300/Qwen_Qwen1.5-0.5B-Chat__1016005",
    "mi210/gpu_only_trace/gpu_only_trace",
    "torch_compile_triton/trace",
    "inference/vllm_prefilldecode_piecewise/graph_execution",
    "inference/sglang_decode/sglang_Qwen3-8B_decode",
)
RESNET = "mi300/resnet_act_checkpoint"
OURS = {
    "total_time": "total_ns",
    "busy_time": "busy_ns",
    "idle_time": "idle_ns",
    "computation_time": "compute_ns",
    "exposed_comm_time": "exposed_comm_ns",
    "exposed_memcpy_time": "exposed_memory_ns",
    "total_memcpy_time": "memory_ns",
}


def printed(shared: Path, name: str) -> dict[str, float]:
    return {row["type"]: float(row["time ms"]) for row in report(shared, name, "gpu_timeline")}


def report(shared: Path, name: str, sheet: str) -> list[dict[str, str]]:
    folder = shared / "traces/tracelens"
    beside = (folder / name).parent / "perf_csvs"
    own = folder / f"{name}{'_recompute' if name == RESNET else ''}_perf_report_csvs"
    with ((beside if beside.exists() else own) / f"{sheet}.csv").open() as file:
        return list(csv.DictReader(file))


def as_tracelens(trace: Any) -> dict[str, Any]:
    """Our breakdown of linked activities, sets taken for compute."""
    kernels, linked = (
        trace.tables["kernels"],
        mark_valid(trace.tables["kernel_links"]["launch_row"]),
    )
    is_set = match_texts(kernels["activity"], "set".__eq__)
    names = ["compute", "comm", "memory"]
    kind = np.select([match_texts(kernels["kind"], k.__eq__) for k in names], [0, 1, 2], 0)
    kind[is_set] = 0
    rows = trace.tables["activities"]
    place = rows.schema.get_field_index("kind")
    rows = rows.set_column(place, rows.schema.field(place), decode_texts(kind, pa.array(names)))
    rows = rows.filter(linked)
    window = make("rank_windows", rank_windows(rows, make("cut_windows", [])).to_pylist())
    window = window.set_column(0, "rank", rows["rank"].slice(0, window.num_rows))
    (row,) = answer_of(time_breakdown, activities=rows, rank_windows=window)
    return dict(row)


@pytest.mark.parametrize("name", TRACES)
def test_its_timeline_of_linked_work(shared: Path, name: str) -> None:
    trace = open_trace(shared / f"traces/tracelens/{name}.json.gz")
    mine, theirs = as_tracelens(trace), printed(shared, name)
    for label, column in OURS.items():  # it computes in float microseconds since 1970
        assert mine[column] / 1e6 == pytest.approx(theirs[label], abs=2e-3), label


def test_work_that_it_leaves_out_counts_here(shared: Path) -> None:
    """30 % of this trace's GPU work was launched before the recording: 34.9 ms there, 49.7 here."""
    name = "h100/Qwen_Qwen1.5-0.5B-Chat__1016005"
    trace = open_trace(shared / f"traces/tracelens/{name}.json.gz")
    (row,) = ask_trace(trace, "time_breakdown").to_pylist()
    assert round(printed(shared, name)["total_time"], 1) == 34.9
    assert round(row["total_ns"] / 1e6, 1) == 49.7
    carried = read_numbers(trace.tables["kernel_links"]["carry_in"].cast("int8")).sum()
    assert carried == 509


def test_a_timeline_of_half_the_work_is_no_timeline(shared: Path) -> None:
    """With recomputation told apart it gives each half as if the other did not run: of the
    recomputed kernels' 42 ms it calls 90 % idle, and neither half is the busy time of the GPU."""
    trace = open_trace(shared / f"traces/tracelens/{RESNET}.json.gz")
    mine = as_tracelens(trace)
    busy = [float(r["time ms"]) for r in report(shared, RESNET, "gpu_timeline")
            if r["type"] == "busy_time"]  # fmt: skip
    idle = [float(r["percent"]) for r in report(shared, RESNET, "gpu_timeline")
            if r["type"] == "idle_time"]  # fmt: skip
    assert round(idle[1]) == 90
    assert max(busy) < mine["busy_ns"] / 1e6 < sum(busy)
    assert round(100 * mine["idle_ns"] / mine["total_ns"], 1) == 0.5


def test_its_collectives_of_one_rank(shared: Path) -> None:
    """Those with all metadata, to the microsecond; it drops 5 of 17 kernels that lack some."""
    rows = report(shared, RESNET, "coll_analysis")
    trace = open_trace(shared / f"traces/tracelens/{RESNET}.json.gz")
    ours = ask_trace(trace, "collective_times").to_pylist()
    assert len(ours) == 17 and sum(int(r["operation_count"]) for r in rows) == 12
    for row in rows:
        size = {"BFloat16": 2, "Long": 8}[row["dtype"]] * float(row["In msg nelems"])
        alike = [r for r in ours if r["in_bytes"] == size]
        took = sum(r["end_ns"] - r["start_ns"] for r in alike) / 1000
        assert len(alike) == int(row["operation_count"])
        assert took == pytest.approx(float(row["dur_sum"]), abs=0.01)
