"""The nn.Module round an operator: from the Python stack, and for backward from its forward."""

from pathlib import Path

from htk.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, of_rank, op, write


def call(name: str, ts: float, dur: float) -> Event:
    found = op(name, ts, dur)
    return {**found, "cat": "python_function"}


def test_modules_nest_and_backward_follows_forward(tmp_path: Path) -> None:
    events = [
        call("train.py(1): main", 0, 100),
        call("nn.Module: Net_0", 1, 50),
        call("net.py(9): forward", 2, 40),
        call("nn.Module: Linear_1", 3, 20),
        {**op("aten::addmm", 4, 2), "args": {"Sequence number": 7, "Fwd thread id": 0}},
        op("aten::relu", 30, 2),
        op("aten::outside", 60, 2),
        {**op("AddmmBackward0", 70, 9, tid=2), "args": {"Sequence number": 7, "Fwd thread id": 1}},
        op("aten::mm", 71, 2, tid=2),
    ]
    path = write(tmp_path / "t.json", *events, **of_rank(0))
    tables = open_trace(path, OpenOptions(cache=False)).tables
    names = tables["cpu_ops"]["name"].to_pylist()
    callers = tables["op_callers"].to_pylist()
    python = tables["python_calls"]["name"].to_pylist()
    found = {
        n: (
            c["module"],
            c["module_by"],
            None if c["python_row"] is None else python[c["python_row"]],
        )
        for n, c in zip(names, callers, strict=True)
    }
    assert found == {
        "aten::addmm": ("Net_0.Linear_1", "python", "nn.Module: Linear_1"),
        "aten::relu": ("Net_0", "python", "net.py(9): forward"),
        "aten::outside": (None, None, "train.py(1): main"),
        "AddmmBackward0": ("Net_0.Linear_1", "forward", None),
        "aten::mm": ("Net_0.Linear_1", "forward", None),
    }
