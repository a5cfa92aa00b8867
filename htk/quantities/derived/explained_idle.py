"""Which idle time of the GPUs each stall of the host explains."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, read_keys, read_numbers, read_times
from htk.base.columns.groups import Groups, number_hosts
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes, mark_heads
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.quantities.derived.host_states import (
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
    SYSTEM,
)
from htk.quantities.derived.stalls import LONG_NS

CAUSES = {
    PROFILER: "profiler overhead",
    GC: "garbage collection",
    COMPILATION: "compilation",
    START_UP: "start-up",
    LAZY: "lazy loading",
    ALLOCATION: "allocation",
    SYNC: "synchronising call",
    LOADING: "data loading",
    SYSTEM: "system call",
    OPERATOR: "operator",
}
# What follows a blocking call until the GPU has work again.
_AFTER = ("host_sync", "host_operator", "host_runtime_call", "host_python", "launch_latency")


@dataclass(frozen=True)
class Stalls:
    """The columns of table `stalls`."""

    host: Ints  # (rank, cycle)
    state: Ints
    name: Ints  # in `names`
    op: Ints  # row of the operator round it, or NONE
    start: Ints
    end: Ints
    names: list[str | None]

    @classmethod
    def from_table(cls, table: pa.Table) -> "Stalls":
        cause, causes = codes_of(table["cause"])
        state = np.array([*map(STATES.index, causes.to_pylist()), NONE], np.int64)[cause]
        name, names = codes_of(table["name"])
        op = read_keys(table["op_row"])
        start = read_keys(table["start_ns"])
        end = read_keys(table["end_ns"])
        named = np.where(name < 0, len(names), name).astype(np.int64)
        return cls(number_hosts(table), state, named, op, start, end, [*names.to_pylist(), None])

    def where(self, chosen: Mask) -> "Stalls":
        columns = (self.host, self.state, self.name, self.op, self.start, self.end)
        host, state, name, op, start, end = (column[chosen] for column in columns)
        return Stalls(host, state, name, op, start, end, self.names)


def device_pieces(idle_causes: pa.Table) -> pa.Table:
    """Return the pieces of the idle time of whole devices, with what is asked of them."""
    wanted = ("rank", "cycle", "device", "gap_start_ns", "start_ns", "end_ns", "cause")
    columns = [name for name in wanted if name in idle_causes.column_names]
    return idle_causes.select(columns).filter(pa.array(~mark_valid(idle_causes["stream"])))


class Explained(NamedTuple):
    """For each piece of idle time: the stall that explains it (NONE: none), and how much."""

    stall: Ints
    idle_ns: Ints


def explain_idle(stalls: Stalls, pieces: pa.Table) -> Explained:
    """Return the stall that explains each piece of the idle time of devices, and how much of it.

    A piece that lies in a stall is that stall's. Where the GPU ran dry during a blocking call, the
    call explains what follows until the next launch arrives, but no more than it blocked in all:
    without it the host would have been so much earlier. The rest is what the host did then.
    """
    start, end = read_times(pieces)
    host = number_hosts(pieces)
    codes, causes = codes_of(pieces["cause"])
    state = np.array([*(_state_of(c) for c in causes.to_pylist()), -1], np.int64)[codes]
    state = np.where((state == OPERATOR) & (end - start < LONG_NS), -1, state)
    follows = np.array([*(c in _AFTER for c in causes.to_pylist()), False], bool)[codes]
    stall = _find_stall_under_way(stalls, host, state, start, end)
    dry = read_numbers(pieces["gap_start_ns"])
    drained = _find_stall_under_way(stalls, host, np.full(len(host), SYNC), dry, dry + 1)
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
    host = number_hosts(pieces)
    device = read_keys(pieces["device"])
    start, end = read_times(pieces)
    gap = Groups.by_keys(np.stack([host, device, read_numbers(pieces["gap_start_ns"])], axis=1))
    blocked = take_or(stalls.end - stalls.start, drained, 0)
    left = np.maximum(blocked - gap.sum(idle)[gap.group_ids], 0)
    order = order_by(gap.group_ids, start)
    length = np.where(after, end - start, 0)[order]
    until = np.cumsum(length)
    first = mark_heads(gap.group_ids[order])
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


def _find_stall_under_way(stalls: Stalls, host: Ints, state: Ints, start: Ints, end: Ints) -> Ints:
    """Return the last stall of that host and state that is under way in each span (NONE: none)."""
    both = np.stack([np.append(stalls.host, host), np.append(stalls.state, state)], axis=1)
    lane = Groups.by_keys(both).group_ids
    count = len(stalls.start)
    if not count:
        return fill_none(len(start))
    begun = SegmentTimes(lane[:count], stalls.start).last(lane[count:], end - 1)
    under_way = (begun != NONE) & (state >= 0) & (stalls.end[begun] >= start)
    return np.where(under_way, begun, NONE)
