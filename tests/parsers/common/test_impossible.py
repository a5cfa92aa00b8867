"""What cannot be: named with its count, mended where the truth can be told; nothing else moves."""

import copy
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.answers.ask import ask_trace
from htk.base.errors import MalformedTrace
from htk.parsers.common.host_order import are_inner_steps
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import reach_verdict
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write
from tests.thinned import thinned

GPU = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "hip_runtime", "cuda_driver")
WHOLE = (
    "tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz",
    "tracelens/mi300/Falconsai_nsfw_image_detection__1016002.json.gz",
    "dlrm_8rank/worker3_step_12.1694128201557.pt.trace.json.gz",
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
    assert min(trace.tables["kernels"]["start_ns"].to_pylist()) == 5_000  # as its launch


def test_a_file_merged_with_itself_counts_once(tmp_path: Path) -> None:
    sane = of_events(tmp_path, work(), "sane.json")
    twice = of_events(tmp_path, work() + work(), "twice.json")
    assert issues(twice) == {"repeated_activity": 8, "repeated_call": 8}
    for question in QUESTIONS:
        assert ask_trace(twice, question).to_pylist() == ask_trace(sane, question).to_pylist()


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
        ask_trace(trace, question)
    assert reach_verdict(trace).headline.endswith(
        f"damaged: {len(events) - 10} stray times left out"
    )


def test_a_host_that_is_recorded_twice_counts_once(tmp_path: Path) -> None:
    host = [event for event in work() if event["cat"] not in GPU]
    sane = of_events(tmp_path, work(), "sane.json")
    twice = of_events(tmp_path, work() + host, "twice.json")
    assert issues(twice) == {"repeated_call": 8}
    for question in QUESTIONS:
        assert ask_trace(twice, question).to_pylist() == ask_trace(sane, question).to_pylist()


def many() -> list[Event]:
    """Work of 40 operators, each of which launches one kernel, in two callers."""
    made: list[Event] = [op("outer", 0, 1990), op("outer", 2000, 1990)]
    for k in range(40):
        at = 100 * k + 5
        made += [op("aten::mm", at, 40), launch(k + 1, at + 5), kernel("gemm", at + 50, 30, k + 1)]
    return made


def test_an_operator_that_outlasts_all_else_ends_with_its_caller(tmp_path: Path) -> None:
    events = many()
    events[8]["dur"] = 9e6  # the third operator; its caller ends at 1990
    trace = of_events(tmp_path, events)
    assert issues(trace) == {"long_call": 1}
    ends = {row["start_ns"]: row["end_ns"] for row in trace.tables["cpu_ops"].to_pylist()}
    assert ends[205_000] == 1_990_000
    assert max(trace.tables["events"]["end_ns"].to_pylist()) == 3_990_000


def test_a_long_last_kernel_is_kept_unless_a_call_saw_its_end(tmp_path: Path) -> None:
    """A kernel of 5 s, recorded to its end by a profiler that waited for it outside."""
    long = [launch(98, 3990), kernel("scan", 4000, 5e6, 98)]
    wait = {**launch(99, 4010, 90), "name": "cudaDeviceSynchronize"}
    trace = of_events(tmp_path, [*many(), *long], "true.json")
    assert issues(trace) == {"outlasting": 1}
    assert max(trace.tables["kernels"]["end_ns"].to_pylist()) == 5_004_000_000
    assert (
        ask_trace(trace, "time_breakdown").to_pylist()[0]["busy_ns"] == 5_000_000_000 + 40 * 30_000
    )
    trace = of_events(tmp_path, [*many(), *long, wait], "cut.json")
    assert issues(trace) == {"endless": 1}
    assert max(trace.tables["kernels"]["end_ns"].to_pylist()) == 4_100_000


def test_overruns_are_kept_if_asked_and_both_ways_are_told(tmp_path: Path) -> None:
    events = work()
    events[6]["dur"] = 1030  # from 150 on, over six that follow: 0.98 ms too long
    path = write(tmp_path / "t.json", *events, **of_rank(0))
    for keeps, kind, busy_ns, fate in (
        (False, "overrun", 310_000, "cut at the next of its stream"),
        (True, "overrun_kept", 1_060_000, "kept"),
    ):
        for options in ({"cache": False}, {"cache": False, "confined": True}, {}):
            trace = open_trace(path, OpenOptions(keep_overruns=keeps, **options))
            answer = ask_trace(trace, "time_breakdown")
            assert answer.to_pylist()[0]["busy_ns"] == busy_ns
            assert answer.coverage["issues"] == {kind: 1}
        assert reach_verdict(trace).headline.endswith(f"damaged: 1 overlong GPU event {fate}")


def test_a_step_that_goes_on_in_the_next_is_cut(tmp_path: Path) -> None:
    marked = [(1, 0, 5000), (2, 400, 5000), (3, 800, 200)]
    trace = of_events(tmp_path, [*work()[1:], *(step(*at) for at in marked)])
    assert issues(trace) == {"long_step": 1, "inner_step": 1}


def test_what_many_operators_outlast_is_the_operator_that_called_them(tmp_path: Path) -> None:
    """One too long seems to hold what follows its caller, which must not be cut for that."""
    events = many()
    for number in (2, 5, 11):  # the first, second and fourth inner operators
        events[number]["dur"] = 3e6
    trace = of_events(tmp_path, events)
    assert issues(trace) == {"long_call": 3}
    ends = {row["start_ns"]: row["end_ns"] for row in trace.tables["cpu_ops"].to_pylist()}
    assert (ends[5_000], ends[105_000], ends[305_000]) == (1_990_000,) * 3
    assert ends[205_000] == 245_000


def test_two_that_end_together_vouch_for_each_other(tmp_path: Path) -> None:
    """A kernel of many seconds, and the call that waits for it."""
    wait = {**launch(99, 4000, 9e6), "name": "cudaDeviceSynchronize"}
    assert issues(of_events(tmp_path, [*many(), launch(98, 3990), wait])) == {}


def test_a_lone_event_long_after_all_else_is_left_out(tmp_path: Path) -> None:
    trace = of_events(tmp_path, [*many(), op("aten::add", 3.6e9, 5)])
    assert issues(trace) == {"stray_time": 1}
    assert max(trace.tables["cpu_ops"]["end_ns"].to_pylist()) == 3_990_000


def test_ids_used_anew_move_no_clock(tmp_path: Path) -> None:
    """Kernels from before the recording, with ids that its calls have too."""
    again = [launch(k, 900 + 10 * k) for k in range(1, 9)]
    assert issues(of_events(tmp_path, [*work(), *again])) == {}


def identified(events: list[Event], later: int = 0) -> list[Event]:
    """Give operators ids and kernels the id of their operator, or of one so much later."""
    for k, event in enumerate(e for e in events if e["name"] == "aten::mm"):
        event["args"] |= {"External id": k + 1, "Input Dims": [[64, 1 << 20], [1 << 20, 64]]}
    for k, event in enumerate(e for e in events if e["cat"] == "kernel"):
        event["args"]["External id"] = k + 1 + later
    return events


def test_ids_that_name_operators_which_begin_later(tmp_path: Path) -> None:
    """Only without launches: those tell it better."""
    launched = of_events(tmp_path, identified(work(), later=2), "launched.json")
    assert issues(launched) == {}
    alone = [event for event in identified(work(), later=2) if event["cat"] not in CALLS]
    trace = of_events(tmp_path, alone, "alone.json")
    assert issues(trace) == {"later_operator": 6}
    assert trace.tables["kernel_links"]["op_row"].null_count == 8


def test_products_beyond_the_peak(tmp_path: Path) -> None:
    """8.6 GFLOP in 30 us are 286 TFLOP/s, which an H100 can do and a V100 cannot."""
    gpus = {"NVIDIA H100 80GB HBM3": {}, "Tesla V100-SXM2-16GB": {"impossible_product": 8}}
    for name, found in gpus.items():
        header = {**of_rank(0), "deviceProperties": [{"id": 0, "name": name}]}
        assert issues(opened(write(tmp_path / "t.json", *identified(work()), **header))) == found


def test_lost_halves_are_named_from_a_twentieth_on(tmp_path: Path) -> None:
    kernels, calls = (
        [e for e in many() if e["cat"] not in dropped] for dropped in (CALLS, ("kernel",))
    )
    by_call = {e["args"]["correlation"]: e for e in many() if e["cat"] in CALLS}
    by_kernel = {e["args"]["correlation"]: e for e in many() if e["cat"] == "kernel"}
    few = [k for k in range(1, 41) if k % 3]  # 27 of 40, the first and the last among them
    assert issues(of_events(tmp_path, [*kernels, *(by_call[k] for k in few)], "a.json")) == {
        "lost_launch": 13
    }
    assert issues(of_events(tmp_path, [*calls, *(by_kernel[k] for k in few)], "b.json")) == {
        "lost_activity": 13
    }
    edge = [*calls, *(by_kernel[k] for k in range(10, 30))]  # recording began late, ended early
    assert issues(of_events(tmp_path, edge, "c.json")) == {}


def test_what_a_capture_keeps_is_not_lost(tmp_path: Path) -> None:
    begin, end = (
        {**launch(0, at), "name": f"cudaStream{what}Capture"}
        for at, what in ((1000, "Begin"), (3000, "End"))
    )
    events = [e for e in many() if e["cat"] != "kernel" or not 1000 < e["ts"] < 3050]
    assert issues(of_events(tmp_path, events, "lost.json")) == {"lost_activity": 20}
    assert issues(of_events(tmp_path, [*events, begin, end])) == {}


def test_strict_refuses_what_cannot_be(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", *work(), *work(), **of_rank(0))
    with pytest.raises(MalformedTrace, match="repeated_call"):
        open_trace(path, OpenOptions(cache=False, strict=True))


Mutation = Callable[[list[dict[str, Any]]], int]


def overrun(events: list[dict[str, Any]]) -> int:
    streams: dict[Any, list[dict[str, Any]]] = {}
    for event in of_gpu(events):
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
    events += [copy.deepcopy(e) for e in events if e.get("ph") != "M"]
    return len(of_gpu(events)) // 2


def twice_on_the_host(events: list[dict[str, Any]]) -> int:
    events += [copy.deepcopy(e) for e in events if e.get("ph") == "X" and e["cat"] not in GPU]
    return sum(e.get("cat") in CALLS for e in events) // 2


def endless_kernel(events: list[dict[str, Any]]) -> int:
    of_gpu(events)[-1]["dur"] = 5e6
    return 1


def operators(events: list[dict[str, Any]], are_called: bool) -> list[dict[str, Any]]:
    """Return the operators that others call, or all others, of the busiest thread."""
    threads: dict[Any, list[dict[str, Any]]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            threads.setdefault(event["tid"], []).append(event)
    busiest = sorted(
        max(threads.values(), key=len), key=lambda e: (float(e["ts"]), -float(e["dur"]))
    )
    reach, chosen = -1.0, []
    for event in busiest:
        start = float(event["ts"])
        if (start < reach) == are_called:
            chosen.append(event)
        reach = max(reach, start + float(event["dur"]))
    return chosen


def endless_operator(events: list[dict[str, Any]]) -> int:
    alone = operators(events, are_called=False)
    alone[len(alone) // 2]["dur"] = 100e6
    return 1


def long_operator(events: list[dict[str, Any]]) -> int:
    called = operators(events, are_called=True)
    called[len(called) // 2]["dur"] = 100e6
    return 1


def ahead(events: list[dict[str, Any]]) -> int:
    for event in events:
        if event.get("cat") in (*GPU, "gpu_user_annotation"):
            event["ts"] = float(event["ts"]) + 900_000
    return 0


def late_kernel(events: list[dict[str, Any]]) -> int:
    launched = {e["args"].get("correlation") for e in events if e.get("cat") in CALLS}
    late = next(e for e in of_gpu(events) if e["args"]["correlation"] in launched)
    late["ts"] = float(late["ts"]) + 5e6
    return 1


def early_kernel(events: list[dict[str, Any]]) -> int:
    launched = {e["args"].get("correlation") for e in events if e.get("cat") in CALLS}
    early = [e for e in of_gpu(events) if e["args"]["correlation"] in launched][-1]
    early["ts"] = float(early["ts"]) - 5e6
    return 1


def twice_with_other_ids(events: list[dict[str, Any]]) -> int:
    again = [copy.deepcopy(e) for e in events if e.get("ph") == "X" and float(e["dur"]) > 1]
    for event in again:
        for name in {"correlation", "External id"} & event.get("args", {}).keys():
            event["args"][name] = int(event["args"][name]) + 1_000_000
    events += again
    return 0


def twice_a_little_later(events: list[dict[str, Any]]) -> int:
    again = [copy.deepcopy(e) for e in of_gpu(events) if float(e["dur"]) > 2]
    for event in again:
        event["ts"] = float(event["ts"]) + 1
    events += again
    return len(again)


def without_lengths(events: list[dict[str, Any]]) -> None:
    for event in of_gpu(events)[::3]:
        event["dur"] = 0


def on_one_stream_at_once(events: list[dict[str, Any]]) -> None:
    last = of_gpu(events)[-9:]
    for number, event in enumerate(last):
        event["ts"] = float(last[-1]["ts"]) + 0.01 * number
        event["dur"] = 20.0 + number
        event["args"]["stream"] = event["tid"] = 7


def on_other_gpus(events: list[dict[str, Any]]) -> None:
    for number, event in enumerate(of_gpu(events)):
        event["args"]["context"] = 1
        event["args"]["device"] = event["pid"] = number % 3


def on_other_threads(events: list[dict[str, Any]]) -> None:
    for event in events:
        if event.get("cat") == "cpu_op":
            event["tid"] = 999


def with_ids_of_other_operators(events: list[dict[str, Any]]) -> None:
    operators = [e for e in events if e.get("cat") == "cpu_op" and "External id" in e["args"]]
    ids = [event["args"]["External id"] for event in operators]
    random.Random(1).shuffle(ids)
    for event, number in zip(operators, ids, strict=True):
        event["args"]["External id"] = number


def on_any_gpu(events: list[dict[str, Any]]) -> None:
    """Without contexts, which would tell."""
    draw = random.Random(1)
    for event in of_gpu(events):
        event["args"].pop("context", None)
        event["args"]["device"] = event["pid"] = draw.randrange(2)


def of_other_operators(events: list[dict[str, Any]]) -> None:
    activities = [e for e in of_gpu(events) if "External id" in e["args"]]
    ids = [event["args"]["External id"] for event in activities]
    random.Random(1).shuffle(ids)
    for event, number in zip(activities, ids, strict=True):
        event["args"]["External id"] = number


def without_names(events: list[dict[str, Any]]) -> None:
    for event in of_gpu(events)[::4]:
        event["name"] = ""


def without_kernels(events: list[dict[str, Any]]) -> int:
    events[:] = [e for k, e in enumerate(events) if e.get("cat") not in GPU or k % 3]
    return 0


def without_launches(events: list[dict[str, Any]]) -> int:
    events[:] = [e for k, e in enumerate(events) if e.get("cat") not in CALLS or k % 3]
    return 0


def of_gpu(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((e for e in events if e.get("cat") in GPU), key=lambda e: float(e["ts"]))


MUTATIONS: dict[str, Mutation] = {
    "overrun": overrun,
    "gpu_clock": behind,
    "repeated_activity": twice,
    "repeated_call": twice_on_the_host,
    "endless": endless_kernel,
    "endless ": endless_operator,
    "long_call": long_operator,
    "gpu_clock ": ahead,
    "late_activity": late_kernel,
    "early_activity": early_kernel,
    "repeated_activity ": twice_with_other_ids,
    "repeated_activity  ": twice_a_little_later,
    "lost_activity": without_kernels,
    "lost_launch": without_launches,
}


@pytest.mark.parametrize("name", thinned(WHOLE, 3))
def test_mutated_recordings_are_told_and_answer_as_before(
    shared: Path, tmp_path: Path, name: str
) -> None:
    with gzip.open(shared / "traces" / name) as file:
        whole = file.read()
    sane = opened(shared / "traces" / name)
    assert issues(sane) == {}
    counts, busy_ns, steps = figures(sane)
    for kind, mutate in MUTATIONS.items():
        content = json.loads(whole)
        expected = mutate(content["traceEvents"])
        broken = tmp_path / f"{mutate.__name__}.pt.trace.json"
        broken.write_text(json.dumps(content))
        trace = opened(broken)
        counted = issues(trace)[kind.strip()]
        assert counted == expected or (not expected and counted), mutate
        mended = figures(trace)
        assert mended[2] == steps
        if mutate is not without_kernels:
            assert mended[0] == counts, mutate
            tolerance_ns = 1_000_000 if kind in ("overrun", "endless") else 1_000
            assert abs(mended[1] - busy_ns) < tolerance_ns, mutate


@pytest.mark.parametrize("name", thinned(WHOLE, 3))
def test_mutations_that_nothing_mends_are_named(shared: Path, tmp_path: Path, name: str) -> None:
    with gzip.open(shared / "traces" / name) as file:
        whole = file.read()
    for kind, mutate in {
        "no_length": without_lengths,
        "crowded_stream": on_one_stream_at_once,
        "split_context": on_other_gpus,
        "other_thread": on_other_threads,
        "other_time": with_ids_of_other_operators,
        "other_operator": of_other_operators,
        "no_name": without_names,
    }.items():
        content = json.loads(whole)
        mutate(content["traceEvents"])
        broken = tmp_path / f"{mutate.__name__}.pt.trace.json"
        broken.write_text(json.dumps(content))
        # Its clock tells whole µs, its calls have no ids of operators.
        is_silent = "dlrm" in name and kind in ("no_length", "other_thread", "other_time")
        assert (kind in issues(opened(broken))) != is_silent, mutate


def test_gpus_that_are_mixed_up_wait_for_each_other(shared: Path, tmp_path: Path) -> None:
    name = shared / "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    with gzip.open(name) as file:
        content = json.load(file)
    on_any_gpu(content["traceEvents"])
    (tmp_path / "mixed.pt.trace.json").write_text(json.dumps(content))
    assert issues(opened(tmp_path / "mixed.pt.trace.json"))["mixed_gpus"] > 300


def figures(trace: Trace) -> tuple[dict[str, int], int, list[int]]:
    """Return how often each kernel ran, for how long the GPU was busy, and the steps."""
    counts = {row["name"]: row["count"] for row in ask_trace(trace, "kernel_top", n=0).to_pylist()}
    busy_ns = ask_trace(trace, "time_breakdown").to_pylist()[0]["busy_ns"]
    return counts, busy_ns, ask_trace(trace, "step_times").to_pylist()[0]["step"]


def test_steps_inside_steps_of_other_numbers_are_ranges(tmp_path: Path) -> None:
    marked = [(1, 0, 400), (101, 10, 380), (2, 400, 600), (102, 410, 580)]
    trace = of_events(tmp_path, [*work()[1:], *(step(*at) for at in marked)])
    assert issues(trace) == {"inner_step": 2}
    steps = ask_trace(trace, "step_times").to_pylist()
    assert [(s["cycle"], s["step"], s["cpu_ns"]) for s in steps] == [
        (0, 1, 400_000),
        (0, 2, 600_000),
    ]
    names = {row["name"] for row in trace.tables["annotations"].to_pylist()}
    assert names == {f"ProfilerStep#{number}" for number, _, _ in marked}


def test_one_step_that_two_profilers_mark_is_no_inner_one(tmp_path: Path) -> None:
    marked = [(1, 0, 400), (1, 10, 380), (2, 400, 600)]
    trace = of_events(tmp_path, [*work()[1:], *(step(*at) for at in marked)])
    assert issues(trace) == {}
    assert {s["step"] for s in ask_trace(trace, "step_times").to_pylist()} == {1, 2}


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 12), st.integers(0, 9)), max_size=7))
def test_inner_steps_against_every_pair(spans: list[tuple[int, int, int]]) -> None:
    number, start, length = np.array(spans, np.int64).reshape(-1, 3).T
    end = start + length
    inner = are_inner_steps(number, start, end)
    by_begin = sorted(range(len(spans)), key=lambda row: (start[row], -end[row], row))
    for place, row in enumerate(by_begin):
        holder = max(range(place), key=lambda k: (end[by_begin[k]], k), default=None)
        is_within = holder is not None and end[row] <= end[by_begin[holder]]
        assert inner[row] == (is_within and number[row] != number[by_begin[holder or 0]])


def test_a_recording_that_lost_all_gpu_work_says_so(tmp_path: Path) -> None:
    events = [step(1, 0, 1000)]
    for k in range(12):
        events += [op("aten::mm", 50 * k, 40), launch(k + 1, 50 * k + 5)]
    assert issues(of_events(tmp_path, events)) == {"lost_activity": 12}
    assert issues(of_events(tmp_path, events[:-4], "few.json")) == {"lost_activity": 10}
    assert issues(of_events(tmp_path, events[:-6], "fewer.json")) == {}


def test_metrics_in_place_of_activities_are_no_loss(shared: Path) -> None:
    assert issues(opened(shared / "traces/hta/cupti_profiler")) == {}
