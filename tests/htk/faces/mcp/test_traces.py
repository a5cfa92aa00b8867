"""Traces that agents ask about: a few are kept, and the others are gone."""

import json
import weakref
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable, TraceError
from htk.faces.mcp.tools import list_tools
from htk.faces.mcp.traces import Traces
from htk.traces.trace.opening import OpenOptions
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


def test_what_agents_open_is_read_in_the_process_with_limits(tmp_path: Path) -> None:
    run(tmp_path, "a")
    for cache in (True, False):
        opened = Traces([tmp_path], OpenOptions(cache=cache)).select("a")
        assert not opened.files[0].entry.lacks("kernel_totals"), "which only that process makes"


def test_jobs_that_lie_together_are_compared_and_changed_by_their_names(tmp_path: Path) -> None:
    for job, ms in (("A", 2), ("B", 5)):
        for rank in range(2):
            name = f"job{job}_rank{rank}.json"
            write(tmp_path / name, kernel("gemm", 1, ms), **of_rank(rank, 2))
    offered = {
        name: tool for name, _, tool in list_tools(Traces([tmp_path], OpenOptions(cache=False)))
    }
    folder = str(tmp_path)
    with pytest.raises(TraceError, match="2 jobs"):
        offered["diff"](folder, folder)
    changed = json.loads(offered["diff"](folder, folder, job="jobA", new_job="jobB"))
    same = json.loads(offered["diff"](folder, folder, job="jobB"))
    assert changed["rows"] != same["rows"]
    with pytest.raises(TraceError, match="2 jobs"):
        offered["whatif"](folder)
    with pytest.raises(MissingTable):  # the job is chosen; nothing of the CPU was recorded
        offered["whatif"](folder, job="jobA")


def test_what_is_let_go_is_freed_at_once(tmp_path: Path) -> None:
    """Traces refer to themselves, and the collector waits for more objects than they have."""
    traces, opened = Traces([tmp_path], OpenOptions(cache=False)), []
    for k in range(6):
        run(tmp_path, f"run{k}")
        trace = traces.select(f"run{k}")
        ask_trace(trace, "kernel_top")
        opened.append(weakref.ref(trace))
        del trace
    assert [ref() is None for ref in opened] == [True, True, False, False, False, False]


def test_requests_meanwhile_do_not_take_a_trace_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one request lets go of older traces, others open so many that its own goes too."""
    for k in range(10):
        run(tmp_path, f"run{k}")
    meanwhile = [f"run{k}" for k in range(5, 10)]

    def collect() -> int:
        while meanwhile:
            traces.select(meanwhile.pop())
        return 0

    monkeypatch.setattr("htk.faces.mcp.traces.open_trace", lambda path, _: path.name)
    monkeypatch.setattr("htk.faces.mcp.traces.gc.collect", collect)
    traces: Any = Traces([tmp_path])
    assert [traces.select(f"run{k}") for k in range(5)] == [f"run{k}" for k in range(5)]
    assert not meanwhile
