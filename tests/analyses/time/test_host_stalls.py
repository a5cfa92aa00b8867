"""What the host waits for and what it costs the GPU, on files small enough to check by eye."""

from pathlib import Path
from typing import Any

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import open_trace
from htk.verdicts.overview.summary import reach_verdict
from tests.kineto_file import Event, kernel, launch, op, span, step, write


def call(name: str, ts: float, dur: float, correlation: int = 0) -> Event:
    return launch(correlation, ts, dur) | {"name": name}


def stalls(path: Path) -> list[tuple[Any, ...]]:
    rows = ask_trace(open_trace(path), "host_stalls").to_pylist()
    kept = ("cause", "name", "stack", "count", "host_ns", "gpu_idle_caused_ns")
    return [tuple(r[c] for c in kept) for r in rows]


def test_an_item_costs_until_the_next_launch_arrives(tmp_path: Path) -> None:
    """The GPU runs dry at 50, the call returns at 52, the next kernel begins at 70."""
    events = [
        launch(1, 0), kernel("gemm", 2, 48, 1),
        op("aten::item", 5, 48), op("aten::_local_scalar_dense", 6, 46.5),
        call("cudaStreamSynchronize", 7, 45),
        op("aten::mm", 60, 8), launch(2, 62), kernel("gemm", 70, 5, 2),
    ]  # fmt: skip
    assert stalls(write(tmp_path / "item.json", *events)) == [
        (".item", "cudaStreamSynchronize", "aten::item > aten::_local_scalar_dense", 1,
         45_000, 20_000),
    ]  # fmt: skip


def test_what_does_not_block_is_no_stall(tmp_path: Path) -> None:
    events = [launch(1, 0), kernel("gemm", 2, 8, 1), call("cudaMemcpyAsync", 4, 5, 9),
              launch(2, 11), kernel("gemm", 14, 8, 2)]  # fmt: skip
    assert stalls(write(tmp_path / "quick.json", *events)) == []


def test_allocation_and_loading_cost_what_is_idle_meanwhile(tmp_path: Path) -> None:
    events = [
        launch(1, 0), kernel("gemm", 2, 8, 1),
        call("cudaMalloc", 15, 20), span("enumerate(DataLoader)#_X.__next__", 40, 10),
        launch(2, 60), kernel("gemm", 62, 5, 2),
    ]  # fmt: skip
    found = {row[0]: row[4:] for row in stalls(write(tmp_path / "slow.json", *events))}
    assert found == {"allocation": (20_000, 20_000), "data loading": (10_000, 10_000)}


def test_a_range_and_the_function_in_it_are_one_stall(tmp_path: Path) -> None:
    inner = span("x", 42, 5) | {"cat": "python_function", "args": {"Python id": 1}}
    inner["name"] = "torch/utils/data/dataloader.py(700): __next__"
    events = [span("enumerate(DataLoader)#_X.__next__", 40, 10), inner, op("aten::mm", 60, 1)]
    (row,) = stalls(write(tmp_path / "loader.json", *events))
    assert row[3:] == (1, 10_000, None)  # no GPU work was recorded


def test_each_idle_nanosecond_counts_once(shared: Path) -> None:
    trace = open_trace(shared / "traces/hta/trace_diff/control")
    caused = sum(r["gpu_idle_caused_ns"] for r in ask_trace(trace, "host_stalls", n=0).to_pylist())
    idle = sum(r["idle_ns"] for r in ask_trace(trace, "idle_breakdown").to_pylist())
    assert 0 < caused <= idle


def test_of_gpu_work_alone_it_says_that_the_host_is_missing(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "gpu.json", kernel("gemm", 0, 5)))
    found = ask_trace(trace, "host_stalls")
    assert not found.to_pylist() and found.coverage["host_recorded"] is False
    assert reach_verdict(trace).shares[0].name == "compute"


