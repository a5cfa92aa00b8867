"""Holistic Trace Analysis (HTA): its figures met where they are right, ours where it is wrong."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.columns.arrow import mark_valid
from htk.base.errors import HtkError, MissingTable
from htk.base.names.kinds import kind_of
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.hta_truth import hta_truth
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

WHOLE_MICROSECONDS = (
    "trace_diff/control",
    "trace_diff/test",
    "trace_filter",
    "critical_path/cuda_event_sync",
    "critical_path/cuda_event_sync_multi_stream",
)
# There it also counts synchronisations of the whole device, by an old number for no stream.
OLD_SENTINEL = ("critical_path/alexnet", "critical_path/simple_add")
EXACT = ("ns_resolution_trace", "nccl_parser_config", "trace_diff/control", "trace_diff/test")
LABELS = {"compute": "COMPUTATION", "comm": "COMMUNICATION", "memory": "MEMORY"}


@cache
def opened(path: Path) -> Any:
    return open_trace(path)


def rows(trace: Any, name: str, **options: Any) -> list[dict[str, Any]]:
    return ask_trace(trace, name, **options).to_pylist()


@pytest.mark.parametrize("name", EXACT)
def test_its_kernels_to_the_nanosecond(shared: Path, name: str) -> None:
    """Figures of an exact reading of the kernels that HTA keeps, in its classes."""
    trace, right = opened(shared / "traces/hta" / name), hta_truth(shared)["exact_ns"][name]
    (times,) = rows(trace, "time_breakdown", compat="hta")
    (overlap,) = rows(trace, "comm_compute_overlap", compat="hta")
    assert times["total_ns"] == right["kernel_time_ns"]
    assert times["idle_ns"] == right["idle_ns"]
    assert times["compute_ns"] == right["compute_ns"]
    assert times["busy_ns"] - times["compute_ns"] == right["non_compute_ns"]
    assert overlap["comm_ns"] == right["comm_union_ns"]
    assert overlap["overlap_ns"] == right["overlap_ns"]


@pytest.mark.parametrize("name", WHOLE_MICROSECONDS)
def test_what_it_prints_of_whole_microseconds(shared: Path, name: str) -> None:
    trace, printed = opened(shared / "traces/hta" / name), hta_truth(shared)["hta_output"][name]
    times = {r["rank"]: r for r in rows(trace, "time_breakdown", compat="hta")}
    for told in printed["temporal_breakdown"]:
        mine = times[told["rank"]]
        assert mine["idle_ns"] == 1000 * told["idle_time(us)"]
        assert mine["compute_ns"] == 1000 * told["compute_time(us)"]
        assert mine["total_ns"] == 1000 * told["kernel_time(us)"]
    shares = {r["rank"]: r for r in rows(trace, "comm_compute_overlap", compat="hta")}
    for told in printed["comm_comp_overlap"]:
        mine_pct = shares[told["rank"]]["overlap_pct"]
        assert told["comp_comm_overlap_pctg"] == (None if mine_pct is None else round(mine_pct, 2))
    gaps = {(r["rank"], r["stream"], r["cause"]): r["idle_ns"]
            for r in rows(trace, "idle_breakdown", compat="hta")}  # fmt: skip
    for told in printed["idle_time_breakdown"]["idle"]:
        key = (told["rank"], told["stream"], told["idle_category"])
        assert gaps.get(key, 0) == 1000 * told["idle_time"]


@pytest.mark.parametrize("name", [*WHOLE_MICROSECONDS, *OLD_SENTINEL])
def test_its_classes_of_kernels(shared: Path, name: str) -> None:
    """Each instant in one class, summed over ranks; HTA names the first class first."""
    trace, printed = opened(shared / "traces/hta" / name), hta_truth(shared)["hta_output"][name]
    told = printed["kernel_breakdown_default_num_kernels_10"]["kernel_type"]
    mine = {
        " overlapping ".join(LABELS[k] for k in r["kinds"].split("+")): r["total_ns"]
        for r in rows(trace, "kernel_kinds", compat="hta")
        if r["rank"] is None
    }
    assert {t["kernel_type"]: 1000 * t["sum"] for t in told} == mine


# Where HTA is wrong: each entry of `hta_known_wrong` that speaks of what is asked here.


def test_kernels_of_one_name_keep_their_spread(shared: Path) -> None:
    trace = opened(shared / "traces/hta/trace_diff/control")
    found = rows(trace.sel(steps=range(1009, 1014)), "kernel_top", n=1000)
    (one,) = (r for r in found if "split_embedding_codegen_forward_unweighted_k" in r["name"])
    assert (one["total_ns"], one["duration_ns_min"], one["duration_ns_max"]) == (
        12694000,
        2534000,
        2546000,
    )
    assert one["duration_ns_mean"] == 2538800


def test_backward_is_linked_to_forward(shared: Path) -> None:
    links = opened(shared / "traces/hta/ns_resolution_trace").tables["op_links"]
    assert int(mark_valid(links["forward_row"]).sum()) >= 905  # 1810 ends of arrows


def test_nanoseconds_are_not_rounded(shared: Path) -> None:
    kernels = opened(shared / "traces/hta/ns_resolution_trace").tables["kernels"]
    length = kernels["end_ns"].to_numpy() - kernels["start_ns"].to_numpy()
    assert (length >= 0).all() and (length % 1000 != 0).any()


def sync(ts: float, dur: float) -> Event:
    args = {"device": 0, "stream": 7, "correlation": 99}
    return {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": 7, "ts": ts,
            "dur": dur, "args": args}  # fmt: skip


def test_a_synchronisation_is_no_work(tmp_path: Path) -> None:
    events = [kernel("gemm", 10, 100), kernel("gemm", 900, 100), sync(115, 780)]
    trace = open_trace(write(tmp_path / "sync.json", *events))
    (mine,) = rows(trace, "time_breakdown")
    assert (mine["idle_ns"], mine["compute_ns"], mine["busy_ns"]) == (790_000, 200_000, 200_000)
    (theirs,) = rows(trace, "time_breakdown", compat="hta")
    assert (theirs["idle_ns"], theirs["busy_ns"] - theirs["compute_ns"]) == (10_000, 780_000)


def test_waits_of_mtia_are_no_work(shared: Path) -> None:
    """A union of what is left, by plain Python; HTA counts the waits as compute."""
    path = shared / "traces/hta/mtia_inference_trace/mtia_inference_rank_0.json.gz"
    device = [
        (round(1000 * e["ts"]), round(1000 * (e["ts"] + e["dur"])), e["name"])
        for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if e.get("cat") == "mtia_ccp_events"
    ]
    busy, reach = 0, 0
    for start, end, _ in sorted(d for d in device if not d[2].startswith("event_")):
        busy += max(0, end - max(start, reach))
        reach = max(reach, end)
    trace = open_trace(path, OpenOptions(cache=False))
    (mine,) = rows(trace, "time_breakdown")
    assert abs(mine["busy_ns"] - busy) <= 2 * len(device), "floats of microseconds"
    names = {r["name"] for r in rows(trace, "kernel_top")}
    assert names == {"merge", "pe_exe", "remote", "dma_request"}
    (theirs,) = rows(trace, "time_breakdown", compat="hta")
    printed = hta_truth(shared)["hta_output"]["mtia_inference_trace"]["temporal_breakdown"][0]
    # It rounds each of 1,313 activities to microseconds; where they overlap that does not add up.
    for mine_ns, its in (("idle_ns", "idle_time(us)"), ("compute_ns", "compute_time(us)")):
        assert theirs[mine_ns] / 1000 == pytest.approx(printed[its], abs=200)


def test_the_rank_of_compact_json(tmp_path: Path) -> None:
    text = json.dumps({"distributedInfo": {"backend": "nccl", "rank": 5, "world_size": 8},
                       "traceEvents": [kernel("gemm", 0, 1)]}, separators=(",", ":"))  # fmt: skip
    (tmp_path / "compact.json").write_text(text)
    assert open_trace(tmp_path / "compact.json").ranks == [5]


def test_ranks_begin_when_they_did(tmp_path: Path) -> None:
    for rank, base in ((0, 10**9), (1, 2 * 10**9)):
        write(tmp_path / f"rank{rank}.json", kernel("gemm", 5, 1), **of_rank(rank, 2, base))
    start = open_trace(tmp_path).tables["rank_windows"]["start_ns"].to_pylist()
    assert abs(start[1] - start[0]) == 10**9


def two_ranks(folder: Path, name: str) -> Any:
    """Rank 1 comes 50 us late to the second of two collectives."""
    for rank, late in ((0, 0), (1, 50)):
        events = []
        for k, (start, end) in enumerate(((0, 10), (30 + late, 90)), 1):
            e = kernel(name, start, end - start, k)
            said = {"Collective name": "allreduce", "Process Group Name": "0", "Group size": 2,
                          "Process Group Ranks": "[0, 1]", "In msg nelems": 8,
                          "Out msg nelems": 8, "dtype": "Float"}  # fmt: skip
            e["args"] |= said
            events += [launch(k, start - 2), e]
        write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return open_trace(folder)


def test_stragglers_under_new_names_of_nccl(tmp_path: Path) -> None:
    found = rows(two_ranks(tmp_path, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"), "stragglers")
    late = {r["rank"]: r for r in found}
    assert late[1]["cost_to_others_ns"] == 50_000 and late[0]["cost_to_others_ns"] == 0
    assert late[1]["late_in"] == "host" and late[1]["host_ns"] == 50_000


def test_stragglers_of_a_single_rank(tmp_path: Path) -> None:
    two_ranks(tmp_path, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
    with pytest.raises(MissingTable, match="all ranks of the job"):
        ask_trace(open_trace(tmp_path / "rank0.json"), "stragglers")


@pytest.mark.parametrize("name", ["rank_non_gpu", "cpu_only"])
@pytest.mark.parametrize("asked", ["time_breakdown", "idle_breakdown", "comm_compute_overlap"])
def test_without_gpu_work_the_reason_is_told(shared: Path, name: str, asked: str) -> None:
    with pytest.raises(MissingTable, match="ProfilerActivity"):
        ask_trace(opened(shared / "traces/hta" / name), asked)


def test_malformed_files_beside_good_ones(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", kernel("gemm", 0, 1), **of_rank(0, 2))
    (tmp_path / "list.json").write_text(json.dumps([kernel("gemm", 0, 1)]))
    bare = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]
    (tmp_path / "bare.json").write_text(json.dumps({"traceEvents": bare}))
    whole = json.dumps({"traceEvents": [kernel("gemm", 0, 1), kernel("gemm", 5, 1)]})
    (tmp_path / "cut.json").write_text(whole[:-40])
    for name in ("list.json", "cut.json"):
        (times,) = rows(open_trace(tmp_path / name), "time_breakdown")
        assert times["compute_ns"] == 1000
    with pytest.raises(HtkError):
        ask_trace(open_trace(tmp_path / "bare.json"), "time_breakdown")
    (tmp_path / "empty.json").write_text('{"traceEvents": []}')
    with pytest.raises(HtkError):
        ask_trace(open_trace(tmp_path / "empty.json"), "time_breakdown")


def test_steps_of_an_amd_stream_zero(shared: Path) -> None:
    links = opened(shared / "traces/hta/amd_trace").tables["kernel_links"]
    assert set(links["step"].to_pylist()) <= {1, 2} and links.num_rows == 16


def test_the_kernels_of_a_graph(tmp_path: Path) -> None:
    call = launch(4, 0, 3)
    call["name"] = "cudaGraphLaunch"
    events = [call, *(kernel("gemm", t, 5, 4) for t in (5, 11, 17))]
    links = open_trace(write(tmp_path / "graph.json", *events)).tables["kernel_links"]
    assert links["launch_by"].to_pylist() == ["graph"] * 3


def test_calls_that_share_a_correlation(tmp_path: Path) -> None:
    driver = launch(4, 0.5, 0.2)
    driver["name"], driver["cat"] = "cuLaunchKernel", "cuda_driver"
    events = [step(1, 0, 50), step(2, 50, 50), launch(4, 0, 1), driver, op("aten::mm", 0, 2)]
    events += [kernel("gemm", t, 5, 4) for t in (5, 11, 17)]
    trace = open_trace(write(tmp_path / "shared.json", *events))
    (top,) = (r for r in rows(trace, "kernel_top") if r["name"] == "gemm")
    assert top["count"] == 3
    (times,) = rows(trace, "time_breakdown", compat="hta")
    assert times["compute_ns"] == 15_000


@pytest.mark.parametrize("name", [
    "nvshmem_barrier", "mscclKernel_Sum_float", "vllm::cross_device_reduce_1stage",
    "deep_ep::intranode::dispatch", "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
])  # fmt: skip
def test_communication_is_told_from_compute(name: str) -> None:
    assert kind_of(name, "kernel").kind == "comm"


def test_a_copy_of_hip_is_a_copy() -> None:
    assert kind_of("hipMemcpyAsync", "copy").kind == "memory"


def test_an_overlong_event_is_told(tmp_path: Path) -> None:
    trace = open_trace(
        write(tmp_path / "long.json", kernel("gemm", 0, 5), kernel("gemm", 10, 9e12))
    )
    (issue,) = trace.tables["parse_issues"].to_pylist()
    assert issue["kind"] == "overflowed_duration"
    assert rows(trace, "time_breakdown")[0]["total_ns"] == 10_000


def test_queues_of_several_streams(tmp_path: Path) -> None:
    events = [step(1, 0, 90)]
    for k in range(1, 9):  # four launched on each stream before any begins
        stream = 7 if k % 2 else 20
        events += [launch(k, k), kernel("gemm", 20 + 5 * k, 4, k, stream)]
    found = rows(open_trace(write(tmp_path / "queues.json", *events)), "queue_length")
    assert {r["stream"] for r in found if r["stream"] is not None} == {7, 20}


def test_sequences_on_nanoseconds(shared: Path) -> None:
    assert rows(opened(shared / "traces/hta/nccl_parser_config"), "kernel_sequences")


def test_events_keep_their_place(shared: Path) -> None:
    """Beside Python calls, an event's number is its row among the events of the file."""
    trace = opened(shared / "traces/tracelens/b200/eager_trace.json.gz")
    names = trace.tables["events"]["name"].to_pylist()
    kernels = trace.tables["kernels"]
    assert trace.tables["python_calls"].num_rows
    for event, name in zip(kernels["event"].to_pylist(), kernels["name"].to_pylist(), strict=True):
        assert names[event] == name
