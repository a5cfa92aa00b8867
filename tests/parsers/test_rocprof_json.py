"""rocprofv3: its JSON against plain json, its database against the JSON of the same job."""

import gzip
import json
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MalformedTrace, UnknownRank
from sample_traces.rocprof_export import BOOT_NS, Perfetto, as_database, as_json
from tests.parsers.opened_files import kept, opened, rows
from tests.parsers.rocprof_samples import DATABASE, JSON, differences

GEMM, NCCL = "void gemm<float>(float*)", "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"


@lru_cache
def read(path: Path) -> dict[str, Any]:
    """The file as json reads it."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    (process,) = json.loads(text)["rocprofiler-sdk-tool"]
    return dict(process)


@pytest.fixture(scope="module", params=["sample", "recorded"])
def file(request: pytest.FixtureRequest) -> Path:
    if request.param == "sample":
        return JSON
    shared: Path = request.getfixturevalue("shared")
    return shared / "traces/rocprof/908_results.json.gz"


def test_kernels_are_those_of_plain_json(file: Path) -> None:
    process = read(file)
    names = {s["kernel_id"]: s["formatted_kernel_name"] for s in process["kernel_symbols"]}
    wanted: Counter[tuple[Any, ...]] = Counter()
    spent: Counter[tuple[Any, ...]] = Counter()
    for record in process["buffer_records"]["kernel_dispatch"]:
        info = record["dispatch_info"]
        name = names[info["kernel_id"]].removesuffix(".kd").removesuffix(" [clone .kd]")
        key = (info["agent_id"]["handle"], record["stream_id"]["handle"], name)
        wanted[key] += 1
        spent[key] += record["end_timestamp"] - record["start_timestamp"]
    gpus = {
        a["logical_node_type_id"]: a["id"]["handle"] for a in process["agents"] if a["type"] == 2
    }
    found: Counter[tuple[Any, ...]] = Counter()
    taken: Counter[tuple[Any, ...]] = Counter()
    for row in rows(kept(file), "kernels", activity="kernel"):
        key = (gpus[row["device"]], row["stream"], row["name"].removesuffix(" [clone .kd]"))
        found[key] += 1
        taken[key] += row["end_ns"] - row["start_ns"]
    assert found == wanted and taken == spent


def test_busy_time_is_the_union_over_all_streams(file: Path) -> None:
    records = read(file)["buffer_records"]
    spans = sorted(
        (r["start_timestamp"], r["end_timestamp"])
        for r in records["kernel_dispatch"] + records["memory_copy"]
    )
    busy, reach = 0, 0
    for start, end in spans:  # by brute force
        busy += max(end, reach) - max(start, reach)
        reach = max(end, reach)
    (row,) = ask_trace(kept(file), "time_breakdown").to_pylist()
    assert (row["busy_ns"], row["total_ns"]) == (busy, reach - spans[0][0])


@pytest.mark.parametrize("path", [JSON, DATABASE], ids=["json", "database"])
def test_a_job_by_hand(path: Path) -> None:
    trace = kept(path)
    kernels = rows(trace, "kernels")
    assert {k["device"] for k in kernels} == {1}
    assert Counter((k["name"], k["stream"]) for k in kernels) == {
        (GEMM, 3): 2,
        (GEMM, 4): 2,
        (NCCL, 5): 2,
        ("Memcpy HtoD (Host -> Device)", 3): 2,
        ("Memcpy DtoH (Device -> Host)", 3): 2,
    }
    (gemm, *_) = [k for k in kernels if k["name"] == GEMM]
    assert (gemm["grid"], gemm["block"]) == ("[4,1,1]", "[256,1,1]")  # 1,000 work items
    assert (gemm["registers"], gemm["shared_memory_bytes"]) == (72, 512)
    assert gemm["start_ns"] == BOOT_NS + 6_000
    (down, _) = [k for k in kernels if "DtoH" in k["name"]]
    assert (down["size_bytes"], down["bandwidth_gbps"]) == (4, 0.004)
    links = trace.tables["kernel_links"].to_pylist()
    calls = rows(trace, "launches")
    called = [
        (k["name"], calls[link["launch_row"]]["thread"], link["step"])
        for k, link in zip(kernels, links, strict=True)
        if k["activity"] == "kernel"
    ]
    assert sorted(called) == sorted(
        (name, thread, step)
        for step in (3, 4)
        for name, thread in ((GEMM, "908"), (GEMM, "973"), (NCCL, "908"))
    )
    assert [r["name"] for r in rows(trace, "annotations")] == [
        "step 3",
        "ncclAllReduce",
        "step 4",
        "ncclAllReduce",
    ]
    collectives = rows(trace, "collectives")
    assert [(c["type"], c["in_bytes"]) for c in collectives] == [("all_reduce", None)] * 2


def changed(tmp_path: Path, change: Any) -> Path:
    process = json.loads(JSON.read_text())
    change(process["rocprofiler-sdk-tool"][0])
    path = tmp_path / "t.json"
    path.write_text(json.dumps(process))
    return path


def test_a_record_of_another_shape_is_counted_and_the_others_are_kept(tmp_path: Path) -> None:
    def damage(process: dict[str, Any]) -> None:
        listed = process["buffer_records"]["kernel_dispatch"]
        listed[0]["start_timestamp"] = "soon"
        listed[1]["end_timestamp"] = 0
        listed[2]["dispatch_info"] = None
        process["kernel_symbols"].append("none")

    trace = opened(changed(tmp_path, damage))
    assert len(rows(trace, "kernels", activity="kernel")) == 3
    issues = Counter(i["kind"] for i in rows(trace, "parse_issues") for _ in range(i["count"]))
    assert issues == {"broken_event": 2, "no_time": 1}


def test_a_file_that_was_cut_keeps_its_whole_dispatches(tmp_path: Path) -> None:
    whole = JSON.read_text()
    cut = whole.rindex('"dispatch_info"')
    (tmp_path / "t.json").write_text(whole[:cut])
    trace = opened(tmp_path / "t.json")
    assert len(rows(trace, "kernels", activity="kernel")) == 5
    assert {k["name"] for k in rows(trace, "kernels", activity="kernel")} == {GEMM, NCCL}
    assert rows(trace, "ranks")[0]["truncated"]


def test_before_streams_were_recorded_the_queue_stands_for_them(tmp_path: Path) -> None:
    def older(process: dict[str, Any]) -> None:
        for record in process["buffer_records"]["kernel_dispatch"]:
            del record["stream_id"]

    trace = opened(changed(tmp_path, older))
    assert {k["stream"] for k in rows(trace, "kernels", activity="kernel")} == {17}


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    path = changed(tmp_path, lambda process: process["buffer_records"].clear())
    with pytest.raises(MalformedTrace, match="no kernel, copy, call or range was recorded"):
        opened(path)


def test_the_samples_are_what_their_script_writes(tmp_path: Path) -> None:
    as_json(tmp_path / "t.json")
    assert (tmp_path / "t.json").read_bytes() == JSON.read_bytes()
    as_database(tmp_path / "t.db")
    assert opened(tmp_path / "t.db").tables["events"] == kept(DATABASE).tables["events"]


def test_files_of_one_host_are_told_apart_by_their_gpu(tmp_path: Path) -> None:
    """JSON names no rank. Processes that drive a GPU each have its number; two of one have none."""
    for pid, agent in ((908, 41), (909, 42)):
        text = JSON.read_text().replace(
            '"agent_id": {"handle": 41}', f'"agent_id": {{"handle": {agent}}}'
        )
        (tmp_path / f"{pid}_results.json").write_text(text)
    found = {Path(r["file"]).name: r for r in rows(opened(tmp_path), "ranks")}
    assert {name: (r["rank"], r["rank_from"]) for name, r in found.items()} == {
        "908_results.json": (1, "GPU of the host"),
        "909_results.json": (0, "GPU of the host"),
    }
    (tmp_path / "909_results.json").write_text(JSON.read_text())
    with pytest.raises(UnknownRank, match="do not say which rank they are"):
        opened(tmp_path)


def test_agents_as_older_and_other_settings_write_them(tmp_path: Path) -> None:
    trace = Perfetto()
    span = {"begin_ns": 5_000, "end_ns": 6_000, "corr_id": 1}
    trace.event("kernel_dispatch", "k", span | {"agent": 4, "queue": 3, "group_segment_size": 64})
    trace.event("kernel_dispatch", "k", span | {"agent": "Agent-5", "stream_ID": 2})
    ends = {"src_agent": "Agent-0", "dst_agent": "Agent-5", "copy_bytes": 8}
    trace.event("memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", span | ends)
    back = {"src_agent": 4, "dst_agent": 0, "copy_bytes": 8}
    trace.event("memory_copy", "MEMORY_COPY_DEVICE_TO_HOST", span | back)
    (tmp_path / "a.pftrace").write_bytes(trace.data)
    found = rows(opened(tmp_path / "a.pftrace"), "kernels")
    names = ("activity", "device", "stream", "shared_memory_bytes")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("kernel", 4, 3, 64),
        ("kernel", 5, 2, None),
        ("copy", 5, None, None),
        ("copy", 4, None, None),
    ]


def test_times_that_cannot_be_are_counted(tmp_path: Path) -> None:
    trace = Perfetto()
    good = {"begin_ns": 5_000, "end_ns": 6_000, "corr_id": 1, "agent": "GPU-0", "stream_ID": 1}
    for begin, end in ((5_000, 6_000), (0, 9), (9_000, 8_000), (5, 1 << 62)):
        trace.event("kernel_dispatch", "k", good | {"begin_ns": begin, "end_ns": end})
    (tmp_path / "a.pftrace").write_bytes(trace.data)
    opened_trace = opened(tmp_path / "a.pftrace")
    assert len(rows(opened_trace, "kernels")) == 1
    (issue,) = rows(opened_trace, "parse_issues")
    assert (issue["kind"], issue["count"]) == ("no_time", 3)


def dispatch(process: dict[str, Any], number: int) -> dict[str, Any]:
    record: dict[str, Any] = process["buffer_records"]["kernel_dispatch"][number]
    return record


# The second kernel of the job, the first of its copies and of its launches.
@pytest.mark.parametrize(
    ("table", "sort", "member", "wanted"),
    [
        ("kernels", "kernel_dispatch", "correlation_id", {"correlation": (3, None)}),
        ("kernels", "kernel_dispatch", "stream_id", {"stream": (4, 17)}),
        ("kernels", "dispatch_info", "group_segment_size", {"shared_memory_bytes": (512, None)}),
        ("kernels", "dispatch_info", "grid_size", {"grid": ("[4,1,1]", None)}),
        (
            "kernels",
            "dispatch_info",
            "workgroup_size",
            {"grid": ("[4,1,1]", None), "block": ("[256,1,1]", None)},
        ),
        ("kernels", "memory_copy", "dst_agent_id", {"device": (1, None)}),
        ("kernels", "memory_copy", "src_agent_id", {}),
        (
            "kernels",
            "memory_copy",
            "bytes",
            {"size_bytes": (8_000, None), "bandwidth_gbps": (4.0, None)},
        ),
        ("kernels", "memory_copy", "stream_id", {"stream": (3, None)}),
        ("launches", "hip_api", "correlation_id", {"correlation": (1, None)}),
        ("launches", "hip_api", "operation", {"name": ("hipMemcpyAsync", "unknown call")}),
    ],
)
def test_what_a_record_does_not_say_is_unknown(
    tmp_path: Path, table: str, sort: str, member: str, wanted: dict[str, Any]
) -> None:
    def lose(process: dict[str, Any]) -> None:
        if sort == "dispatch_info":
            del dispatch(process, 1)[sort][member]
        else:
            del process["buffer_records"][sort][int(sort == "kernel_dispatch")][member]

    trace = opened(changed(tmp_path, lose))
    same = rows(trace, table) == rows(kept(JSON), table)
    assert same if not wanted else differences(trace, table, JSON) == wanted


def test_kernels_and_gpus_that_the_file_does_not_list(tmp_path: Path) -> None:
    def lose(process: dict[str, Any]) -> None:
        dispatch(process, 0)["dispatch_info"]["kernel_id"] = 9
        dispatch(process, 1)["dispatch_info"]["agent_id"]["handle"] = 40  # the processor
        process["kernel_symbols"][2] |= {"accum_vgpr_count": None}
        process["kernel_symbols"].append({"kernel_id": "9", "formatted_kernel_name": "x"})

    found = rows(opened(changed(tmp_path, lose)), "kernels", activity="kernel")[:3]
    assert [(k["name"], k["device"], k["registers"]) for k in found] == [
        ("unknown 9", 1, None), (GEMM, None, 72), (NCCL, 1, None),
    ]  # fmt: skip


def test_blocks_of_a_grid_are_counted_up_in_each_direction(tmp_path: Path) -> None:
    """rocprofv3 counts work items: 1,001 in blocks of 256 are 4, 512 are 2, 3 of 4 are one."""

    def sized(process: dict[str, Any]) -> None:
        info = dispatch(process, 0)["dispatch_info"]
        info["grid_size"] = {"x": 1_001, "y": 512, "z": 3}
        info["workgroup_size"] = {"x": 256, "y": 256, "z": 4}

    first = rows(opened(changed(tmp_path, sized)), "kernels", activity="kernel")[0]
    assert (first["grid"], first["block"]) == ("[4,2,1]", "[256,256,4]")


def test_gpus_without_a_number_are_counted_as_they_are_listed(tmp_path: Path) -> None:
    def unnumbered(process: dict[str, Any]) -> None:
        for agent in process["agents"]:
            del agent["logical_node_type_id"]

    trace = opened(changed(tmp_path, unnumbered))
    assert {k["device"] for k in rows(trace, "kernels")} == {0}  # it is listed before the other


def test_messages_name_ranges_and_old_markers_are_ranges_themselves(tmp_path: Path) -> None:
    """Without ranges of their own the calls of roctx are ranges; one without a message keeps its
    function's name, a mark and what takes no time are none."""

    def older(process: dict[str, Any]) -> None:
        marker = process["buffer_records"]["marker_api"]
        process["buffer_records"]["marker_api"] = [r for r in marker if r["kind"] == 2]
        process["strings"]["marker_api"] = process["strings"]["marker_api"][:2]
        first, second = process["buffer_records"]["marker_api"]
        process["buffer_records"]["marker_api"] += [
            first | {"operation": 0, "correlation_id": {"internal": 0}},  # roctxMarkA
            second | {"end_timestamp": second["start_timestamp"]},
        ]

    found = rows(opened(changed(tmp_path, older)), "annotations")
    ranges = [(r["name"], r["end_ns"] - r["start_ns"]) for r in found if "nccl" not in r["name"]]
    assert ranges == [("step 3", 100), ("roctxRangePushA", 100)]


