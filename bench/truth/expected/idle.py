"""Why each GPU was idle, gap by gap and instant by instant."""

from itertools import pairwise

from bench.truth.expected.sums import Rows, group, percent, union
from bench.truth.made import LOADER
from bench.truth.model import Activity, Recording, Span, Thread

_LATENCY = 30_000
_BLOCKED = 200_000
_TICK = 32
_LOADS_CODE = 1_000_000  # a launch that takes so long is the first of its kernel or of its name
_CALLS = {
    **{"cudaMalloc": "host_allocation", "cudaFree": "host_allocation"},
    **{"cudaDeviceSynchronize": "host_sync", "cudaStreamSynchronize": "host_sync"},
    "cudaEventSynchronize": "host_sync",
}
_ORDER = (
    *("host_start_up", "host_allocation", "host_sync", "host_data_loading"),
    *("host_operator", "host_runtime_call"),
)

States = dict[Span, str]
Piece = tuple[int, int, str]


def idle_breakdown(recording: Recording, by: str) -> Rows:
    lanes = group(recording.activities, lambda a: (a.device, a.stream if by == "stream" else None))
    states = host_states(recording)
    rows: Rows = {}
    for (device, stream), own in lanes.items():
        times: dict[str, int] = {}
        gaps: dict[str, int] = {}
        for low, high in gaps_between(own):
            pieces = causes_of_gap(recording, states, own, low, high, stream is None)
            for cause in {cause for *_, cause in pieces}:
                gaps[cause] = gaps.get(cause, 0) + 1
            for begin, until, cause in pieces:
                times[cause] = times.get(cause, 0) + until - begin
        for cause, time in times.items():
            rows[0, device, stream, cause] = {
                **{"idle_ns": time, "count": gaps[cause], "step": None},
                "idle_pct": percent(time, sum(times.values())),
            }
    return rows


def gaps_between(activities: list[Activity]) -> list[tuple[int, int]]:
    """Return the times between activities in which none runs."""
    busy = union((a.start, a.end) for a in activities)
    return [(end, start) for (_, end), (start, _) in pairwise(busy)]


def host_states(recording: Recording) -> States:
    """Return what the host does in each call and operator, and in ranges that load data."""
    states = {operator: "host_operator" for operator in recording.operators}
    states |= {span: "host_data_loading" for span in recording.ranges if span.name == LOADER}
    first_of_name: dict[tuple[str, str], Span] = {}
    for call in sorted(recording.calls, key=lambda call: call.start):
        first_of_name.setdefault((call.thread[0], call.name), call)
        copies = "Memcpy" in call.name  # blocks where host memory is pageable
        states[call] = "host_sync" if copies else _CALLS.get(call.name, "host_runtime_call")
    launched = sorted((a for a in recording.activities if a.call), key=lambda a: _called(a).start)
    of_kernel = {_called(own[0]) for own in group(launched, lambda a: a.name).values()}
    of_name = {call for call in first_of_name.values() if "LaunchKernel" in call.name
               or "LaunchCooperativeKernel" in call.name}  # fmt: skip
    for call in of_kernel | of_name:
        if states[call] == "host_runtime_call" and call.length >= _LOADS_CODE:
            states[call] = "host_start_up"
    return states


def _called(activity: Activity) -> Span:
    assert activity.call is not None
    return activity.call


def causes_of_gap(
    recording: Recording,
    states: States,
    own: list[Activity],
    low: int,
    high: int,
    of_device: bool,
) -> list[Piece]:
    """Return the pieces of a gap."""
    following = next(a for a in sorted(own, key=lambda a: a.start) if a.start == high)
    call = following.call
    replayed = [a for a in recording.activities if a.call is call and following.in_graph]
    if high - low <= _TICK:
        return [(low, high, "back_to_back")]
    if any(a.start < high for a in replayed):
        return [(low, high, "inside_cuda_graph")]
    late, cause = low, "unknown"
    if call is not None:
        sent = call.start if high - call.start <= _LATENCY else call.end
        late = min(max(sent, low), high)
        if high - sent <= _LATENCY:
            cause = "launch_latency"
    if cause == "unknown" and late == low and high - low <= _LATENCY:
        before = [a for a in own if (a.end == low and a.start < low) or a.end == a.start == low]
        if (call or following.carried_in) and following.stream in {a.stream for a in before}:
            cause = "between_queued_kernels"
    pieces = [(late, high, cause)] if late < high else []
    if call is not None and low < late:
        pieces = [*_host(recording, states, call.thread, low, late), *pieces]
    return [_blocked(states, piece, following, of_device) for piece in pieces]


def _host(recording: Recording, states: States, thread: Thread, low: int, high: int) -> list[Piece]:
    """Return what a thread did, where it has nothing open what the main thread did."""
    main = recording.main
    edges = sorted({low, high} | {t for s in states for t in (s.start, s.end) if low < t < high})
    pieces: list[Piece] = []
    for begin, until in pairwise(edges):
        open_spans = [s for s in states if s.start <= begin and until <= s.end]
        cause = _foremost({states[s] for s in open_spans if s.thread == thread})
        if cause is None:
            cause = _foremost({states[s] for s in open_spans if s.thread == main})
        if cause is None:
            cause = "host_python" if recording.operators else "unknown"
        if pieces and pieces[-1][2] == cause:
            pieces[-1] = pieces[-1][0], until, cause
        else:
            pieces.append((begin, until, cause))
    return pieces


def _foremost(states: set[str]) -> str | None:
    return next((state for state in _ORDER if state in states), None)


def _blocked(states: States, piece: Piece, following: Activity, of_device: bool) -> Piece:
    """Return what points to unrecorded work where a call blocks for longer than it can."""
    low, high, cause = piece
    if not of_device or high - low <= max(_BLOCKED, following.facts.get("bytes", 0)):
        return piece
    if cause == "host_sync":
        return low, high, "unrecorded_gpu_work_suspected"
    blocking = [s for s, state in states.items() if state == "host_sync"]
    spans = union((max(s.start, low), min(s.end, high)) for s in blocking)
    inside = sum(max(end - start, 0) for start, end in spans if start < end)
    if cause == "unknown" and 2 * inside > high - low:
        return low, high, "unrecorded_gpu_work_suspected"
    return piece
