"""GPU work belongs to the Python calls and modules that were open round its launch, by hand."""

from pathlib import Path

import numpy as np
import pytest

from htk.base.columns.types import NONE
from htk.quantities.measures.gpu_callers import TextCodes, modules_of_kernels, python_of_kernels
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.analyses.ops.launched import call
from tests.kineto_file import kernel, launch, of_rank, op, write


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A replay by Python alone, a kernel that a Function's forward launches inside its operator,
    and one that is linked by the id of its operator alone."""
    replay = {**launch(1, 12), "name": "cudaGraphLaunch"}
    events = [
        call("nn.Module: Net_0", 0, 100),
        call("graphs.py(1): replay", 10, 5),
        replay,
        kernel("first", 20, 5, 1),
        kernel("second", 25, 5, 1),
        op("MyFunction", 30, 20),
        call("my.py(4): forward", 32, 10),
        launch(2, 35),
        kernel("triton_own", 40, 5, 2),
        op("aten::mm", 60, 10, **{"External id": 9}),
        {**kernel("by id", 70, 5, 77), "args": {"stream": 7, "External id": 9}},
        op("aten::mm", 60, 10, tid=2, **{"External id": 10}),
        {**kernel("elsewhere", 80, 5, 78), "args": {"stream": 7, "External id": 10}},
    ]
    return open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))


def test_the_python_call_round_each_launch(trace: Trace) -> None:
    tables = [trace.tables[name] for name in ("kernel_links", "launch_callers", "op_callers")]
    names = [*trace.tables["python_calls"]["name"].to_pylist(), None]
    callers = [names[row] for row in python_of_kernels(*tables).tolist()]
    assert dict(zip(trace.tables["kernels"]["name"].to_pylist(), callers, strict=True)) == {
        "first": "graphs.py(1): replay",
        "second": "graphs.py(1): replay",
        "triton_own": "my.py(4): forward",
        "by id": "nn.Module: Net_0",
        "elsewhere": None,
    }


def test_the_module_round_each_launch(trace: Trace) -> None:
    names = ("kernels", "kernel_links", "launch_callers", "op_callers")
    tables = [trace.tables[name] for name in names]
    modules = modules_of_kernels(*tables)
    assert set(modules.used) == {"Net_0"}
    assert modules.among(["Net_0"]).tolist() == [0, 0, 0, 0, 1]


def test_texts_among_others() -> None:
    codes = TextCodes(np.array([1, NONE, 0]), ["a", "b", "never"])
    assert codes.used == ["a", "b"]
    assert codes.among(["b", "a"]).tolist() == [0, 2, 1]
