"""Which modules take the time, by hand."""

from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.ops.launched import training_step
from tests.kineto_file import of_rank, op, write


def test_forward_and_backward_by_hand(tmp_path: Path) -> None:
    found = ask_trace(training_step(tmp_path), "module_breakdown").to_pylist()
    columns = ("module", "count", "cpu_total_ns", "device_total_ns", "device_self_ns")
    assert [tuple(r[c] for c in columns) for r in found] == [
        ("Net_0", 1, 48_000, 69_000, 4_000),
        ("Net_0.Linear_1", 1, 24_000, 65_000, 65_000),
        (None, None, None, 10_000, 10_000),  # carried in, and launched outside of modules
    ]
    linear = found[1]
    assert (linear["depth"], linear["backward_device_ns"], linear["kernels"]) == (1, 40_000, 3)
    assert linear["operators_cpu_ns"] == 50_000  # linear 20, AddmmBackward0 30


def test_without_modules_it_says_what_would_record_them(tmp_path: Path) -> None:
    trace = open_trace(
        write(tmp_path / "t.json", op("a", 0, 1), **of_rank(0)), OpenOptions(cache=False)
    )
    with pytest.raises(MissingTable, match="with_modules=True"):
        ask_trace(trace, "module_breakdown")


def test_recorded_hierarchies_and_the_modules_between(tmp_path: Path) -> None:
    deep = op("aten::mm", 0, 10, **{"Module Hierarchy": "Net.Block.Linear"})
    trace = open_trace(write(tmp_path / "t.json", deep, **of_rank(0)), OpenOptions(cache=False))
    found = ask_trace(trace, "module_breakdown").to_pylist()
    assert {r["module"]: (r["operators"], r["operators_cpu_ns"]) for r in found} == {
        "Net": (1, 10_000),
        "Net.Block": (1, 10_000),
        "Net.Block.Linear": (1, 10_000),
    }
    assert all(r["count"] is None for r in found)
