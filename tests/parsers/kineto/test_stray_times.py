"""Times that cannot be: they are counted as damage and move no number of the others."""

from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from tests.kineto_file import Event, kernel, launch, of_rank, op, write

NOW = 1_763_000_000_000_000_000
ZERO = -NOW / 1000  # µs from the base time: 1970


def opened(path: Path) -> Trace:
    return open_trace(path, OpenOptions(cache=False))


def work() -> list[Event]:
    made: list[Event] = []
    for thread in range(1, 9):
        for k in range(6):
            at = 100 * k + thread
            number = 10 * thread + k
            made += [
                op("aten::mm", at, 40, thread),
                launch(number, at + 5, 2, thread),
                kernel("gemm", at + 10, 20, number, 7 + thread % 3),
            ]
    return made


@pytest.mark.parametrize(
    "stray",
    [
        op("aten::stray", ZERO, 5),
        launch(99, ZERO),
        kernel("stray", ZERO, 5, 99),
        op("aten::stray", 9e15 - NOW / 1000, 5),
        op("aten::stray", 2e12, 5),  # three weeks later
        op("aten::stray", 2.0**61 / 1000, 5),  # beyond what is read
    ],
    ids=["operator", "call", "kernel", "boot", "later", "far"],
)
@pytest.mark.parametrize(
    "question", ["op_breakdown", "time_breakdown", "launch_stats", "phase_breakdown", "kernel_top"]
)
def test_a_stray_moves_no_number(tmp_path: Path, question: str, stray: Event) -> None:
    sane = opened(write(tmp_path / "sane.json", *work(), **of_rank(0, base=NOW)))
    other = opened(write(tmp_path / "stray.json", *work(), stray, **of_rank(0, base=NOW)))
    answer = ask_trace(other, question)
    assert rows(answer) == rows(ask_trace(sane, question))
    assert answer.coverage["issues"] == {"stray_time": 1}


def test_two_recordings_weeks_apart_in_one_file_are_no_strays(tmp_path: Path) -> None:
    later = [{**event, "ts": event["ts"] + 2e12} for event in work()]
    trace = opened(write(tmp_path / "two.json", *work(), *later, **of_rank(0, base=NOW)))
    assert trace.tables["cpu_ops"].num_rows == 96
    assert not trace.tables["parse_issues"].num_rows


def test_metadata_is_of_no_time_and_no_stray(tmp_path: Path) -> None:
    name = {"ph": "M", "name": "process_name", "pid": 1, "ts": ZERO, "args": {"name": "python"}}
    trace = opened(write(tmp_path / "named.json", name, *work(), **of_rank(0, base=NOW)))
    assert not trace.tables["parse_issues"].num_rows


def test_an_event_without_duration_is_counted(tmp_path: Path) -> None:
    bare = op("aten::cut", 700, 0)
    del bare["dur"]
    trace = opened(write(tmp_path / "bare.json", *work(), bare, **of_rank(0, base=NOW)))
    assert ask_trace(trace, "op_breakdown").coverage["issues"] == {"no_duration": 1}


def rows(answer: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = answer.to_pylist()
    return listed
