"""Captures of graphs are set apart from what a server serves: in other files, or in the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace


def spans(start: int, name: str, *, captures: bool, kernels: int) -> list[dict[str, Any]]:
    """Return a range of 100 us with one launch and kernel each 10 us, in a capture or not."""
    common = {"ph": "X", "pid": 1, "tid": 1}
    calls = [common | {"name": name, "cat": "user_annotation", "ts": start, "dur": 100}]
    for k in range(kernels):
        at = start + 10 * k + 5
        number = start + k
        calls += [
            common | {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "ts": at, "dur": 2,
                      "args": {"correlation": number}},
            {"ph": "X", "pid": 0, "tid": 7, "name": "gemm", "cat": "kernel", "ts": at + 3, "dur": 4,
             "args": {"correlation": number, "device": 0, "stream": 7}},
        ]  # fmt: skip
    if captures:
        calls += [
            common
            | {"name": f"cudaStream{which}Capture", "cat": "cuda_runtime", "ts": at, "dur": 1}
            for which, at in (("Begin", start + 1), ("End", start + 98))
        ]
    return calls


CAPTURE = spans(1_000, "capture_8_DECODE", captures=True, kernels=3)
SERVED = [
    *spans(5_000, "execute_context_0(0)_generation_8(8)", captures=False, kernels=2),
    *spans(5_200, "execute_context_0(0)_generation_8(8)", captures=False, kernels=2),
]


def written(folder: Path, files: dict[str, list[dict[str, Any]]]) -> Trace:
    for name, events in files.items():
        text = json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events})
        (folder / f"{name}.json").write_text(text)
    return open_trace(folder, OpenOptions(cache=False))


@pytest.fixture(params=["apart", "in one file"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Trace:
    if request.param == "apart":
        return written(tmp_path, {"capture": CAPTURE, "serving": SERVED})
    return written(tmp_path, {"serving": [*CAPTURE, *SERVED]})


def test_sums_are_of_serving(server: Trace) -> None:
    (kernels,) = ask_trace(server, "kernel_top").to_pylist()
    assert (kernels["count"], kernels["total_ns"]) == (4, 16_000)
    assert "phase" in ask_trace(server, "kernel_top").coverage


def test_a_selection_of_times_or_recordings_is_what_was_asked(server: Trace) -> None:
    assert ask_trace(server.sel(from_ns=0), "kernel_top").to_pylist()[0]["count"] == 7
    assert ask_trace(server.sel(to_ns=500_000), "kernel_top").to_pylist()[0]["count"] == 3
    assert ask_trace(server.sel(ranks=[0]), "kernel_top").to_pylist()[0]["count"] == 4, "of serving"
    assert server.everything.tables["kernels"].num_rows == 7
    assert "phase" not in ask_trace(server.sel(from_ns=0), "kernel_top").coverage
    if len(server.cycles) > 1:
        assert ask_trace(server.sel(cycles=[0]), "kernel_top").to_pylist()[0]["count"] == 3


@pytest.mark.parametrize("events", [CAPTURE, SERVED], ids=["capture", "serving"])
def test_one_phase_alone_is_looked_at_whole(tmp_path: Path, events: list[dict[str, Any]]) -> None:
    trace = written(tmp_path, {"only": events})
    assert trace.serves_ns is None
    assert not trace.selection.narrows


def test_folders_of_servers_as_they_are_downloaded(shared: Path) -> None:
    """423 and 558 activities of the iteration; 100 and 2 of the capture are left out."""
    folder = shared / "traces/tracelens/inference"
    for name, count in (("vllm_prefilldecode_piecewise", 423), ("sglang_decode", 558)):
        trace = open_trace(folder / name)
        assert trace.tables["kernels"].num_rows == count
        assert trace.everything.tables["kernels"].num_rows == count + (100 if count < 500 else 2)
