"""What cannot be: named with its count, mended where the truth can be told; nothing else moves."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import verdict
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write

GPU = ("kernel", "gpu_memcpy", "gpu_memset")
WHOLE = (
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/mi300/Falconsai_nsfw_image_detection__1016002.json.gz",
    "tracelens/b200/eager_trace.json.gz",
)
QUESTIONS = ("time_breakdown", "kernel_top", "op_breakdown", "launch_stats")


def opened(path: Path) -> Trace:
    return open_trace(path, OpenOptions(cache=False))


def issues(trace: Trace) -> dict[str, int]:
    return {row["kind"]: row["count"] for row in trace.tables["parse_issues"].to_pylist()}


def work() -> list[Event]:
    made: list[Event] = [step(1, 0, 1000)]
    for k in range(8):
        at = 100 * k
        made += [op("aten::mm", at, 40), launch(k + 1, at + 5), kernel("gemm", at + 50, 30, k + 1)]
    return made


def of_events(tmp_path: Path, events: list[Event], name: str = "t.json") -> Trace:
    return opened(write(tmp_path / name, *events, **of_rank(0)))


def test_what_lasts_over_its_successors_is_cut_where_the_next_begins(tmp_path: Path) -> None:
    events = work()
    events[6]["dur"] = 1030  # the second kernel, a millisecond too long: to 1180, not 180
    trace = of_events(tmp_path, events)
    assert issues(trace) == {"overrun": 1}
    kernels = trace.tables["kernels"].sort_by("start_ns").to_pylist()
    assert [k["end_ns"] - k["start_ns"] for k in kernels[:3]] == [30_000, 100_000, 30_000]


def test_a_kernel_may_begin_before_the_one_before_it_ends(tmp_path: Path) -> None:
    """Programmatic dependent launch: the successor begins early, and ends late."""
    events = work()
    events[6]["dur"] = 110
    assert issues(of_events(tmp_path, events)) == {}


def test_activities_of_no_length_may_be_alike(tmp_path: Path) -> None:
    """A graph of two kernels that last less than the clock tells."""
    alike = kernel("gemm", 60, 0, 1)
    trace = of_events(tmp_path, [step(1, 0, 100), launch(1, 5), alike, copy.deepcopy(alike)])
    assert issues(trace) == {}
    assert trace.tables["kernels"].num_rows == 2


def test_kernels_of_other_streams_and_of_graphs_run_beside_each_other(tmp_path: Path) -> None:
    events = [*work(), kernel("long", 60, 500, 99, stream=9)]
    graph = {"graph id": 3, "graph node id": 1}
    for name, start, length in (("whole", 1000, 100), ("within", 1010, 20)):
        of_graph = kernel(name, start, length, 7)
        events.append({**of_graph, "args": {**of_graph["args"], **graph}})
    assert issues(of_events(tmp_path, events)) == {}


def test_a_gpu_clock_that_is_behind_moves_to_its_launches(tmp_path: Path) -> None:
    events = [{**e, "ts": e["ts"] - 300} if e["cat"] in GPU else e for e in work()]
    trace = of_events(tmp_path, events)
    assert issues(trace) == {"gpu_clock": 8}
    starts = sorted(trace.tables["kernels"]["start_ns"].to_pylist())
    launches = sorted(trace.tables["launches"]["start_ns"].to_pylist())
    assert starts == launches  # the least that makes them possible


def test_one_early_activity_is_no_clock(tmp_path: Path) -> None:
    events = [*work()]
    for k in range(8, 80):
        at = 100 * k
        events += [launch(k + 1, at), kernel("gemm", at + 50, 30, k + 1)]
    events[3]["ts"] = -20
    trace = of_events(tmp_path, events)
    assert issues(trace) == {"early_activity": 1}
    assert min(trace.tables["kernels"]["start_ns"].to_pylist()) == -20_000


def test_a_file_merged_with_itself_counts_once(tmp_path: Path) -> None:
    sane = of_events(tmp_path, work(), "sane.json")
    twice = of_events(tmp_path, work() + work(), "twice.json")
    assert issues(twice) == {"repeated_activity": 8}
    for question in QUESTIONS:
        assert ask(twice, question).to_pylist() == ask(sane, question).to_pylist()


def test_two_equal_activities_of_two_launches_are_two(tmp_path: Path) -> None:
    events = [*work(), launch(90, 900), launch(91, 902)]
    events += [kernel("tiny", 950, 0, 90), kernel("tiny", 950, 0, 91)]
    trace = of_events(tmp_path, events)
    assert (issues(trace), trace.tables["kernels"].num_rows) == ({}, 10)


def test_what_begins_an_hour_after_its_launch_is_left_out(tmp_path: Path) -> None:
    trace = of_events(tmp_path, [*work(), launch(90, 900), kernel("late", 3.6e9, 5, 90)])
    assert issues(trace) == {"far_activity": 1}
    assert trace.tables["kernels"].num_rows == 8


def test_a_copy_that_no_link_can_do(tmp_path: Path) -> None:
    copies = []
    for number, start, size in ((90, 900, 4 << 30), (91, 950, 1 << 20)):
        event = kernel("Memcpy HtoD (Pinned -> Device)", start, 40, number)
        event = {**event, "cat": "gpu_memcpy", "args": {**event["args"], "bytes": size}}
        copies += [launch(number, start - 10), event]
    assert issues(of_events(tmp_path, [*work(), *copies])) == {"impossible_copy": 1}


def test_events_without_a_time_are_left_out_and_said_first(tmp_path: Path) -> None:
    """Half of the stamps are zero, as some profilers of 2026 write them."""
    base = 1_763_000_000_000_000_000
    events = [{**e, "ts": e["ts"] + 1e13} for e in work()]
    for event in events[10:]:
        event["ts"] = event["dur"] = 0.0
    trace = opened(write(tmp_path / "t.json", *events, **of_rank(0, base=base)))
    assert issues(trace) == {"stray_time": len(events) - 10}
    for question in QUESTIONS:
        ask(trace, question)
    assert verdict(trace).headline.endswith(f"damaged: {len(events) - 10} stray times left out")


Mutation = Callable[[list[dict[str, Any]]], int]


def overrun(events: list[dict[str, Any]]) -> int:
    streams: dict[Any, list[dict[str, Any]]] = {}
    for event in sorted((e for e in events if e.get("cat") in GPU), key=lambda e: float(e["ts"])):
        streams.setdefault(event["args"]["stream"], []).append(event)
    longest = max(streams.values(), key=len)
    third = len(longest) // 3
    for event, following in zip(longest[third:], longest[third + 1 : third + 6], strict=False):
        event["dur"] = 1_000_000 + float(following["ts"]) - float(event["ts"])
    return 5


def behind(events: list[dict[str, Any]]) -> int:
    for event in events:
        if event.get("cat") in (*GPU, "gpu_user_annotation"):
            event["ts"] = float(event["ts"]) - 900_000
    return 0


def twice(events: list[dict[str, Any]]) -> int:
    of_gpu = sum(e.get("cat") in GPU for e in events)
    events += [copy.deepcopy(e) for e in events if e.get("ph") != "M"]
    return of_gpu


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(
    ("mutate", "kind"),
    [(overrun, "overrun"), (behind, "gpu_clock"), (twice, "repeated_activity")],
    ids=["overrun", "behind", "twice"],
)
def test_a_mutated_recording_is_told_and_answers_as_before(
    shared: Path, tmp_path: Path, name: str, mutate: Mutation, kind: str
) -> None:
    source = shared / "traces" / name
    with gzip.open(source) as file:
        content = json.load(file)
    expected = mutate(content["traceEvents"])
    broken = tmp_path / "broken.pt.trace.json"
    broken.write_text(json.dumps(content))
    sane, trace = opened(source), opened(broken)
    assert not set(issues(sane)) & {"overrun", "gpu_clock", "repeated_activity"}
    counted = issues(trace)[kind]
    assert counted == expected or (not expected and counted)
    before, after = (ask(t, "kernel_top").to_pylist() for t in (sane, trace))
    counts = [{row["name"]: row["count"] for row in rows} for rows in (before, after)]
    assert counts[1] == counts[0]
    busy = [ask(t, "time_breakdown").to_pylist()[0]["busy_ns"] for t in (sane, trace)]
    tolerance_ns = 1_000_000 if kind == "overrun" else 1_000
    assert abs(busy[1] - busy[0]) < tolerance_ns
