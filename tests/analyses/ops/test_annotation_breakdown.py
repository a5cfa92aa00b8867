"""What user ranges cost, by hand."""

from pathlib import Path

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.analyses.ops.launched import training_step
from tests.kineto_file import Event, kernel, launch, of_rank, span, write


def on_gpu(name: str, ts: float, dur: float) -> Event:
    found = span(name, ts, dur)
    args = {"device": 0, "stream": 7}
    return {**found, "cat": "gpu_user_annotation", "pid": 0, "tid": 7, "args": args}


def test_by_hand(tmp_path: Path) -> None:
    found = ask_trace(training_step(tmp_path), "annotation_breakdown").to_pylist()
    columns = ("name", "count", "cpu_total_ns", "kernels", "device_ns", "device_busy_ns")
    assert [tuple(r[c] for c in columns) for r in found] == [
        ("ProfilerStep", 1, 100_000, 5, 72_000, 72_000),
        ("forward", 1, 50_000, 3, 29_000, 29_000),
    ]


def test_nested_ranges_and_copies_on_the_gpu(tmp_path: Path) -> None:
    events = [
        span("outer", 0, 100),
        span("inner", 10, 20),
        span("inner", 50, 20),
        launch(1, 12),
        launch(2, 55),
        launch(3, 72),
        kernel("a", 20, 10, 1),
        kernel("b", 60, 20, 2),
        kernel("c", 75, 10, 3, stream=8),
        on_gpu("outer", 20, 55),
    ]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    found = {r["name"]: r for r in ask_trace(trace, "annotation_breakdown").to_pylist()}
    outer, inner = found["outer"], found["inner"]
    assert (outer["kernels"], outer["device_ns"], outer["device_busy_ns"]) == (3, 40_000, 35_000)
    assert (outer["count"], outer["gpu_ranges"], outer["gpu_ranges_ns"]) == (1, 1, 55_000)
    assert (inner["count"], inner["cpu_ns_mean"], inner["kernels"]) == (2, 20_000, 2)
    only = ask_trace(trace, "annotation_breakdown", match="^inn").to_pylist()
    assert [r["name"] for r in only] == ["inner"]
    assert only[0]["device_ns"] == 30_000


def test_ranges_that_overlap_without_nesting_hold_what_was_launched_in_each(tmp_path: Path) -> None:
    events = [span("X", 0, 100), span("Y", 50, 100), span("in both", 60, 30)]
    for k, ts in enumerate((20, 70, 120), start=1):
        events += [launch(k, ts), kernel(f"k{k}", 200 * k, k, k)]
    trace = open_trace(write(tmp_path / "t.json", *events, **of_rank(0)), OpenOptions(cache=False))
    found = {r["name"]: r for r in ask_trace(trace, "annotation_breakdown").to_pylist()}
    assert {name: row["device_ns"] for name, row in found.items()} == {
        "X": 3_000,
        "Y": 5_000,
        "in both": 2_000,
    }
    chosen = ask_trace(trace.sel(annotation="X"), "kernel_top").to_pylist()
    assert {row["name"] for row in chosen} == {"k1", "k2"}
