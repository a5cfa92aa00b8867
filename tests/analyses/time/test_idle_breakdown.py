"""Idle time by cause: sums, shares and steps; the causes themselves are tested with idle."""

from pathlib import Path

import pytest

from htk.analyses.time.idle_breakdown import idle_breakdown
from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make

PIECES = make("idle_causes", [
    {"gap_start_ns": 10, "gap_end_ns": 30, "start_ns": 10, "end_ns": 25, "cause": "host_python"},
    {"gap_start_ns": 10, "gap_end_ns": 30, "start_ns": 25, "end_ns": 30, "cause": "launch_latency"},
    {"gap_start_ns": 50, "gap_end_ns": 55, "start_ns": 50, "end_ns": 55, "cause": "launch_latency"},
    {"gap_start_ns": 0, "gap_end_ns": 60, "start_ns": 0, "end_ns": 60, "cause": "unknown",
     "stream": 7},
])  # fmt: skip
WINDOW = make("rank_windows", [{"start_ns": 0, "end_ns": 60, "complete": True}])


def test_causes_of_the_device() -> None:
    found = answer_of(idle_breakdown, idle_causes=PIECES, rank_windows=WINDOW)
    assert [(r["cause"], r["idle_ns"], r["idle_pct"], r["count"]) for r in found] == [
        ("host_python", 15, 60.0, 1),
        ("launch_latency", 10, 40.0, 2),
    ]


def test_causes_of_a_stream() -> None:
    (row,) = answer_of(
        idle_breakdown, idle_causes=PIECES, rank_windows=WINDOW, options={"by": "stream"}
    )
    assert (row["stream"], row["cause"], row["idle_ns"]) == (7, "unknown", 60)


def test_steps_cut_gaps() -> None:
    steps = make("step_windows", [
        {"step": 1, "start_ns": 0, "end_ns": 20, "complete": True},
        {"step": 2, "start_ns": 20, "end_ns": 60, "complete": False},
    ])  # fmt: skip
    found = answer_of(
        idle_breakdown, idle_causes=PIECES, step_windows=steps, options={"per": "step"}
    )
    assert [(r["step"], r["cause"], r["idle_ns"], r["complete"]) for r in found] == [
        (1, "host_python", 10, True),
        (2, "launch_latency", 10, False),
        (2, "host_python", 5, False),
    ]


def test_hta_has_no_steps() -> None:
    with pytest.raises(UsageError, match="per rank"):
        answer_of(idle_breakdown, options={"per": "step", "compat": "hta"})


@pytest.mark.parametrize(
    ("part", "per"),
    [
        ("dlrm_8rank", "rank"),
        ("dlrm_8rank", "step"),
        ("hta/nccl_parser_config", "rank"),
        ("hta/nccl_parser_config", "step"),
        ("tracelens/b200", "rank"),  # it has no steps
    ],
)
def test_causes_add_up_to_the_idle_time(shared: Path, part: str, per: str) -> None:
    trace = open_trace(shared / "traces" / part)
    idle: dict[tuple[int, int | None], int] = {}
    for row in ask_trace(trace, "idle_breakdown", per=per).to_pylist():
        key = row["rank"], row["step"]
        idle[key] = idle.get(key, 0) + row["idle_ns"]
    times = ask_trace(trace, "time_breakdown", per=per).to_pylist()
    assert idle == {(r["rank"], r["step"]): r["idle_ns"] for r in times if r["idle_ns"]}


def test_a_copy_that_blocks_on_unrecorded_work(shared: Path) -> None:
    """463 of 464 idle milliseconds of this trace lie in one blocking copy."""
    folder = shared / "traces/tracelens/inference/sglang_decode"
    trace = open_trace(folder / "sglang_Qwen3-8B_decode.json.gz")
    first = ask_trace(trace, "idle_breakdown").to_pylist()[0]
    assert first["cause"] == "unrecorded_gpu_work_suspected"
    assert first["idle_ns"] // 10**6 == 463
