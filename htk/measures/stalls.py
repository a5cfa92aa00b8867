"""What keeps the host from launching, and which idle time of the GPUs each of it explains."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.columns.arrow import codes_of, matching, numbers, truths
from htk.columns.groups import Groups, hosts
from htk.columns.segments import SegmentTimes, heads, running_max
from htk.columns.types import NO_TIME, NONE, Ints, Mask
from htk.derived.host_states import (
    ALLOCATION,
    COMPILATION,
    GC,
    LAZY,
    LOADING,
    OPERATOR,
    PROFILER,
    START_UP,
    STATES,
    SYNC,
    call_states,
    overhead_state,
    span_state,
)

CAUSES = {
    PROFILER: "profiler overhead",
    GC: "garbage collection",
    COMPILATION: "compilation",
    START_UP: "start-up",
    LAZY: "lazy loading",
    ALLOCATION: "allocation",
    SYNC: "synchronising call",
    LOADING: "data loading",
    OPERATOR: "operator",
}
LONG_NS = 1_000_000  # an operator that keeps the host so long is no matter of launching fast
_LONG_COPY_NS = 50_000  # asynchronous copies return sooner, unless their memory is pageable
_WAITING = [state for state in CAUSES if state != OPERATOR]
# What follows a blocking call until the GPU has work again.
_AFTER = ("host_sync", "host_operator", "host_python", "launch_latency")


class Stalls(NamedTuple):
    host: Ints  # (rank, cycle)
    state: Ints
    name: Ints
    op: Ints  # row of the operator round it, or -1
    start: Ints
    end: Ints


class Explained(NamedTuple):
    """For each piece of idle time: the stall that explains it (NONE: none), and how much."""

    stall: Ints
    idle_ns: Ints


class Names:
    """Texts of several tables under common numbers."""

    def __init__(self) -> None:
        self.listed: list[str | None] = []
        self._number: dict[str | None, int] = {}

    def of(self, column: pa.ChunkedArray, rows: Ints) -> Ints:
        codes, dictionary = codes_of(column)
        used, name_of_row = np.unique(codes[rows], return_inverse=True)
        texts_ = [*dictionary.to_pylist(), None]
        own_numbers = []
        for code in used.tolist():  # distinct names
            name = texts_[code]
            if name not in self._number:
                self._number[name] = len(self.listed)
                self.listed.append(name)
            own_numbers.append(self._number[name])
        return np.array(own_numbers, np.int64)[name_of_row]


def stalls_of(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    launch_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    annotations: pa.Table,
    python_calls: pa.Table,
    overheads: pa.Table,
    names: Names,
) -> Stalls:
    """Return what blocks, allocates, loads or compiles, and operators that take long."""
    on_host = ~truths(annotations["on_gpu"])
    parts = [
        _calls(call_states(launches, kernels, kernel_links), launches, launch_links, names),
        _spans(cpu_ops, span_state, np.ones(cpu_ops.num_rows, bool), names),
        _spans(annotations, span_state, on_host, names),
        _spans(python_calls, span_state, np.ones(python_calls.num_rows, bool), names),
        _spans(overheads, overhead_state, np.ones(overheads.num_rows, bool), names),
        _long_operators(cpu_ops, op_links, names),
    ]
    return _outermost(Stalls(*(np.concatenate(c) for c in zip(*parts, strict=True))))


def _calls(state: Ints, launches: pa.Table, launch_links: pa.Table, names: Names) -> Stalls:
    """Calls that block, allocate or load code."""
    length = numbers(launches["end_ns"]) - numbers(launches["start_ns"])
    quick = matching(launches["name"], lambda n: "Memcpy" in n and "Async" in n)
    chosen = np.isin(state, _WAITING) & ~(quick & (length < _LONG_COPY_NS))
    rows = np.flatnonzero(chosen)
    return _picked(launches, rows, state[rows], numbers(launch_links["op_row"], -1)[rows], names)


def _long_operators(cpu_ops: pa.Table, op_links: pa.Table, names: Names) -> Stalls:
    """Outermost operators that keep the host longer than any launch takes."""
    length = numbers(cpu_ops["end_ns"]) - numbers(cpu_ops["start_ns"])
    rows = np.flatnonzero((numbers(op_links["depth"], 0) == 0) & (length >= LONG_NS))
    return _picked(cpu_ops, rows, np.full(len(rows), OPERATOR), np.full(len(rows), NONE), names)


def _spans(spans: pa.Table, rule: Callable[[str], int], chosen: Mask, names: Names) -> Stalls:
    codes, dictionary = codes_of(spans["name"])
    state = np.array([*(rule(name) for name in dictionary.to_pylist()), -1], np.int64)[codes]
    rows = np.flatnonzero(chosen & np.isin(state, _WAITING))
    return _picked(spans, rows, state[rows], np.full(len(rows), -1, np.int64), names)


def _picked(spans: pa.Table, rows: Ints, state: Ints, op: Ints, names: Names) -> Stalls:
    start, end = (numbers(spans[c])[rows] for c in ("start_ns", "end_ns"))
    return Stalls(hosts(spans)[rows], state, names.of(spans["name"], rows), op, start, end)


def _outermost(stalls: Stalls) -> Stalls:
    """Without those inside another of the same kind: a range and the function in it are one."""
    lane = Groups.by_keys(np.stack([stalls.host, stalls.state], axis=1)).group_ids
    order = np.lexsort((-stalls.end, stalls.start, lane))
    first = heads(lane[order])
    reach = running_max(first, stalls.end[order])
    before = np.where(first, NO_TIME, np.append(NO_TIME, reach[:-1])[: len(order)])
    kept = order[stalls.end[order] > before]
    return Stalls(*(column[kept] for column in stalls))


def explained(stalls: Stalls, pieces: pa.Table) -> Explained:
    """Return the stall that explains each piece of the idle time of devices, and how much of it.

    A piece that lies in a stall is that stall's. Where the GPU ran dry during a blocking call, the
    call explains what follows until the next launch arrives, but no more than it blocked in all:
    without it the host would have been so much earlier. The rest is what the host did then.
    """
    start, end = (numbers(pieces[c]) for c in ("start_ns", "end_ns"))
    host = hosts(pieces)
    codes, causes = codes_of(pieces["cause"])
    state = np.array([*(_state_of(c) for c in causes.to_pylist()), -1], np.int64)[codes]
    state = np.where((state == OPERATOR) & (end - start < LONG_NS), -1, state)
    follows = np.array([*(c in _AFTER for c in causes.to_pylist()), False], bool)[codes]
    stall = _during(stalls, host, state, start, end)
    dry = numbers(pieces["gap_start_ns"])
    drained = _during(stalls, host, np.full(len(host), SYNC), dry, dry + 1)
    of_operator = (stall >= 0) & (state == OPERATOR)
    idle = np.where(stall >= 0, end - start, 0)
    after = (drained >= 0) & follows & ((stall < 0) | of_operator)
    most = _within_block(stalls, pieces, drained, np.where(stall == drained, idle, 0), after)
    shared = after & of_operator & (most < end - start)  # most of it is the operator's
    taken = after & ~shared
    return Explained(np.where(taken, drained, stall), np.where(taken, most, idle))


def _within_block(stalls: Stalls, pieces: pa.Table, drained: Ints, idle: Ints, after: Mask) -> Ints:
    """Return how much of each piece the call explains in which its gap began: what it blocked, less
    what was idle meanwhile, spent on the pieces in order of time."""
    host, device = hosts(pieces), numbers(pieces["device"], NONE).astype(np.int64)
    start, end = (numbers(pieces[c]) for c in ("start_ns", "end_ns"))
    gap = Groups.by_keys(np.stack([host, device, numbers(pieces["gap_start_ns"])], axis=1))
    blocked = np.append(stalls.end - stalls.start, 0)[drained]
    left = np.maximum(blocked - gap.sum(idle)[gap.group_ids], 0)
    order = np.lexsort((start, gap.group_ids))
    length = np.where(after, end - start, 0)[order]
    until = np.cumsum(length)
    first = heads(gap.group_ids[order])
    base = np.maximum.accumulate(np.where(first, until - length, 0))
    before = until - length - base
    explains = np.zeros(len(start), np.int64)
    explains[order] = np.clip(left[order] - before, 0, length)
    return explains


def _state_of(cause: str) -> int:
    """Return the state of the host that a cause of idleness speaks of; -1: of none that stalls."""
    if cause == "unrecorded_gpu_work_suspected":
        return SYNC
    state = STATES.index(cause) if cause in STATES else -1
    return state if state in CAUSES else -1


def _during(stalls: Stalls, host: Ints, state: Ints, start: Ints, end: Ints) -> Ints:
    """Return the last stall of that host and state that is under way in each span (NONE: none)."""
    both = np.stack([np.append(stalls.host, host), np.append(stalls.state, state)], axis=1)
    lane = Groups.by_keys(both).group_ids
    count = len(stalls.start)
    if not count:
        return np.full(len(start), NONE, np.int64)
    begun = SegmentTimes(lane[:count], stalls.start).last(lane[count:], end - 1)
    under_way = (begun != NONE) & (state >= 0) & (stalls.end[begun] >= start)
    return np.where(under_way, begun, NONE)
