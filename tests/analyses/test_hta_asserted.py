"""What the tests of Holistic Trace Analysis assert of its traces, asked here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from htk.answers.ask import ask_trace
from htk.base.columns.arrow import read_numbers
from htk.base.columns.nesting import Nested
from htk.traces.compare.runs import compare_runs
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.hta_truth import asserted, hta_truth
from tests.kineto_file import kernel, launch, op, write


def opened(shared: Path, name: str) -> Any:
    return open_trace(shared / "traces/hta" / name)


def test_user_ranges(shared: Path) -> None:
    """It lists each step as a range of its own name, and leaves out the last of five."""
    trace = opened(shared, "ns_resolution_trace")
    rows = ask_trace(trace, "annotation_breakdown").to_pylist()
    on_gpu = [r for r in rows if r["gpu_ranges"]]
    assert len(on_gpu) == asserted(shared, "ns.gpu_user_annotation")["rows"]
    steps = {r["name"]: r["count"] for r in rows}["ProfilerStep"]
    assert len(rows) - 1 + steps - 1 == asserted(shared, "ns.cpu_user_annotation")["rows"]


def test_metadata_of_collectives(shared: Path) -> None:
    said = asserted(shared, "nccl.fields")
    rows = opened(shared, "nccl_parser_config").tables["collectives"].to_pylist()
    longest = max(rows, key=lambda r: r["end_ns"] - r["start_ns"])
    assert len(rows) == said["count"]
    assert longest["in_elements"] == said["first"]["in_msg_nelems"]
    assert longest["out_elements"] == said["first"]["out_msg_nelems"]
    assert (longest["group"], longest["group_desc"]) == ("0", "default_pg")
    assert json.loads(longest["group_ranks"]) == [0, 1]


def test_absolute_time(shared: Path) -> None:
    """To the nanosecond; it rounds to the nearest hundred."""
    starts = read_numbers(opened(shared, "triton_example").tables["events"]["start_ns"])
    assert np.abs(starts - asserted(shared, "triton.unixtime")["value"]).min() <= 100


def test_rank_and_world_of_a_host_s_trace(shared: Path) -> None:
    said = asserted(shared, "cpuonly.metadata")["distributedInfo"]
    (row,) = opened(shared, "cpu_only").tables["ranks"].to_pylist()
    assert [row[k] for k in ("backend", "rank", "world_size")] == [
        said[k] for k in ("backend", "rank", "world_size")
    ]


def test_memory_timeline_by_category(shared: Path) -> None:
    """Its 745th point: bytes of each category after the events up to that time."""
    said = asserted(shared, "memory_timeline")
    memory = opened(shared, "memory_analysis").tables["memory"]
    names = [n.lower().replace(" ", "_") for n in said["category order"]]
    names = ["autograd_detail" if n == "autograd" else n for n in names]
    time, size = read_numbers(memory["time_ns"]), read_numbers(memory["size_bytes"])
    category = np.array(memory["category"].to_pylist())
    held = {n: np.cumsum(np.where(category == n, size, 0)) for n in names}
    points = [[int(held[n][k]) for n in names] for k in range(len(time))]
    assert [int(s) for s in said["sizes[744]"]] in points


def test_a_range_of_time(shared: Path) -> None:
    """It takes events that begin and end in it."""
    events = opened(shared, "trace_filter").sel(ranks=[0]).tables["events"]
    low, high = 1_682_725_898_237_042_000, 1_682_725_898_240_570_000
    inside = (read_numbers(events["start_ns"]) >= low) & (read_numbers(events["end_ns"]) <= high)
    assert int(inside.sum()) == asserted(shared, "filter.time_range")["rows"]


def test_what_changed_between_two_recordings(shared: Path) -> None:
    """Of step 1010: operators and ranges there, operators here; and the kernel that is gone."""
    both = [opened(shared, f"trace_compare/{n}").sel(steps=[1010]).tables for n in ("base", "test")]
    said = asserted(shared, "diff.ops_diff")
    rows = compare_runs(both[0], both[1], ("op",), 0).to_pylist()
    assert {r["name"] for r in rows if r["change"] == "added"} == set(said["added"])
    same = {r["name"] for r in rows if r["change"] == "same"}
    assert same == {n for n in said["unchanged"] if n.startswith("aten::")}
    assert {r["new_count"] for r in rows} == {1.0}
    (gone,) = compare_runs(both[0], both[1], ("kernel",), 0).to_pylist()
    assert gone["change"] == "removed"


def test_kernels_under_an_operator(tmp_path: Path) -> None:
    """Two kernels, of 4 and 3, under an operator of 20."""
    events = [op("aten::x", 0, 20), launch(1, 1), launch(2, 3)]
    events += [kernel("a", 5, 4, 1), kernel("b", 12, 3, 2)]
    (row,) = ask_trace(open_trace(write(tmp_path / "t.json", *events)), "op_breakdown").to_pylist()
    assert (row["kernels"], row["device_total_ns"]) == (2, 7000)


@pytest.mark.parametrize("name", ["distributed_info_unavailable", "rank_unavailable"])
def test_a_file_that_says_no_rank(shared: Path, name: str) -> None:
    trace = opened(shared, name)
    assert trace.ranks == [0]
    assert trace.tables["ranks"]["rank_from"][0].as_py() == "guess: only file"


def test_the_call_tree_of_a_backward_thread(shared: Path) -> None:
    said = asserted(shared, "callgraph")
    rows = ask_trace(opened(shared, "call_stack"), "op_tree", min_pct=0.0).to_pylist()
    names = {r["op"]: r for r in rows}
    operators = [n for n in said["stack names"] if n.startswith(("autograd", "Addmm", "aten"))]
    assert set(operators) <= set(names)
    assert [names[n]["depth"] for n in operators] == [0, 1, 2]
    assert all(names[n]["kernels"] == 1 for n in operators)


def test_what_triton_compiled(shared: Path) -> None:
    said = asserted(shared, "triton.fields")
    rows = opened(shared, "triton_example").tables["cpu_ops"].to_pylist()
    (one,) = (r for r in rows if r["kernel_backend"])
    assert (one["name"], one["kernel_backend"]) == (said["name"], said["kernel_backend"])
    assert Path(one["kernel_file"]).stem == said["kernel_hash"]


def test_call_stacks(shared: Path) -> None:
    """Children that overrun, calls that begin together, calls without length at an end."""
    said = asserted(shared, "callstack.synthetic")
    parents, depths = nested(said["ts"], said["dur"])
    assert (parents, depths) == (said["parent"], said["depth"])
    case = said["zero_dur case"]
    parents, _ = nested(case["ts"], case["dur"])
    numbers_of = dict(enumerate(case["index"]))
    found = {str(numbers_of[k]): numbers_of.get(p, "root") for k, p in enumerate(parents)}
    assert found == case["parent"]


def nested(starts: list[int], lengths: list[int]) -> tuple[list[int], list[int]]:
    begin = np.array(starts, np.int64)
    spans = Nested(np.zeros(len(begin), np.int32), begin, begin + np.array(lengths))
    return spans.parent.tolist(), spans.depth.tolist()


def test_an_operator_without_length_is_of_the_one_that_calls_it(shared: Path) -> None:
    """In whole microseconds: as_strided at the end of the transpose that t calls."""
    trace = open_trace(shared / "traces/hta/trace_diff/control", OpenOptions(cache=False))
    tables = trace.tables
    names = np.array(tables["cpu_ops"]["name"].to_pylist())
    parents = np.append(names, "")[read_numbers(tables["op_links"]["parent_row"], -1)]
    assert "aten::t" not in parents[names == "aten::as_strided"]
    assert (parents[names == "aten::as_strided"] == "aten::transpose").sum() > 1000


@pytest.mark.parametrize("name", ["cuda_event_sync", "cuda_event_sync_multi_stream", "alexnet"])
def test_critical_paths(shared: Path, name: str) -> None:
    found = ask_trace(opened(shared, f"critical_path/{name}"), "critical_path").to_pylist()
    assert sum(r["path_pct"] for r in found) == pytest.approx(100)


@pytest.mark.parametrize("name", ["ns_resolution_trace", "amd_trace"])
def test_critical_paths_of_steps(shared: Path, name: str) -> None:
    """Bound by the same side as there: the GPU, and the host."""
    summaries = hta_truth(shared)["hta_critical_path"]
    (theirs,) = (s["summary_pct"] for s in summaries.values() if s.get("trace") == name)
    found = ask_trace(opened(shared, name), "critical_path").to_pylist()
    host = sum(r["path_pct"] for r in found if r["what"].startswith("host"))
    assert host == pytest.approx(theirs["cpu_bound"], abs=3)