def test_start_up_is_a_cause_of_its_own(tmp_path: Path) -> None:
    """A stream is created after a synchronise, and the first launch of all loads its code: neither
    is the synchronise's, nor the operators'. A later launch as slow is no start-up.
    """
    events = [
        call("cuLaunchKernelEx", 0, 1) | {"args": {"correlation": 1}}, kernel("gemm", 2, 8, 1),
        call("cudaStreamSynchronize", 3, 8), call("cudaStreamCreateWithFlags", 20, 600),
        launch(2, 700, 3000), kernel("gemm", 3702, 8, 2),
        launch(3, 3720, 2000), kernel("gemm", 5722, 8, 3),
    ]  # fmt: skip
    path = write(tmp_path / "start.json", *events)
    caused = {(row[0], row[1]): row[-1] for row in stalls(path)}
    assert caused["start-up", "cudaStreamCreateWithFlags"] == 600_000
    assert caused["start-up", "cudaLaunchKernel"] == 3_000_000
    idle = {
        r["cause"]: r["idle_ns"] for r in ask_trace(open_trace(path), "idle_breakdown").to_pylist()
    }
    assert idle["host_start_up"] == 3_600_000


def test_a_short_synchronise_is_not_charged_with_a_long_operator_after_it(tmp_path: Path) -> None:
    """The GPU runs dry at 10 during a call of 8 us; aten::sort keeps the host for 5 ms from 16 on.

    The call explains 1 us meanwhile and 5 until 16; the 2 that it could explain beyond are lost in
    what the operator takes.
    """
    events = [
        launch(1, 0), kernel("gemm", 2, 8, 1), call("cudaStreamSynchronize", 3, 8),
        op("aten::sort", 16, 5000), op("aten::mm", 5020, 8), launch(2, 5022),
        kernel("gemm", 5030, 5, 2),
    ]  # fmt: skip
    path = write(tmp_path / "sort.json", *events)
    assert stalls(path) == [
        ("operator", "aten::sort", None, 1, 5_000_000, 5_000_000),
        ("synchronising call", "cudaStreamSynchronize", None, 1, 8_000, 6_000),
    ]
    idle = {
        r["cause"]: r["idle_ns"] for r in ask_trace(open_trace(path), "idle_breakdown").to_pylist()
    }
    assert idle["host_operator"] == 5_002_000, "what ran is said as before"


def test_python_after_a_synchronise_is_not_its_cost(tmp_path: Path) -> None:
    events = [
        launch(1, 0), kernel("gemm", 2, 48, 1), call("cudaStreamSynchronize", 40, 12),
        launch(2, 900), kernel("gemm", 905, 5, 2), op("aten::mm", 990, 1),
    ]  # fmt: skip
    (row,) = stalls(write(tmp_path / "python.json", *events))
    assert row[3:] == (1, 12_000, 12_000), "of 855 us idle no more than it blocked"


def test_the_first_launch_of_a_kernel_may_load_its_code(tmp_path: Path) -> None:
    """gemm was launched before, norm was not: of two launches of 4 ms one is start-up."""
    events = [
        launch(1, 0), kernel("gemm", 2, 8, 1),
        launch(2, 20, 4000), kernel("norm", 4022, 8, 2),
        launch(3, 4040, 4000), kernel("gemm", 8042, 8, 3),
    ]  # fmt: skip
    events.append(op("aten::mm", 8990, 1))
    path = write(tmp_path / "first.json", *events)
    idle = {
        r["cause"]: r["idle_ns"] for r in ask_trace(open_trace(path), "idle_breakdown").to_pylist()
    }
    assert idle["host_start_up"] == 4_000_000 and idle["host_runtime_call"] == 4_000_000
    assert {row[:2]: row[-1] for row in stalls(path)} == {
        ("start-up", "cudaLaunchKernel"): 4_000_000
    }


def test_a_long_operator_is_not_cut_where_another_thread_works_too(tmp_path: Path) -> None:
    """The GPU waits from 10 to 2,010 us for the second thread's launch, and the main thread is in
    an operator; that the second one is in one of its own meanwhile ends no wait."""
    events = [
        step(1, 0, 2_030), launch(1, 1), kernel("gemm", 3, 7, 1),
        op("aten::sort", 5, 2_005), op("aten::copy_", 600, 20, 3), launch(2, 2_010, 2, 3),
        kernel("gemm", 2_015, 5, 2),
    ]  # fmt: skip
    assert stalls(write(tmp_path / "both.json", *events)) == [
        ("operator", "aten::sort", None, 1, 2_005_000, 2_000_000),
    ]  # fmt: skip
