"""Sequences of kernels under operators: by hand, and as HTA has it."""

from pathlib import Path

import pytest

from htk.analyses.kernels.kernel_sequences import kernel_sequences
from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.kernels.hta import kept
from tests.kineto_file import Event, kernel, launch, of_rank, op, write


def linear(ts: float, first: int, *names: str) -> list[Event]:
    """An operator of 40 µs that calls another, which launches kernels of 2 µs."""
    events = [op("aten::linear", ts, 40), op("aten::addmm", ts + 1, 38)]
    for k, name in enumerate(names):
        events.append(launch(first + k, ts + 2 + 2 * k))
        events.append(kernel(name, ts + 100 + 3 * k, 2, first + k))
    return events


EVENTS = [
    *linear(0, 1, "a", "b", "b"),
    *linear(1000, 11, "a", "b", "b"),
    *linear(2000, 21, "b", "a", "b"),
    *linear(3000, 31, "a", "b"),
]


def test_by_hand(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "t.json", *EVENTS, **of_rank(0)), OpenOptions(cache=False))
    found = ask_trace(trace, "kernel_sequences").to_pylist()
    columns = ("op", "kernel_sequence", "length", "count", "device_ns", "cpu_ns")
    assert [tuple(r[c] for c in columns) for r in found] == [
        ("aten::linear", "a → b ×2", 3, 2, 12_000, 80_000),
        ("aten::linear", "b → a → b", 3, 1, 6_000, 40_000),
    ]
    inner = ask_trace(trace, "kernel_sequences", match="addmm", min_length=2).to_pylist()
    assert [(r["op"], r["count"]) for r in inner] == [
        ("aten::addmm", 2),
        ("aten::addmm", 1),
        ("aten::addmm", 1),
    ]
    assert ask_trace(trace, "kernel_sequences", match="conv").to_pylist() == []
    with pytest.raises(UsageError, match="not a regular expression"):
        ask_trace(trace, "kernel_sequences", match="(")


def test_as_hta_on_whole_microseconds(shared: Path) -> None:
    """It found 10 calls, 986 µs of kernels and 1123 µs of operators."""
    tables = kept(shared, "trace_diff/control")
    order = ("cpu_ops", "op_links", "kernels", "kernel_links")
    found = kernel_sequences(*(tables[t] for t in order), match="aten::linear").to_pylist()
    assert [(r["count"], r["device_ns"], r["cpu_ns"]) for r in found] == [(10, 986_000, 1_123_000)]
