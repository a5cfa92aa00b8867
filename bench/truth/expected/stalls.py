"""What the host waits for, and which idle time of the GPUs that explains."""

from bench.truth.expected.idle import States, causes_of_gap, gaps_between, host_states
from bench.truth.expected.sums import Row, Rows, group
from bench.truth.model import Recording, Span

_LONG_OPERATOR = 1_000_000
_LONG_COPY = 50_000
_LABELS = {
    **{"host_allocation": "allocation", "host_start_up": "start-up"},
    **{"host_data_loading": "data loading", "host_operator": "operator"},
    "host_sync": "synchronising call",
}
_AFTER = ("host_sync", "host_operator", "host_runtime_call", "host_python", "launch_latency")


def host_stalls(recording: Recording) -> Rows:
    """A piece of idle time is of the stall that it lies in; what follows a blocking call in which
    the GPU ran dry is of that call, as long as it blocked."""
    states = host_states(recording)
    stalls = _stalls(states)
    caused = dict.fromkeys(stalls, 0)
    for own in group(recording.activities, lambda a: a.device).values():
        for low, high in gaps_between(own):
            pieces = sorted(causes_of_gap(recording, states, own, low, high, of_device=True))
            explained = [_around(stalls, *piece) for piece in pieces]
            drained = _under_way(stalls, "host_sync", low, low + 1)
            left = 0
            if drained is not None:
                both = zip(pieces, explained, strict=True)
                during = sum(end - begin for (begin, end, _), stall in both if stall is drained)
                left = max(drained.length - during, 0)
            for (begin, end, cause), stall in zip(pieces, explained, strict=True):
                is_open = stall is None or stalls[stall] == "host_operator"
                after = min(end - begin, left) if is_open and cause in _AFTER else 0
                left -= after
                if drained is not None and (stall is None or after == end - begin):
                    caused[drained] += after
                elif stall is not None:
                    caused[stall] += end - begin
    rows: Rows = {}
    shown = [s for s in stalls if stalls[s] != "host_operator" or caused[s]]
    for key, alike in group(shown, lambda stall: _key(stall, stalls[stall])).items():
        row: Row = {"count": len(alike), "host_ns": sum(stall.length for stall in alike)}
        rows[0, *key] = {**row, "gpu_idle_caused_ns": sum(caused[stall] for stall in alike)}
    return rows


def _key(stall: Span, state: str) -> tuple[str, str, str | None]:
    """Return cause, name and the operators round it."""
    inner = stall.operator if stall.kind == "call" else None
    callers = [] if inner is None else [span.name for span in inner.itself_and_callers()]
    cause = _LABELS[state]
    if state == "host_sync" and "Memcpy" in stall.name:
        cause = "copy that blocks"
    if state == "host_sync" and callers[:1] == ["aten::item"]:
        cause = ".item"
    return cause, stall.name, " > ".join(reversed(callers)) or None


def _stalls(states: States) -> States:
    """Return what keeps the host, with its state: nothing inside another of the same state."""
    chosen = [span for span, state in states.items() if _keeps(span, state)]
    outermost: States = {}
    for stall in sorted(chosen, key=lambda s: (s.start, -s.end)):
        alike = [s for s in outermost if outermost[s] == states[stall]]
        if all(before.end < stall.end for before in alike):
            outermost[stall] = states[stall]
    return outermost


def _keeps(span: Span, state: str) -> bool:
    """Return whether a span keeps the host for longer than its work is worth."""
    if state == "host_operator":
        return span.caller is None and span.length >= _LONG_OPERATOR
    quick = "Memcpy" in span.name and span.length < _LONG_COPY
    return state != "host_runtime_call" and not quick


def _around(stalls: States, begin: int, end: int, cause: str) -> Span | None:
    if cause == "host_operator" and end - begin < _LONG_OPERATOR:
        return None
    state = "host_sync" if cause == "unrecorded_gpu_work_suspected" else cause
    return _under_way(stalls, state, begin, end)


def _under_way(stalls: States, state: str, begin: int, end: int) -> Span | None:
    """Return the last stall of that state that is under way in a time."""
    alike = [stall for stall, of in stalls.items() if of == state and stall.start < end]
    last = max(alike, key=lambda stall: stall.start, default=None)
    return last if last is not None and last.end >= begin else None
