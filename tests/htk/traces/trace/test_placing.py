"""A file that was cut before its base time is put beside the other ranks'."""

from pathlib import Path

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.doctor import check_recording
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

NOW = 1_763_000_000_000_000_000


def events(late: float, steps: tuple[int, ...] = (3, 4)) -> list[Event]:
    made: list[Event] = []
    for k in steps:
        at = 1000 * k + late
        made += [
            step(k, at, 1000),
            op("aten::mm", at + 10, 50),
            launch(k, at + 20),
            kernel("gemm", at + 30, 400, k),
        ]
    return made


def opened(folder: Path, *, steps: tuple[int, ...] = (3, 4)) -> Trace:
    write(folder / "rank0.json", *events(0), **of_rank(0, 2, NOW))
    whole = write(folder / "rank1.json", *events(7_000_000, steps))
    whole.write_text(whole.read_text()[:-2] + ', {"ph": "X", "ts":')  # cut before the header's end
    return open_trace(folder, OpenOptions(cache=False))


def test_common_steps_tell_where_it_belongs(tmp_path: Path) -> None:
    trace = opened(tmp_path)
    starts = {r["rank"]: r["start_ns"] for r in trace.tables["ranks"].to_pylist()}
    assert starts == {0: NOW + 3_000_000, 1: NOW + 3_000_000}
    kernels = trace.tables["kernels"].to_pylist()
    assert {(k["rank"], k["start_ns"] - NOW) for k in kernels} == {
        (rank, 1_000_000 * k + 30_000) for rank in (0, 1) for k in (3, 4)
    }
    assert ask_trace(trace, "time_breakdown").coverage["issues"] == {
        "truncated": 1,
        "no_base_time": 1,
    }


def test_without_common_marks_it_is_said_to_be_unplaced(tmp_path: Path) -> None:
    trace = opened(tmp_path, steps=(8, 9))
    rows = check_recording(trace).to_pylist()
    clock = next(r for r in rows if r["item"] == "first events")
    assert clock["state"] == "warning" and "apart" in clock["advice"]
    lost = next(r for r in rows if r["item"] == "no_base_time")
    assert "cannot be compared" in lost["finding"]
