"""Ranges of NVTX: what is an operator, with which numbers, and which thread went forward."""

from pathlib import Path
from typing import Any

from htk.traces.trace.trace import Trace
from sample_traces.nsight_export import Export, Process
from tests.parsers.opened_files import opened, rows


def ranges(path: Path, *texts: tuple[str, int]) -> Trace:
    """Ranges of a process, each with its thread, ten apart and six long."""
    export = Export(path)
    export.header()
    process = Process(export, 900, 0)
    for k, (text, thread) in enumerate(texts):
        process.range(text, 10 * k + 10, 10 * k + 16, thread=thread)
    process.kernel("k", 5, 9, 1)
    export.close()
    return opened(path)


def columns(of: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in of]


def test_operators_their_numbers_and_their_forward_thread(tmp_path: Path) -> None:
    """Thread 902 makes most forward operators; the backward ones are of it, wherever they run."""
    backward = "autograd::engine::evaluate_function: MmBackward0"
    trace = ranges(
        tmp_path / "t.sqlite",
        ("aten::a, seq = 0, op_id = 0, sizes = [[2, 3], []], input_op_ids = [(1,0)]", 2),
        ("aten::b, seq = 4", 2),
        ("aten::c, op_id = 7", 1),
        ("aten::d, seq = 5", 1),
        (f"{backward}, seq = 4, op_id = 9", 3),
        ("MmBackward0, seq = 4", 3),
        ("my op, seq = 6", 1),
        ("nccl:all_reduce, op_id = 8", 1),
        ("aten::plain", 1),
    )
    told = ("name", "sequence", "record_function_id", "input_dims", "forward_thread", "thread")
    assert columns(rows(trace, "cpu_ops"), *told) == [
        ("aten::a", 0, 0, "[[2,3],[]]", 0, "902"),
        ("aten::b", 4, None, None, 0, "902"),
        ("aten::c", None, 7, None, None, "901"),
        ("aten::d", 5, None, None, 0, "901"),
        (backward, 4, 9, None, 902, "903"),
        ("MmBackward0", 4, None, None, 902, "903"),
    ]
    spans = columns(rows(trace, "annotations"), "name", "on_gpu", "thread", "process")
    assert spans == [
        ("my op", False, "901", "900"),
        ("nccl:all_reduce", False, "901", "900"),
        ("aten::plain", False, "901", "900"),
    ]
    assert {r["end_ns"] - r["start_ns"] for r in rows(trace, "cpu_ops")} == {6}


def test_backward_operators_without_forward_ones_name_no_thread(tmp_path: Path) -> None:
    trace = ranges(tmp_path / "t.sqlite", ("MmBackward0, seq = 4", 3))
    assert columns(rows(trace, "cpu_ops"), "sequence", "forward_thread") == [(4, None)]
