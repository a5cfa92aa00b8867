"""Traces that agents ask about: a few are kept, and the others are gone."""

import weakref
from pathlib import Path

from htk.answers.ask import ask
from htk.mcp.traces import Traces
from htk.trace.opening import OpenOptions
from tests.kineto_file import kernel, of_rank, write


def run(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    write(folder / name / "rank0.json", kernel("gemm", 1, 2), **of_rank(0))


def test_a_recording_that_is_not_narrowed_is_derived_once(tmp_path: Path) -> None:
    run(tmp_path, "a")
    traces = Traces([tmp_path], OpenOptions(cache=False))
    first = traces.select("a")
    assert traces.select("a") is first
    assert traces.select("a", ranks="0") is not first


def test_what_is_let_go_is_freed_at_once(tmp_path: Path) -> None:
    """Traces refer to themselves, and the collector waits for more objects than they have."""
    traces, opened = Traces([tmp_path], OpenOptions(cache=False)), []
    for k in range(6):
        run(tmp_path, f"run{k}")
        trace = traces.select(f"run{k}")
        ask(trace, "kernel_top")
        opened.append(weakref.ref(trace))
        del trace
    assert [ref() is None for ref in opened] == [True, True, False, False, False, False]
