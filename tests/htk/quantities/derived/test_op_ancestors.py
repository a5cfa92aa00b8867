"""The nn.Module round an operator: from the Python stack, and for backward from its forward."""

from pathlib import Path
from typing import Any

from htk.quantities.derived.op_ancestors import op_callers, python_links
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import Event, of_rank, op, write
from tests.tables import make


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


def span(name: str, thread: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "process": "1",
        "thread": thread,
        "start_ns": start,
        "end_ns": end,
        **more,
    }


def test_a_recorded_hierarchy_knows_better_than_the_stack() -> None:
    """Both lie in `Net`; the first says where it is, which its backward operator follows."""
    python = make("python_calls", [span("nn.Module: Net", "a", 0, 100)])
    ops = make(
        "cpu_ops",
        [
            span("mm", "a", 10, 20, module_hierarchy="Top.Layer"),
            span("add", "a", 30, 40),
            span("MmBackward0", "b", 50, 60),
            span("AddBackward0", "b", 70, 80),
            span("other", "b", 90, 95),
        ],
    )
    forward = [None, None, 0, 1, None]
    links = make("op_links", [{"forward_row": row} for row in forward])
    told = [(c["module"], c["module_by"]) for c in op_callers(ops, python, links).to_pylist()]
    assert told == [
        ("Top.Layer", "hierarchy"), ("Net", "python"), ("Top.Layer", "forward"),
        ("Net", "forward"), (None, None),
    ]  # fmt: skip


def test_each_python_call_has_its_caller_depth_and_module() -> None:
    """Modules of one name under two others are two; threads are told apart."""
    python = make(
        "python_calls",
        [
            span("nn.Module: A", "a", 0, 50),
            span("nn.Module: L", "a", 10, 20),
            span("f", "a", 12, 15),
            span("nn.Module: B", "a", 60, 90),
            span("nn.Module: L", "a", 70, 80),
            span("g", "b", 12, 14),
        ],
    )
    links = python_links(python).to_pylist()
    assert [row["module"] for row in links] == ["A", "A.L", "A.L", "B", "B.L", None]
    assert [row["depth"] for row in links] == [0, 1, 2, 0, 1, 0]
    assert [row["parent_row"] for row in links] == [None, 0, 1, None, 3, None]
    assert [row["thread_index"] for row in links] == [0, 0, 0, 0, 0, 1]