def test_what_the_machine_is_called(tmp_path: Path) -> None:
    (row,) = rows(kept(JSON), "ranks")
    assert (row["host"], row["device_name"], row["device_count"]) == (
        "node7",
        "AMD Instinct MI350X",
        2,
    )
    (row,) = rows(opened(changed(tmp_path, lambda process: process.pop("agents"))), "ranks")
    assert (row["device_name"], row["device_count"]) == (None, None)


def test_other_calls_of_rccl_are_no_collectives(tmp_path: Path) -> None:
    """What the all-reduce calls itself lies closer round the launch, and moves nothing."""

    def nested(process: dict[str, Any]) -> None:
        kinds = {kind["kind"]: kind for kind in process["strings"]["buffer_records"]}
        kinds["RCCL_API"]["operations"].append("mscclRunAlgo")
        calls = process["buffer_records"]["rccl_api"]
        for call in list(calls):
            times = {"start_timestamp": call["start_timestamp"] + 100}
            times |= {"end_timestamp": call["end_timestamp"] - 100}
            calls.append(call | times | {"operation": 2})

    trace = opened(changed(tmp_path, nested))
    assert [c["type"] for c in rows(trace, "collectives")] == ["all_reduce"] * 2
    named = [r["name"] for r in rows(trace, "annotations") if r["name"] != "ncclAllReduce"]
    assert named == ["step 3", "mscclRunAlgo", "step 4", "mscclRunAlgo"]
