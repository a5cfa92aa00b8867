"""Ascend's exports of one job, held to the table that its own profiler sums up."""

import csv
import sqlite3
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MalformedTrace
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.ascend_folder import RANKS, STEPS, TASKS, moments, write_folder


def opened(folder: Path) -> Trace:
    return open_trace(folder, OpenOptions(cache=False))


@pytest.fixture(scope="module", params=["texts", "database", "both"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with one of its exports, or with both, of which one is read."""
    kinds = {"texts", "database"} if request.param == "both" else {request.param}
    written = {"texts": "texts" in kinds, "database": "database" in kinds}
    return write_folder(tmp_path_factory.mktemp(request.param), **written)


def test_time_is_what_its_own_table_sums_up(folder: Path) -> None:
    trace = opened(folder)
    assert (trace.ranks, trace.unread, trace.failed) == ([RANKS[0]], (), ())
    with (folder / "ASCEND_PROFILER_OUTPUT/step_trace_time.csv").open() as file:
        table = {name: 1000 * int(us or 0) for name, us in next(csv.DictReader(file)).items()}
    row = ask_trace(trace, "time_breakdown").to_pylist()[0]
    assert row["compute_ns"] == table["Computing"]
    assert row["comm_ns"] == table["Communication"]
    assert row["exposed_comm_ns"] == table["Communication(Not Overlapped)"]
    assert row["total_ns"] == table["Stage"]
    # Its table counts copies as free time.
    copying = len(moments("copy") - moments("compute", "comm"))
    assert row["idle_ns"] == table["Free"] - 1000 * copying


def test_operators_launches_and_steps_are_told(folder: Path) -> None:
    trace = opened(folder)
    kernels = trace.tables["kernels"].to_pylist()
    links = trace.tables["kernel_links"].to_pylist()
    operators = trace.tables["cpu_ops"]["name"].to_pylist()
    launched = {(k["name"], operators[at["op_row"]]) for k, at in zip(kernels, links, strict=True)}
    named = {(task.name, task.operator) for task in TASKS if task.kind != "copy"}
    assert named <= launched and len(kernels) == len(TASKS)
    assert {at["launch_start_ns"] for at in links} == {
        1000 * (1_760_000_000_000_000 + task.start - 10) for task in TASKS
    }
    steps = {row["step"]: row["cpu_ns"] for row in ask_trace(trace, "step_times").to_pylist()}
    assert steps == {step: 1000 * (end - start) for step, start, end in STEPS}


def test_the_database_tells_sizes_and_groups(tmp_path: Path) -> None:
    trace = opened(write_folder(tmp_path, texts=False))
    rows = trace.tables["collectives"].sort_by("start_ns").to_pylist()
    found = [(row["type"], row["in_bytes"], row["out_bytes"], row["group_size"]) for row in rows]
    assert found == [("all_reduce", 2048, 2048, 2), ("all_gather", 4096, 8192, 2)]
    copies = ask_trace(trace, "memory_bandwidth").to_pylist()
    assert [(row["direction"], row["size_bytes"]) for row in copies] == [("HtoD", 4096)]
    assert not trace.tables["parse_issues"].num_rows


def test_what_lacks_tables_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE STRING_IDS (id, value)")
    database.close()
    with pytest.raises(MalformedTrace, match="without calls or tasks"):
        opened(path)
    whole = write_folder(tmp_path / "whole", texts=False)
    lacking = whole / f"ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_{RANKS[0]}.db"
    with sqlite3.connect(lacking) as database:
        database.execute("DELETE FROM STRING_IDS")
        database.execute("UPDATE TASK SET startNs = 'x', endNs = NULL WHERE globalTaskId = 1")
    database.close()
    assert opened(whole).tables["kernels"].num_rows > 0
