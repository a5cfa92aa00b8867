"""Several processes in one file are several ranks, whose ids mean nothing to one another."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.answers.export.merged import write_merged
from htk.answers.export.rewrite import sources_of
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write


def opened(path: Path) -> Trace:
    return open_trace(path, OpenOptions(cache=False))


def of_process(number: int, late: float, lengths: list[float]) -> list[Event]:
    """Process `number` and its GPU; ids, threads and streams are the same in every process."""
    made = []
    for k, length in enumerate(lengths, 1):
        at = 100 * k + late
        for event in (
            op(f"aten::op{number}", at, 20),
            launch(k, at + 5),
            kernel("gemm", at + 10, length, k),
        ):
            on_gpu = event["cat"] == "kernel"
            made.append({**event, "pid": number if on_gpu else 1000 + number})
    return made


def gpu_time(trace: Trace) -> dict[Any, int]:
    rows = ask_trace(trace, "op_breakdown", n=0).to_pylist()
    return {row["op"]: row["device_self_ns"] for row in rows}


def test_equal_ids_of_two_processes_are_told_apart(tmp_path: Path) -> None:
    events = of_process(0, 0, [20, 30]) + of_process(1, 3, [40, 50])
    trace = opened(write(tmp_path / "two.json", *events))
    assert trace.ranks == [0, 1]
    assert gpu_time(trace) == {"aten::op0": 50_000, "aten::op1": 90_000}
    busy = {r["rank"]: r["busy_ns"] for r in ask_trace(trace, "time_breakdown").to_pylist()}
    assert busy == {0: 50_000, 1: 90_000}


def test_ids_that_no_other_process_uses_leave_a_file_whole(tmp_path: Path) -> None:
    worker = {**op("loader", 100, 50), "pid": 77}
    trace = opened(write(tmp_path / "one.json", *of_process(0, 0, [20, 30]), worker))
    assert trace.ranks == [0] and trace.tables["cpu_ops"].num_rows == 3


def test_a_reused_id_is_the_latest_call_before_the_activity(tmp_path: Path) -> None:
    events = [
        op("aten::early", 0, 10),
        launch(1, 5),
        kernel("first", 12, 4, 1),
        op("aten::late", 100, 10),
        launch(1, 105),
        kernel("second", 112, 6, 1),
        kernel("third", 30, 8, 1),
    ]
    trace = opened(write(tmp_path / "reused.json", *events, **of_rank(0)))
    assert gpu_time(trace) == {"aten::early": 12_000, "aten::late": 6_000}
    assert ask_trace(trace, "kernel_top").coverage["ambiguous_activities"] == 3


def test_a_call_after_the_activity_did_not_launch_it(tmp_path: Path) -> None:
    events = [launch(2, 50), kernel("before", 10, 5, 2), kernel("after", 60, 5, 2)]
    links = opened(write(tmp_path / "t.json", *events)).tables["kernel_links"]
    assert links["launch_row"].to_pylist() == [None, 0]


@pytest.mark.parametrize("folder", ["dlrm_8rank", "hta/nccl_parser_config"])
def test_ranks_in_one_chrome_trace_read_back(shared: Path, tmp_path: Path, folder: str) -> None:
    _reads_back(shared / "traces" / folder, tmp_path)


def test_the_sample_in_one_chrome_trace_reads_back(tmp_path: Path) -> None:
    _reads_back("sample", tmp_path)


def _reads_back(inputs: Path | str, folder: Path) -> None:
    trace = open_trace(inputs)
    again = opened(write_merged(trace, sources_of(inputs), folder).file)
    assert again.ranks == trace.ranks
    for name, columns in {
        "op_breakdown": ("op", "count", "device_total_ns", "device_self_ns", "kernels"),
        "kernel_top": ("name", "count", "total_ns"),
        "time_breakdown": ("rank", "busy_ns", "compute_ns", "comm_ns", "idle_ns"),
    }.items():
        options = {} if name == "time_breakdown" else {"n": 0}
        answers = [ask_trace(t, name, **options).to_pylist() for t in (trace, again)]
        before, after = ([tuple(r[c] for c in columns) for r in rows] for rows in answers)
        assert sorted(after, key=str) == sorted(before, key=str)
