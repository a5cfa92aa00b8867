"""Exports of Nsight Systems: against plain SQL over the file, and as the schema was by years."""

import gzip
import json
import sqlite3
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import HtkError, MalformedTrace, UnknownFormat
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from sample_traces.nsight_export import (
    ALL_REDUCE,
    COMMUNICATOR,
    PRODUCT,
    SEND_RECV,
    SESSION_NS,
    STARTED,
    SUM,
    Export,
    Process,
    steps,
    two_ranks,
)

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "sample_traces/nsight/two_ranks.sqlite"
YEARS = (2022, 2024, 2026)
PIDS = "k.globalPid / 0x1000000 % 0x1000000"
GPU_WORK = ("KERNEL", "MEMCPY", "MEMSET")


def opened(path: Path) -> Trace:
    return open_trace(path, OpenOptions(cache=False))


@lru_cache
def kept(path: Path) -> Trace:
    """Opened once for the tests that only look at it."""
    return opened(path)


def rows(trace: Trace, table: str, **wanted: Any) -> list[dict[str, Any]]:
    found = trace.tables[table].to_pylist()
    return [r for r in found if all(r[k] == v for k, v in wanted.items())]


def query(path: Path, text: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as connection:
        return connection.execute(text).fetchall()


@pytest.fixture(scope="module", params=["sample", "before", "after"])
def report(request: pytest.FixtureRequest) -> Path:
    if request.param == "sample":
        return SAMPLE
    shared: Path = request.getfixturevalue("shared")
    return shared / f"traces/nsys/mfu_2gpu_{request.param}.sqlite"


def test_kernels_are_those_of_plain_sql(report: Path) -> None:
    wanted = query(
        report,
        f"SELECT {PIDS}, deviceId, streamId, s.value, count(*), sum(end - start) "
        "FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName "
        "GROUP BY 1, 2, 3, 4",
    )
    trace = kept(report)
    pid_of = dict(enumerate(sorted({row[0] for row in wanted})))  # rank r is the r-th process
    found: Counter[tuple[Any, ...]] = Counter()
    spent: Counter[tuple[Any, ...]] = Counter()
    for row in rows(trace, "kernels", activity="kernel"):
        key = (pid_of[row["rank"]], row["device"], row["stream"], row["name"])
        found[key] += 1
        spent[key] += row["end_ns"] - row["start_ns"]
    assert found == {row[:4]: row[4] for row in wanted}
    assert spent == {row[:4]: row[5] for row in wanted}


def test_copies_and_sets_are_those_of_plain_sql(report: Path) -> None:
    trace = kept(report)
    for activity, table in (("copy", "MEMCPY"), ("set", "MEMSET")):
        wanted = query(
            report,
            f"SELECT deviceId, count(*), sum(bytes), sum(end - start) "
            f"FROM CUPTI_ACTIVITY_KIND_{table} GROUP BY 1",
        )
        for device, count, size, spent in wanted:
            mine = rows(trace, "kernels", activity=activity, device=device)
            assert len(mine) == count
            assert sum(r["size_bytes"] for r in mine) == size
            assert sum(r["end_ns"] - r["start_ns"] for r in mine) == spent


def test_busy_time_is_the_union_over_the_streams_of_each_device(report: Path) -> None:
    spans = query(
        report,
        " UNION ALL ".join(
            f"SELECT deviceId, start, end FROM CUPTI_ACTIVITY_KIND_{t}" for t in GPU_WORK
        ),
    )
    for row in ask_trace(kept(report), "time_breakdown").to_pylist():
        mine = sorted((s, e) for device, s, e in spans if device == row["device"])
        busy, reach = 0, 0
        for start, end in mine:  # by brute force
            busy += max(end, reach) - max(start, reach)
            reach = max(end, reach)
        assert row["busy_ns"] == busy
        assert row["total_ns"] == reach - mine[0][0]


def test_each_activity_hangs_on_the_call_of_its_own_process(report: Path) -> None:
    wanted = query(
        report,
        " UNION ALL ".join(
            f"SELECT k.start, r.start, r.globalTid % 0x1000000 FROM CUPTI_ACTIVITY_KIND_{t} k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId "
            "AND r.globalTid / 0x1000000 = k.globalPid / 0x1000000"
            for t in GPU_WORK
        ),
    )
    trace = kept(report)
    base = rows(trace, "ranks")[0]["base_time_ns"]
    links, launches = trace.tables["kernel_links"].to_pylist(), rows(trace, "launches")
    found = [
        (k["start_ns"] - base, link["launch_start_ns"] - base, int(call["thread"]))
        for k, link in zip(rows(trace, "kernels"), links, strict=True)
        if link["launch_row"] is not None
        for call in [launches[link["launch_row"]]]
    ]
    assert sorted(found) == sorted(wanted)


def test_ranges_are_operators_or_annotations(report: Path) -> None:
    """Each range is one or the other; their total time is that of plain SQL."""
    (count, spent) = query(
        report,
        "SELECT count(*), sum(end - start) FROM NVTX_EVENTS WHERE eventType IN (59, 60) "
        "AND globalTid / 0x1000000 IN "
        "(SELECT globalPid / 0x1000000 FROM CUPTI_ACTIVITY_KIND_KERNEL)",
    )[0]
    trace = kept(report)
    spans = rows(trace, "cpu_ops") + rows(trace, "annotations")
    assert len(spans) == count
    assert sum(r["end_ns"] - r["start_ns"] for r in spans) == spent
    assert not [r for r in spans if ", op_id" in r["name"] or ", seq" in r["name"]]


def test_the_diff_of_two_reports_says_what_changed(shared: Path) -> None:
    """Calls of attention take as long as before, as plain SQL has it; there are fewer in a second,
    and the GPUs are idle for longer."""
    before, after = (shared / f"traces/nsys/mfu_2gpu_{n}.sqlite" for n in ("before", "after"))
    rows = ask_diff(before, after)
    (row,) = (r for r in rows if r["by"] == "kernel" and "flash" in r["name"])
    text = (
        "SELECT avg(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
        "JOIN StringIds s ON s.id = k.shortName WHERE s.value = 'flash_fwd_kernel'"
    )
    for path, column in ((before, "base_ns"), (after, "new_ns")):
        assert row[column] == pytest.approx(query(path, text)[0][0], rel=1e-6)
    assert abs(row["diff_pct"]) < 0.5
    assert row["new_count"] < 0.9 * row["base_count"]
    (idle,) = (r for r in rows if r["by"] == "time" and r["name"] == "idle")
    assert idle["change"] == "unclear" and idle["diff_pct"] > 50


def ask_diff(before: Path, after: Path) -> list[dict[str, Any]]:
    from htk.traces.compare.runs import compare_runs

    return list(compare_runs(kept(before).tables, kept(after).tables).to_pylist())


@pytest.mark.parametrize("year", YEARS)
def test_a_job_by_hand_whatever_the_year_of_the_schema(tmp_path: Path, year: int) -> None:
    """Times, steps, operators, links and collectives of the sample, from its script."""
    two_ranks(tmp_path / "t.sqlite", year)
    trace = opened(tmp_path / "t.sqlite")
    assert trace.ranks == [0, 1]
    kernels = rows(trace, "kernels", rank=1)
    assert [k["start_ns"] - SESSION_NS for k in kernels if k["name"] == PRODUCT] == [
        at + start for at in (100_000, 200_000) for start in (8_000, 34_000)
    ]
    assert {k["device"] for k in kernels} == {1}
    assert Counter(k["name"] for k in kernels) == {
        PRODUCT: 4,
        SUM: 3,
        ALL_REDUCE: 2,
        SEND_RECV: 2,
        "Memcpy HtoD (Pinned -> Device)": 2,
        "Memset (Device)": 2,
    }
    links = trace.tables["kernel_links"].filter([r["rank"] == 1 for r in rows(trace, "kernels")])
    steps_of = [
        (k["name"], link["step"])
        for k, link in zip(kernels, links.to_pylist(), strict=True)
        if k["name"] == ALL_REDUCE
    ]
    assert steps_of == [(ALL_REDUCE, 4), (ALL_REDUCE, 5)]
    (mm, _) = rows(trace, "cpu_ops", rank=0, name="aten::mm")
    assert (mm["sequence"], mm["record_function_id"]) == (7, 51)
    assert json.loads(mm["input_dims"]) == [[64, 32], [32, 16]]
    _check_collectives(trace)


def _check_collectives(trace: Trace) -> None:
    found = [
        tuple(c[n] for n in ("type", "in_bytes", "out_bytes", "group_size", "comm_rank"))
        for c in rows(trace, "collectives", rank=1)
    ]
    reduced, sent = ("all_reduce", 1 << 20, 1 << 20, 2, 1), ("send_recv", 3_000, 5_000, 2, 1)
    assert found == [reduced, sent, reduced, sent]
    assert {c["comm_hash"] for c in rows(trace, "collectives")} == {COMMUNICATOR}
    timed = ask_trace(trace, "collective_times").to_pylist()
    waits = {(r["rank"], r["wait_ns"]) for r in timed if r["type"] == "all_reduce"}
    assert waits == {(0, 3_000), (1, 0)}  # rank 1 begins 3 us later


def test_a_backward_operator_finds_its_forward_by_number() -> None:
    trace = kept(SAMPLE)
    ops = rows(trace, "cpu_ops")
    links = trace.tables["op_links"].to_pylist()
    of = {
        (op["rank"], op["sequence"]): ops[link["forward_row"]]
        for op, link in zip(ops, links, strict=True)
        if op["name"].startswith("autograd::engine") and link["forward_row"] is not None
    }
    assert {k: (v["rank"], v["name"], v["sequence"]) for k, v in of.items()} == {
        (rank, seq): (rank, "aten::mm", seq) for rank in (0, 1) for seq in (7, 8)
    }


def test_waits_for_events_name_who_recorded_them_and_the_device_of_their_context() -> None:
    trace = kept(SAMPLE)
    for sync in rows(trace, "syncs", name="Stream Wait Event"):
        assert sync["device"] == sync["rank"]  # the export says 0 for both
        assert (sync["stream"], sync["wait_stream"]) == (7, 20)
        assert sync["wait_correlation"] == sync["correlation"] + 1
    (other, *_) = rows(trace, "syncs", name="Stream Sync")
    assert (other["stream"], other["wait_stream"]) == (7, None)


def test_who_recorded() -> None:
    found = rows(kept(SAMPLE), "ranks")
    for rank, row in enumerate(found):
        assert (row["rank"], row["world_size"], row["host"]) == (rank, 2, "node7")
        assert row["device_name"] == "NVIDIA H100 80GB HBM3"
        assert row["rank_from"] == "launcher's options"
    issues = rows(kept(SAMPLE), "parse_issues")
    assert [(i["kind"], i["text"]) for i in issues] == [
        ("process_without_gpu_work", "process 4000 is left out")
    ]


def one_process(path: Path, **header: Any) -> Process:
    export = Export(path)
    export.header(**header)
    return Process(export, 4001, 0)


@pytest.mark.parametrize(
    ("command", "environment", "rank", "size"),
    [
        (["python", "train.py"], ['RANK="5"', 'WORLD_SIZE="8"'], 5, 8),
        (["python", "train.py"], ['SLURM_PROCID="3"', 'SLURM_NTASKS="16"'], 3, 16),
        (["python", "train.py"], ['RANK="8"', 'WORLD_SIZE="8"'], 0, None),  # cannot be
        (["python", "train.py"], [], 0, None),
        # torchrun's own environment is that of no rank: here Kubernetes gave it the node's.
        (["torchrun", "--nnodes", "4", "--nproc_per_node", "1", "t.py"], ['RANK="2"'], 0, 4),
        (["torchrun", "--nnodes=4", "--node-rank=2", "--nproc-per-node=1", "t.py"], [], 2, 4),
    ],
)
def test_the_rank_of_one_process(
    tmp_path: Path, command: list[str], environment: list[str], rank: int, size: int | None
) -> None:
    process = one_process(tmp_path / "t.sqlite", arguments=command, environment=environment)
    process.kernel(SUM, 5, 9, 1)
    process.export.close()
    (row,) = rows(opened(tmp_path / "t.sqlite"), "ranks")
    assert (row["rank"], row["world_size"]) == (rank, size)


def test_a_group_that_launches_a_kernel_a_call_gives_each_its_own(tmp_path: Path) -> None:
    process = one_process(tmp_path / "t.sqlite")
    process.nccl("ncclGroupStart", 10, 11)
    process.nccl("ncclAllReduce", 12, 13, 2, 100)
    process.nccl("ncclReduceScatter", 14, 15, 2, 300)
    process.nccl("ncclGroupEnd", 16, 40)
    for k in range(2):
        process.call("cudaLaunchKernelExC_v11060", 20 + 5 * k, 22 + 5 * k, 7 + k)
        process.kernel("ncclDevKernelDebug_Generic(x)", 50 + 10 * k, 59 + 10 * k, 7 + k)
    process.export.close()
    found = rows(opened(tmp_path / "t.sqlite"), "collectives")
    assert [(c["type"], c["in_bytes"], c["out_bytes"]) for c in found] == [
        ("all_reduce", 100, 100),
        ("reduce_scatter", None, 300),  # bytes in: of an unknown number of ranks
    ]


def test_without_payloads_sizes_are_not_known(shared: Path) -> None:
    trace = kept(shared / "traces/nsys/mfu_2gpu_before.sqlite")
    found = rows(trace, "collectives")
    assert Counter(c["type"] for c in found) == {"all_to_all": 64, "send_recv": 2}
    assert {c["in_bytes"] for c in found} == {c["comm_hash"] for c in found} == {None}


def test_open_and_odd_ranges(tmp_path: Path) -> None:
    """A range that never ended lasts until the last event; marks are none; a range across threads
    belongs to the one that began it; of two ways to count steps the longer one counts."""
    process = one_process(tmp_path / "t.sqlite")
    process.range("epoch", 10, None)
    process.range("a mark", 11, 11, kind=34)
    process.range("asynchronous", 20, 90, kind=STARTED, endGlobalTid=process.thread(3))
    process.range("iteration 3", 20, 80)
    process.range("step 0", 20, 21)
    process.range(None, 30, 40)
    process.kernel(SUM, 50, 99, 1)
    process.export.close()
    trace = opened(tmp_path / "t.sqlite")
    found = {r["name"]: r for r in rows(trace, "annotations")}
    assert set(found) == {"epoch", "asynchronous", "iteration 3", "step 0", "unnamed range"}
    assert found["epoch"]["end_ns"] - SESSION_NS == 90  # of the ranges
    assert (found["iteration 3"]["step"], found["step 0"]["step"]) == (3, None)
    assert [i["kind"] for i in rows(trace, "parse_issues")] == ["open_range"]


def test_a_graph_that_was_traced_as_a_whole_keeps_the_gpu_busy(tmp_path: Path) -> None:
    process = one_process(tmp_path / "t.sqlite")
    process.call("cudaGraphLaunch_v10000", 10, 12, 5)
    process.graph(3, 20, 80, 5)
    process.kernel(SUM, 90, 100, 6)
    process.export.close()
    trace = opened(tmp_path / "t.sqlite")
    (row,) = ask_trace(trace, "time_breakdown").to_pylist()
    assert (row["busy_ns"], row["idle_ns"]) == (70, 10)
    assert (row["compute_ns"], row["other_ns"]) == (10, 60)
    (graph,) = rows(trace, "kernels", name="CUDA Graph 3")
    assert (graph["kind"], graph["family"]) == ("other", "graph")
    assert [(i["kind"], i["count"]) for i in rows(trace, "parse_issues")] == [("whole_graph", 1)]
    assert graph["graph_id"] == 3


def test_packed_and_cached_it_answers_alike(tmp_path: Path) -> None:
    packed = tmp_path / "two_ranks.sqlite.gz"
    packed.write_bytes(gzip.compress(SAMPLE.read_bytes()))
    wanted = kept(SAMPLE).tables["kernels"]
    assert opened(packed).tables["kernels"] == wanted
    for _ in range(2):  # written, then found
        assert open_trace(packed).tables["kernels"] == wanted
        assert open_trace(packed).ranks == [0, 1]


# What nobody vouches for.


def test_another_database_is_no_trace(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    connection.close()
    with pytest.raises(UnknownFormat, match=r"t\.sqlite: not a trace"):
        opened(tmp_path / "t.sqlite")


HOSTILE = (
    # A view, a virtual table and a table with generated columns in the place of a table.
    "CREATE VIEW {0} AS SELECT * FROM renamed",
    "CREATE VIRTUAL TABLE {0} USING fts5(start, end)",
    "CREATE TABLE {0} (start INTEGER, end AS (start + abs(-9223372036854775808)), globalTid)",
)


@pytest.mark.parametrize("statement", HOSTILE, ids=["view", "virtual", "generated"])
def test_nothing_in_the_file_runs(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "t.sqlite"
    two_ranks(path)
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE NVTX_EVENTS RENAME TO renamed")
        try:
            connection.execute(statement.format("NVTX_EVENTS"))
        except sqlite3.OperationalError as error:
            pytest.skip(f"this SQLite cannot make one: {error}")
    connection.close()
    trace = opened(path)
    assert not rows(trace, "cpu_ops") and not rows(trace, "annotations")
    assert len(rows(trace, "kernels")) == 30


def test_values_of_other_types_are_counted_and_lose_no_row_but_their_own(tmp_path: Path) -> None:
    process = one_process(tmp_path / "t.sqlite")
    process.kernel(SUM, 5, 9, 1)
    process.kernel(SUM, "soon", 20, 2)  # type: ignore[arg-type]
    process.kernel(SUM, 30, 25, 3)
    process.kernel(SUM, 1 << 62, (1 << 62) + 5, 4)
    process.kernel(SUM, 40, 44, 5, gridX=b"\xff", registersPerThread=3.5)
    process.export.close()
    trace = opened(tmp_path / "t.sqlite")
    assert [k["end_ns"] - SESSION_NS for k in rows(trace, "kernels")] == [9, 44]
    found = {(i["kind"], i["count"]) for i in rows(trace, "parse_issues")}
    assert {("negative_duration", 1), ("no_time", 2)} <= found
    assert sum(n for kind, n in found if kind == "mistyped_value") >= 1


def test_a_name_that_is_no_text_is_read_all_the_same(tmp_path: Path) -> None:
    process = one_process(tmp_path / "t.sqlite")
    process.kernel(SUM, 5, 9, 1)
    process.export.connection.execute("UPDATE StringIds SET value = CAST(x'41ff42' AS TEXT)")
    process.export.close()
    assert rows(opened(tmp_path / "t.sqlite"), "kernels")[0]["name"] == "A\ufffdB"


def test_damaged_pages_end_their_table_and_are_said(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    process = one_process(path)
    for k in range(3000):
        process.kernel(SUM, 10 * k, 10 * k + 5, k + 1)
    process.export.close()
    whole = path.read_bytes()
    lost = 0
    for offset in range(40 * 1024, len(whole), 40 * 1024):
        path.write_bytes(whole[:offset] + b"\xa5" * 1024 + whole[offset + 1024 :])
        try:
            trace = opened(path)
        except HtkError as error:
            assert "\n" not in str(error)
            continue
        kernels, issues = rows(trace, "kernels"), rows(trace, "parse_issues")
        assert {k["end_ns"] - k["start_ns"] for k in kernels} <= {5}
        if len(kernels) < 3000:
            lost += 1
            assert issues and rows(trace, "ranks")[0]["truncated"]
    assert lost


def test_a_table_that_repeats_itself_is_refused(tmp_path: Path) -> None:
    """Two levels of inner pages whose children are all the same: more rows than the file has
    bytes for."""
    path = tmp_path / "t.sqlite"
    process = one_process(path)
    for k in range(2000):
        process.range("x", k, k + 1, thread=k % 7)
    process.kernel(SUM, 5, 9, 1)
    process.export.close()
    data = bytearray(path.read_bytes())
    (root,) = query(path, "SELECT rootpage FROM sqlite_master WHERE name = 'NVTX_EVENTS'")[0]
    pages = len(data) // 1024
    inner = data[(root - 1) * 1024 : root * 1024]
    cell = int.from_bytes(inner[12:14], "big")
    lower = point_at(inner, int.from_bytes(inner[cell : cell + 4], "big"))
    data[(root - 1) * 1024 : root * 1024] = point_at(lower, pages + 1)
    data[28:32] = (pages + 1).to_bytes(4, "big")
    path.write_bytes(data + lower)
    with pytest.raises(MalformedTrace, match="NVTX_EVENTS has more rows than the file can hold"):
        opened(path)


def point_at(page: bytes, child: int) -> bytes:
    """An inner page of a table with one child in all its cells."""
    assert page[0] == 5, "an inner page"
    changed = bytearray(page)
    changed[8:12] = child.to_bytes(4, "big")
    for k in range(int.from_bytes(page[3:5], "big")):
        cell = int.from_bytes(page[12 + 2 * k : 14 + 2 * k], "big")
        changed[cell : cell + 4] = child.to_bytes(4, "big")
    return bytes(changed)


def test_two_processes_share_no_ids() -> None:
    """Both use the same correlation ids; a file in which they differ answers alike."""
    trace = kept(SAMPLE)
    launched = [link["launch_row"] for link in trace.tables["kernel_links"].to_pylist()]
    calls = rows(trace, "launches")
    for kernel, row in zip(rows(trace, "kernels"), launched, strict=True):
        assert row is None or calls[row]["rank"] == kernel["rank"]


def test_the_sample_is_what_its_script_writes(tmp_path: Path) -> None:
    two_ranks(tmp_path / "t.sqlite")
    for table in ("kernels", "cpu_ops", "collectives"):
        assert opened(tmp_path / "t.sqlite").tables[table] == kept(SAMPLE).tables[table]


def test_steps_need_no_second_process(tmp_path: Path) -> None:
    process = one_process(tmp_path / "t.sqlite")
    steps(process, 0)
    process.export.close()
    assert [
        r["step"] for r in ask_trace(opened(tmp_path / "t.sqlite"), "step_times").to_pylist()
    ] == [
        4,
        5,
    ]


def test_a_report_that_was_not_exported_says_how_to(tmp_path: Path) -> None:
    (tmp_path / "t.nsys-rep").write_bytes(b"\x00 a report")
    with pytest.raises(HtkError, match=r"nsys export --type sqlite t\.nsys-rep"):
        opened(tmp_path / "t.nsys-rep")
    two_ranks(tmp_path / "t.sqlite")
    trace = opened(tmp_path)  # beside its export it is not looked at
    assert trace.ranks == [0, 1] and not trace.failed


def test_each_step_owns_what_it_launched_whatever_its_range_is_called() -> None:
    found = {
        (r["rank"], r["name"]): (r["kernels"], r["device_ns"])
        for r in ask_trace(kept(SAMPLE), "annotation_breakdown").to_pylist()
        if r["name"].startswith("step ")
    }
    by_step = {
        (rank, f"step {step}"): (7, 1_000 + 10_000 + 1_500 * rank + 3_000 + 16_000 + 500 + late)
        for rank, late in ((0, 20_000 + 5_000), (1, 17_000 + 5_000))
        for step in (4, 5)
    }
    assert found == by_step
