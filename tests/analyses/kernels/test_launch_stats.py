"""How long launches take: by hand, and as HTA has it on traces in whole microseconds."""

from pathlib import Path

import pytest

from htk.analyses.kernels.launch_stats import launch_stats
from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.kernels.hta import expected, kept
from tests.kineto_file import Event, kernel, launch, of_rank, op, write


def graph(correlation: int, ts: float, dur: float) -> Event:
    return {**launch(correlation, ts, dur), "name": "cudaGraphLaunch"}


EVENTS = [
    op("aten::mm", 0, 90),
    launch(1, 10, 4),  # ends at 14; gemm starts at 20: 6 later
    launch(2, 20, 60),  # longer than 50: an outlier; gemm starts at 30, before its end
    graph(3, 100, 5),  # ends at 105; a starts at 300: 195 later
    kernel("gemm", 20, 3, 1),
    kernel("gemm", 30, 10, 2),
    kernel("a", 300, 10, 3),
    kernel("b", 310, 20, 3),
    kernel("early", 0, 1, 77),
]


def test_by_hand(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "t.json", *EVENTS, **of_rank(0)), OpenOptions(cache=False))
    result = ask_trace(trace, "launch_stats")
    kernels, graphs = result.to_pylist()
    assert (kernels["launched_by"], kernels["count"], kernels["kernels"]) == (
        "cudaLaunchKernel",
        2,
        2,
    )
    assert (kernels["call_ns"], kernels["device_ns"]) == (64_000, 13_000)
    assert (kernels["delay_ns"], kernels["delay_ns_max"]) == (6_000, 6_000)
    assert (kernels["shorter_than_call"], kernels["call_outliers"]) == (1, 1)
    assert (graphs["launched_by"], graphs["count"], graphs["kernels"]) == (
        "cudaGraphLaunch",
        1,
        2,
    )
    assert (graphs["device_ns"], graphs["delay_ns"]) == (30_000, 195_000)
    assert graphs["delay_outliers"] == 1
    assert result.coverage["activities_without_call"] == 1


def test_by_operator_and_by_kernel(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "t.json", *EVENTS, **of_rank(0)), OpenOptions(cache=False))
    found = ask_trace(trace, "launch_stats", by="operator").to_pylist()
    assert [(r["launched_by"], r["count"]) for r in found] == [("aten::mm", 2), (None, 1)]
    found = ask_trace(trace, "launch_stats", by="kernel").to_pylist()
    assert [(r["launched_by"], r["kernels"]) for r in found] == [
        ("gemm", 2),
        ("(2 of one call, first a)", 2),
    ]


@pytest.mark.parametrize(
    ("trace", "name", "rank"),
    [
        ("trace_diff/control", "trace_diff/control", "3"),
        ("trace_diff/test", "trace_diff/test", "1"),
        ("trace_filter/sampled_rank-0.json.gz", "trace_filter", "0"),
    ],
)
def test_as_hta_on_whole_microseconds(shared: Path, trace: str, name: str, rank: str) -> None:
    """It knows no graph launches; those rows are ours alone."""
    tables = kept(shared, trace)
    order = ("kernels", "kernel_links", "launches", "cpu_ops")
    found = [
        r
        for r in launch_stats(*(tables[t] for t in order)).to_pylist()
        if r["launched_by"] != "cudaGraphLaunch"
    ]
    theirs = expected(shared, name)["cuda_kernel_launch_stats"][rank]

    def total(column: str) -> int:
        return sum(r[column] for r in found)

    assert total("kernels") == theirs["rows"]
    assert total("call_ns") == 1000 * theirs["cpu_duration_sum"]
    assert total("device_ns") == 1000 * theirs["gpu_duration_sum"]
    assert total("delay_ns") == 1000 * theirs["launch_delay_sum"]
    assert max(r["delay_ns_max"] for r in found) == 1000 * theirs["launch_delay_max"]
    assert total("shorter_than_call") == theirs["n_short_kernels(cpu<=50 & gpu<cpu)"]
    assert total("call_outliers") == theirs["n_runtime_outliers(cpu>50)"]
    assert total("delay_outliers") == theirs["n_launch_delay_outliers(>100)"]


def test_rows_shown_are_of_each_rank(tmp_path: Path) -> None:
    """The busiest kind of call of both ranks, none of which the other pushes out."""
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.json", *EVENTS, **of_rank(rank, 2))
    result = ask_trace(open_trace(tmp_path, OpenOptions(cache=False)), "launch_stats", n=1)
    shown = [(row["rank"], row["launched_by"]) for row in result.to_pylist()]
    assert shown == [(0, "cudaLaunchKernel"), (1, "cudaLaunchKernel")]
    assert result.coverage["rows_left_out"] == 2
