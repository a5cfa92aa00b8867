"""Why each GPU was idle, gap by gap and instant by instant."""

from itertools import pairwise

from bench.truth.expected.sums import Rows, group, percent, union
from bench.truth.model import Activity, Recording, Span, Thread

_LATENCY = 30_000
_BLOCKED = 200_000
_TICK = 32
_CALLS = {
    **{"cudaMalloc": "host_allocation", "cudaFree": "host_allocation"},
    **{"cudaDeviceSynchronize": "host_sync", "cudaStreamSynchronize": "host_sync"},
    "cudaEventSynchronize": "host_sync",
}

Piece = tuple[int, int, str]


def idle_breakdown(recording: Recording, by: str) -> Rows:
    lanes = group(recording.activities, lambda a: (a.device, a.stream if by == "stream" else None))
    rows: Rows = {}
    for (device, stream), own in lanes.items():
        times: dict[str, int] = {}
        gaps: dict[str, int] = {}
        for start, end in pairwise(union((a.start, a.end) for a in own)):
            pieces = _causes(recording, own, start[1], end[0], stream is None)
            for cause in {cause for *_, cause in pieces}:
                gaps[cause] = gaps.get(cause, 0) + 1
            for begin, until, cause in pieces:
                times[cause] = times.get(cause, 0) + until - begin
        for cause, time in times.items():
            rows[0, device, stream, cause] = {
                **{"idle_ns": time, "count": gaps[cause]},
                "idle_pct": percent(time, sum(times.values())),
            }
    return rows


def _causes(
    recording: Recording, own: list[Activity], low: int, high: int, of_device: bool
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
        pieces = [*_host(recording, call.thread, low, late), *pieces]
    return [_blocked(recording, piece, following, of_device) for piece in pieces]


def _host(recording: Recording, thread: Thread, low: int, high: int) -> list[Piece]:
    """Return what a thread did, where it has nothing open what the main thread did."""
    spans = [*recording.calls, *recording.operators]
    main = recording.main
    edges = sorted({low, high} | {t for s in spans for t in (s.start, s.end) if low < t < high})
    pieces: list[Piece] = []
    for begin, until in pairwise(edges):
        open_spans = [s for s in spans if s.start <= begin and until <= s.end]
        cause = _state([s for s in open_spans if s.thread == thread])
        if cause is None:
            cause = _state([s for s in open_spans if s.thread == main])
        if cause is None:
            cause = "host_python" if recording.operators else "unknown"
        if pieces and pieces[-1][2] == cause:
            pieces[-1] = pieces[-1][0], until, cause
        else:
            pieces.append((begin, until, cause))
    return pieces


_ORDER = ("host_allocation", "host_sync", "host_operator", "host_runtime_call")


def _state(spans: list[Span]) -> str | None:
    states = {_state_of(span) for span in spans}
    return next((state for state in _ORDER if state in states), None)


def _state_of(span: Span) -> str:
    if span.kind == "operator":
        return "host_operator"
    if "Memcpy" in span.name:
        return "host_sync"  # blocks where host memory is pageable
    return _CALLS.get(span.name, "host_runtime_call")


def _blocked(recording: Recording, piece: Piece, following: Activity, of_device: bool) -> Piece:
    """Return what points to unrecorded work where a call blocks for longer than it can."""
    low, high, cause = piece
    if not of_device or high - low <= max(_BLOCKED, following.facts.get("bytes", 0)):
        return piece
    if cause == "host_sync":
        return low, high, "unrecorded_gpu_work_suspected"
    blocking = [s for s in recording.calls if _state_of(s) == "host_sync"]
    spans = union((max(s.start, low), min(s.end, high)) for s in blocking)
    inside = sum(max(end - start, 0) for start, end in spans if start < end)
    if cause == "unknown" and 2 * inside > high - low:
        return low, high, "unrecorded_gpu_work_suspected"
    return piece
