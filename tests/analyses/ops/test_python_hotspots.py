"""Which Python functions take the time, by hand."""

from pathlib import Path

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.ops.launched import call, training_step
from tests.kineto_file import of_rank, op, write


def test_by_hand(tmp_path: Path) -> None:
    found = ask_trace(training_step(tmp_path), "python_hotspots").to_pylist()
    columns = ("function", "total_ns", "self_ns", "python_ns", "operators_ns", "device_total_ns")
    assert [tuple(r[c] for c in columns) for r in found] == [
        ("train.py(1): main", 100_000, 52_000, 52_000, 0, 32_000),
        ("nn.Module: Net_0", 48_000, 24_000, 14_000, 10_000, 29_000),
        ("nn.Module: Linear_1", 24_000, 24_000, 4_000, 20_000, 25_000),
    ]
    assert [r["device_self_ns"] for r in found] == [3_000, 4_000, 25_000]


def test_recursion_counts_once_and_an_operator_may_call_python(tmp_path: Path) -> None:
    events = [
        call("f", 0, 100),
        op("autograd", 10, 80),
        call("f", 20, 60),
        op("aten::mul", 30, 40),
    ]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    (row,) = ask_trace(trace, "python_hotspots").to_pylist()
    assert (row["count"], row["total_ns"], row["self_ns"]) == (2, 100_000, 100_000)
    assert row["operators_ns"] == 60_000  # autograd's 20 beside the inner call, and mul's 40
    assert row["python_ns"] == 40_000


def test_a_function_bound_to_objects_is_one_function_on_every_rank(tmp_path: Path) -> None:
    name = "<built-in method mul_ of Parameter object"
    paths = [
        write(
            tmp_path / f"r{rank}.json",
            call(f"{name} at 0x7f{rank}1FFe0>", 0, 10 + rank),
            call(f"{name} at 0x{rank}>", 40, 5),
            **of_rank(rank),
        )
        for rank in range(3)
    ]
    trace = open_trace([str(p) for p in paths], OpenOptions(cache=False))
    (row,) = ask_trace(trace, "python_hotspots").to_pylist()
    assert row["function"] == f"{name}>"
    assert (row["count"], row["total_ns"]) == (6, 1_000 * (10 + 11 + 12 + 3 * 5))
