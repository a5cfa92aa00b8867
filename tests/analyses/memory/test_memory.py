"""Memory over time and at its peak, on events that can be added up by hand."""

import random
from pathlib import Path

import pytest

from htk.analyses.memory.memory_peaks import memory_peaks
from htk.analyses.memory.memory_timeline import memory_timeline
from htk.answers.ask import ask_trace
from htk.traces.trace.opening import open_trace
from tests.memory_events import event
from tests.tables import answer_of, make

# 30 were there before; a is freed and its address used again before the peak of 150.
EVENTS = [
    event(10, "a", 50, 80),
    event(20, "a", -50, 30),
    event(30, "a", 40, 70),
    event(40, "b", 80, 150),
    event(50, "b", -80, 70, 120),
    event(60, "c", 10, 80),
]


OPS = [
    {"name": "outer", "process": "1", "thread": "1", "start_ns": 0, "end_ns": 100},
    {"name": "inner", "process": "1", "thread": "1", "start_ns": 35, "end_ns": 45},
    {"name": "elsewhere", "process": "1", "thread": "2", "start_ns": 0, "end_ns": 100},
]


def test_peak_and_who_holds_it() -> None:
    failed = event(70, "", 999, 0) | {"name": "[OutOfMemory]"}
    rows = answer_of(
        memory_peaks, memory=make("memory", [*EVENTS, failed]), cpu_ops=make("cpu_ops", OPS)
    )
    held = [(r["holder"], r["held_bytes"], r["blocks"]) for r in rows]
    before = ("(allocated before the recording)", 30, None)
    assert held == [("inner", 80, 1), ("outer", 40, 1), before]
    assert {(r["peak_ns"], r["peak_bytes"], r["reserved_bytes"], r["failed"]) for r in rows} == {
        (40, 150, 200, 1)
    }
    assert rows[0]["unused_pct"] == pytest.approx(25)
    rows = answer_of(memory_peaks, memory=make("memory", EVENTS), options={"n": 1})
    assert [(r["holder"], r["held_bytes"]) for r in rows] == [
        ("(outside operators)", 120),
        before[:2],
    ]


def test_what_a_cpu_reserves_is_not_recorded() -> None:
    """Profilers write 0 for it; a GPU that holds nothing yet reserves 0."""
    on_cpu = [{**event(k, "a", 10, 10 * k, 0), "device_type": 0} for k in (1, 2)]
    on_gpu = [event(1, "b", 10, 10, 0), event(2, "c", 90, 100, 150)]
    memory = make("memory", [*on_cpu, *on_gpu])
    rows = answer_of(memory_timeline, memory=memory)
    assert [(r["device_kind"], r["time_ns"], r["reserved_bytes"]) for r in rows] == [
        ("cpu", 1, None),
        ("cpu", 2, None),
        ("gpu", 1, 0),
        ("gpu", 2, 150),
    ]
    peaks = answer_of(memory_peaks, memory=memory)
    columns = ("device_kind", "reserved_bytes_max", "unused_pct")
    assert {tuple(r[c] for c in columns) for r in peaks} == {
        ("cpu", None, None),
        ("gpu", 150, 100 * 50 / 150),
    }


def test_slices_keep_the_highest_point() -> None:
    memory = make("memory", EVENTS)
    rows = answer_of(memory_timeline, memory=memory, options={"slices": 2})
    assert [(r["time_ns"], r["allocated_bytes"], r["events"]) for r in rows] == [
        (10, 80, 1),
        (30, 70, 2),
        (40, 150, 1),
        (60, 80, 2),
    ]
    peak, last = answer_of(memory_timeline, memory=memory, options={"slices": 1})
    assert (peak["device_kind"], peak["allocated_bytes"]) == ("gpu", 150)
    assert (last["time_ns"], last["allocated_bytes"], last["events"]) == (60, 80, 2)


def test_what_is_held_between_bursts_is_no_plateau_of_their_peak() -> None:
    """Bursts of 100 steps, then long silence: drawn as steps, the silence is as it was."""
    rows, total, time = [], 0, 0
    draw = random.Random(4)
    for burst in range(7):
        time = 1_000_000 * burst
        for _ in range(100):
            size = draw.randrange(1, 500) if total < 3000 else -draw.randrange(1, 2900)
            total, time = total + size, time + draw.randrange(1, 90)
            rows += [event(time, f"x{len(rows)}", size, total) | {"rank": rank} for rank in (0, 3)]
    for row in rows:  # rank 3 holds more, and its bursts come later
        if row["rank"] == 3:
            row["allocated_bytes"] += 10_000
            row["time_ns"] += 77
    memory = make("memory", rows)
    drawn = answer_of(memory_timeline, memory=memory, options={"slices": 60})
    for rank in (0, 3):
        raw = [(r["time_ns"], r["allocated_bytes"]) for r in rows if r["rank"] == rank]
        line = [(r["time_ns"], r["allocated_bytes"]) for r in drawn if r["rank"] == rank]
        assert set(line) <= set(raw) and line == sorted(line)
        assert max(v for _, v in line) == max(v for _, v in raw)
        for burst in range(6):
            silence = 1_000_000 * burst + 500_000
            assert held(line, silence) == held(raw, silence)
        assert sum(r["events"] for r in drawn if r["rank"] == rank) == len(raw)


def held(points: list[tuple[int, int]], time: int) -> int:
    """What steps through the points hold at a time."""
    return [value for moment, value in points if moment <= time][-1]


def test_no_event_but_a_failure() -> None:
    failed = event(70, "", 999, 0) | {"name": "[OutOfMemory]"}
    assert answer_of(memory_peaks, memory=make("memory", [failed])) == []
    assert answer_of(memory_timeline, memory=make("memory", [failed])) == []


def test_peak_of_a_real_trace_is_its_largest_total(shared: Path) -> None:
    trace = open_trace(
        str(shared / "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz")
    )
    rows = [
        r for r in ask_trace(trace, "memory_peaks").table.to_pylist() if r["device_kind"] == "gpu"
    ]
    memory = trace.tables["memory"].to_pylist()
    assert {r["peak_bytes"] for r in rows} == {
        max(m["allocated_bytes"] for m in memory if m["device_type"] == 1)
    }
    assert sum(r["held_bytes"] for r in rows) == rows[0]["peak_bytes"]
