"""Why a GPU is idle: each cause by hand, and all of them against a twin that asks every instant."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.derived.idle import _gaps_in, _mark_after
from htk.quantities.derived.registry import NAMES, find_maker
from tests.tables import make

UNIT = 20_000  # ns; a launch may take 1.5 of them, a call may block for 10


class Call(NamedTuple):
    """A call of the main thread; `ran` is what it launched: stream, start, end."""

    name: str
    start: float
    end: float
    ran: tuple[int, float, float] | None = None


def ns(units: float) -> int:
    return round(units * UNIT)


def span(name: str, start: float, end: float) -> dict[str, Any]:
    thread = {"process": "1", "thread": "1"}
    return {"name": name, "start_ns": ns(start), "end_ns": ns(end), **thread}


def derived(name: str, tables: dict[str, Any]) -> Any:
    """What the makers make of these tables; those not given are empty."""
    reads = [
        tables[read]
        if read in tables
        else derived(read, tables)
        if read in NAMES
        else make(read, [])
        for read in find_maker(name).reads
    ]
    return find_maker(name).function(*reads)


def causes(
    calls: list[Call],
    ops: tuple[tuple[str, float, float], ...] = (("aten::first", -1.0, -0.5),),
    overheads: tuple[tuple[str, float, float], ...] = (),
    annotations: tuple[tuple[str, float, float], ...] = (),
    stream: int | None = None,
) -> list[tuple[str, float, float]]:
    """Cause, start and end of each piece of idle time, in units."""
    launches = make("launches", [
        span(c.name, c.start, c.end) | {"correlation": k} for k, c in enumerate(calls, 1)
    ])  # fmt: skip
    kernels = make("kernels", [
        {"event": 100 + k, "name": "k", "stream": c.ran[0], "correlation": k,
         "start_ns": ns(c.ran[1]), "end_ns": ns(c.ran[2])}
        for k, c in enumerate(calls, 1) if c.ran
    ])  # fmt: skip
    found = derived("idle_causes", {
        "launches": launches,
        "kernels": kernels,
        "cpu_ops": make("cpu_ops", [span(*o) for o in ops]),
        "annotations": make("annotations", [span(*a) | {"on_gpu": False} for a in annotations]),
        "overheads": make("overheads", [span(*o) for o in overheads]),
    })  # fmt: skip
    return [
        (r["cause"], r["start_ns"] / UNIT, r["end_ns"] / UNIT)
        for r in found.to_pylist()
        if r["stream"] == stream
    ]


LAUNCH = "cudaLaunchKernel"
FIRST = Call(LAUNCH, 0, 0.2, (7, 0, 2))  # the GPU is busy until 2


def second(start: float, begins: float, name: str = LAUNCH) -> Call:
    return Call(name, start, start + 0.2, (7, begins, begins + 1))


def test_latency_is_from_launch_to_start() -> None:
    assert causes([FIRST, second(1, 2.5)]) == [("launch_latency", 2, 2.5)]
    assert causes([FIRST, second(0.5, 2.5)]) == [("between_queued_kernels", 2, 2.5)]
    other = Call(LAUNCH, 0.5, 0.6, (8, 2.5, 3))  # on a stream that stood empty
    assert causes([FIRST, other]) == [("unknown", 2, 2.5)]


def test_an_instant_as_the_gpu_runs_dry_does_not_part_two_kernels_of_a_stream() -> None:
    """As in whole microseconds a small copy on another stream looks."""
    instant = Call(LAUNCH, 0.2, 0.3, (8, 2, 2))
    queued = [("between_queued_kernels", 2, 2.5)]
    assert causes([FIRST, instant, second(0.5, 2.5)]) == queued


def test_gaps_inside_a_graph_are_no_launch_latency() -> None:
    launch = {"process": "1", "thread": "1", "correlation": 1, "name": "cudaGraphLaunch"}
    found = derived("idle_causes", {
        "launches": make("launches", [launch | {"start_ns": 0, "end_ns": 9_000}]),
        "kernels": make("kernels", [
            {"stream": s, "start_ns": a, "end_ns": b, "correlation": 1}
            for s, a, b in ((7, 10_000, 20_000), (8, 25_000, 30_000), (7, 80_000, 90_000))
        ]),
    }).to_pylist()  # fmt: skip
    by_device = [(r["cause"], r["start_ns"], r["end_ns"]) for r in found if r["stream"] is None]
    assert by_device == [
        ("inside_cuda_graph", 20_000, 25_000),
        ("inside_cuda_graph", 30_000, 80_000),
    ]


def test_a_slow_launch_outside_of_operators_is_the_call_s_own_time() -> None:
    slow = Call(LAUNCH, 3, 8, (7, 8.5, 9))
    found = causes([FIRST, slow])
    assert found == [
        ("host_python", 2, 3),
        ("host_runtime_call", 3, 8),
        ("launch_latency", 8, 8.5),
    ]
    within = causes([FIRST, slow], ops=(("aten::mm", 2, 9),))
    assert within == [("host_operator", 2, 8), ("launch_latency", 8, 8.5)]


def test_the_host_was_late_in_an_operator_then_in_python() -> None:
    found = causes([FIRST, second(7, 8)], ops=(("aten::mm", 1, 4),))
    assert found == [("host_operator", 2, 4), ("host_python", 4, 7), ("launch_latency", 7, 8)]


def test_calls_and_ranges_name_the_time_before_operators() -> None:
    found = causes(
        [FIRST, Call("cudaMalloc", 3, 4), Call("cuModuleLoadData", 5, 6), second(9, 10)],
        ops=(("aten::mm", 1, 9),),
        annotations=(("enumerate(DataLoader)#_X.__next__", 7, 8),),
    )
    assert [c for c, *_ in found] == [
        "host_operator", "host_allocation", "host_operator", "host_lazy_loading", "host_operator",
        "host_data_loading", "host_operator", "launch_latency",
    ]  # fmt: skip


def test_the_profiler_holds_things_up_on_every_thread() -> None:
    found = causes([FIRST, second(5, 6)], overheads=(("Buffer Flush", 2.5, 4.5),))
    assert ("profiler_overhead", 2.5, 4.5) in found


def test_a_blocking_call_returns_soon_or_waits_for_what_is_not_recorded() -> None:
    """Of a synchronisation the idle tail is its return; longer, something else runs."""
    short = causes([FIRST, Call("cudaDeviceSynchronize", 1, 3), second(4, 5)])
    assert ("host_sync", 2, 3) in short
    long = causes([FIRST, Call("cudaDeviceSynchronize", 1, 30), second(31, 32)])
    assert ("unrecorded_gpu_work_suspected", 2, 30) in long


def test_queued_work_that_does_not_start_while_a_copy_blocks() -> None:
    calls = [FIRST, second(1, 40), Call("cudaMemcpyAsync", 3, 41, (7, 41.5, 42))]
    found = causes(calls)
    assert found[0] == ("unrecorded_gpu_work_suspected", 2, 40)


def test_queued_behind_an_event_of_another_stream() -> None:
    calls = [FIRST, Call("cudaStreamWaitEvent", 0.5, 0.6), second(1, 9)]
    assert causes(calls) == [("stream_event_wait", 2, 9)]
    assert causes([FIRST, second(1, 9)]) == [("unknown", 2, 9)]


def test_a_device_that_says_when_it_waited() -> None:
    """MTIA's waits stand on the device's clock; stream 8 waited, stream 7 did not."""
    kernels = [
        {"stream": s, "start_ns": ns(a), "end_ns": ns(b), "correlation": c}
        for s, a, b, c in ((8, 0, 1, 1), (7, 0, 2, 2), (8, 9, 10, 3), (7, 20, 21, 4))
    ]
    found = derived("idle_causes", {
        "launches": make("launches", [
            span("runFunction", 0.1 * c, 0.1 * c + 0.05) | {"correlation": c} for c in (1, 2, 3, 4)
        ]),
        "kernels": make("kernels", kernels),
        "cpu_ops": make("cpu_ops", [span("aten::first", -1, -0.5)]),
        "syncs": make("syncs", [
            {"name": "event_wait", "stream": 8, "start_ns": ns(1), "end_ns": ns(8.9)},
            {"name": "event_record", "stream": 7, "start_ns": ns(3), "end_ns": ns(3.1)},
        ]),
    }).to_pylist()  # fmt: skip
    whole = [(r["start_ns"] / UNIT, r["cause"]) for r in found if r["stream"] is None]
    assert whole == [(2, "stream_event_wait"), (10, "unknown")]


def test_one_tick_of_the_clock_is_no_idleness() -> None:
    tick = 1 / UNIT
    calls = [
        Call("hipLaunchKernel", 0, 0.2, (7, 0, 2)),
        Call("hipLaunchKernel", 0.3, 0.4, (7, 2 + tick, 4)),
        Call("hipLaunchKernel", 0.5, 0.6, (7, 4 + 2 * tick + 0.5, 5)),
    ]
    assert [cause for cause, *_ in causes(calls)] == ["back_to_back", "between_queued_kernels"]


def test_without_operators_nothing_tells_what_the_host_did() -> None:
    assert causes([FIRST, second(7, 8)], ops=())[0] == ("unknown", 2, 7)


def test_work_that_no_call_launched() -> None:
    kernels = make("kernels", [
        {"stream": 7, "start_ns": 0, "end_ns": ns(1), "correlation": 90},
        {"stream": 7, "start_ns": ns(9), "end_ns": ns(10), "correlation": 91},
    ])  # fmt: skip
    found = derived("idle_causes", {"kernels": kernels}).to_pylist()
    assert {r["cause"] for r in found} == {"unknown"}


def test_streams_have_gaps_of_their_own() -> None:
    calls = [Call(LAUNCH, 0, 0.2, (7, 0, 2)), Call(LAUNCH, 0.3, 0.4, (8, 0.5, 6)), second(5, 5.5)]
    assert causes(calls) == []
    assert causes(calls, stream=7) == [("host_python", 2, 5), ("launch_latency", 5, 5.5)]


KINDS = {"aten::mm": "host_operator", "cudaMalloc": "host_allocation", "Buffer Flush": None}
HOST = st.lists(st.tuples(st.sampled_from([*KINDS]), st.integers(0, 30), st.integers(1, 6)))
GPU = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 3), st.sampled_from((7, 8))),
    min_size=2, max_size=6,
)  # fmt: skip


@given(HOST, GPU)
def test_against_a_twin_that_asks_every_instant(
    host: list[tuple[str, int, int]], gpu: list[tuple[int, int, int, int]]
) -> None:
    """Launch calls take no time here, so that an instant has one answer."""
    work = [(at, at + delay, at + delay + long, s) for at, delay, long, s in gpu]
    calls = [Call(LAUNCH, at, at, (s, start, end)) for at, start, end, s in work]
    calls += [Call(n, at, at + long) for n, at, long in host if n.startswith("cuda")]
    ops = tuple((n, at, at + long) for n, at, long in host if n.startswith("aten"))
    flushes = tuple((n, at, at + long) for n, at, long in host if n.startswith("Buffer"))
    ops = (*ops, ("aten::first", -2, -1))
    found = {}
    for cause, start, end in causes(calls, ops, flushes):
        assert start == int(start) and end == int(end)
        found.update({t: cause for t in range(int(start), int(end))})

    def doing(t: int) -> str:
        if any(a <= t < b for _, a, b in flushes):
            return "profiler_overhead"
        if any(c.start <= t < c.end for c in calls if c.name == "cudaMalloc"):
            return "host_allocation"
        return "host_operator" if any(a <= t < b for _, a, b in ops) else "host_python"

    def why(t: int) -> str | None:
        if any(start <= t < end for _, start, end, _ in work):
            return None
        begun = [w for w in work if w[1] <= t]
        if not begun or t >= max(w[2] for w in work):
            return None
        at, start, _, stream = min((w for w in work if w[1] > t), key=lambda w: w[1])
        last = max(begun, key=lambda w: w[2])
        if t < at:
            return doing(t)
        if start - at <= 1:
            return "launch_latency"
        queued = at <= last[2] and stream == last[3] and start - last[2] <= 1
        return "between_queued_kernels" if queued else "unknown"

    ties = {t for w in work for t in w[1:3] if sum(t in v[1:3] for v in work) > 1}
    if not ties:  # of activities that start at once either may be named
        assert found == {t: why(t) for t in range(40) if why(t)}


LANES = st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(7, 9))
ACTIVITIES = st.lists(st.tuples(LANES, st.integers(0, 30), st.integers(0, 8)), max_size=12)


@given(ACTIVITIES)
def test_gaps_of_each_lane_are_what_nothing_of_it_covers(
    rows: list[tuple[tuple[int, int, int], int, int]],
) -> None:
    lanes = np.array([lane for lane, _, _ in rows], np.int64).reshape(-1, 3)
    start = np.array([begin for _, begin, _ in rows], np.int64)
    end = start + np.array([length for _, _, length in rows], np.int64)
    gaps = _gaps_in(lanes, start, end)
    expected = []
    for lane in sorted({lane for lane, _, _ in rows}):
        own = [k for k, row in enumerate(rows) if row[0] == lane]
        for k in sorted(own, key=lambda k: (start[k], k)):
            earlier = [j for j in own if (start[j], j) < (start[k], k)]
            reach = max((int(end[j]) for j in earlier), default=None)
            if reach is not None and reach < start[k]:
                expected.append((*lane, reach, int(start[k]), k))
    found = zip(gaps.file, gaps.device, gaps.stream, gaps.start, gaps.end, gaps.row, strict=True)
    assert [tuple(map(int, gap)) for gap in found] == expected


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), max_size=5),
)
def test_a_moment_belongs_to_the_next_row_of_its_lane(
    rows: list[tuple[int, int]], moments: list[tuple[int, int]]
) -> None:
    lane, time = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    on, moment = (np.array([m[k] for m in moments], np.int64) for k in (0, 1))
    found = _mark_after(lane, time, on, moment)
    ordered = sorted(range(len(rows)), key=lambda k: (rows[k], k))
    for place, k in enumerate(ordered):
        previous = ordered[place - 1] if place else None
        same = previous is not None and rows[previous][0] == rows[k][0]
        since = rows[previous][1] if same and previous is not None else -1
        assert found[k] == any(o == rows[k][0] and since < m <= rows[k][1] for o, m in moments)
