"""Metrics that CUPTI took of kernels: by hand, and of a public recording by plain json."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import launch, of_rank, op, profiled, write

FADD, DADD = "smsp__sass_fadd.sum", "smsp__sass_dadd.sum"


def recording(path: Path) -> Path:
    return write(
        path,
        op("aten::add", 0, 3),
        launch(1, 1),
        profiled("add", 10, **{FADD: 100, DADD: 0}),
        profiled("mul", 20, **{FADD: 30, DADD: 0}),
        profiled("add", 30, **{FADD: 200, DADD: 0}),
        {"ph": "C", "name": "GPU 0 Power", "pid": 3, "ts": 12, "args": {"W": 400}},
        **of_rank(2),
    )


@pytest.mark.parametrize("engine", ["compiled", "pure"])
def test_metrics_by_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setenv("HTK_ENGINE", engine)
    trace = open_trace(recording(tmp_path / "t.json"), OpenOptions(cache=False))
    found = ask_trace(trace, "kernel_metrics")
    assert found.to_pylist() == [
        {"rank": 2, "kernel": "add", "metric": FADD, "count": 2, "total": 300.0, "mean": 150.0,
         "least": 100.0, "most": 200.0},
        {"rank": 2, "kernel": "mul", "metric": FADD, "count": 1, "total": 30.0, "mean": 30.0,
         "least": 30.0, "most": 30.0},
    ]  # fmt: skip
    assert (found.coverage["kernels"], found.coverage["rows_left_out"]) == (2, 0)
    assert ask_trace(trace, "kernel_metrics", zeros=True, n=1).coverage["rows_left_out"] == 3
    (power,) = (row for row in trace.tables["counters"].to_pylist() if row["series"] == "W")
    assert (power["name"], power["process"], power["value"]) == ("GPU 0 Power", "3", 400.0)


def test_without_metrics_it_says_how_to_record_them(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", op("aten::add", 0, 3), **of_rank(0))
    with pytest.raises(MissingTable, match="CUPTI_PROFILER_METRICS"):
        ask_trace(open_trace(path, OpenOptions(cache=False)), "kernel_metrics")


def test_metrics_of_a_public_recording(shared: Path) -> None:
    (path,) = (shared / "traces/hta/cupti_profiler").iterdir()
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "cuda_profiler_range":
            for metric, value in event["args"].items():
                sums[event["name"], metric] += value
    rows = ask_trace(open_trace(path), "kernel_metrics", zeros=True, n=0).to_pylist()
    assert {(row["kernel"], row["metric"]): row["total"] for row in rows} == dict(sums)
