"""Step numbers that begin anew, or skip a time without events, within one file: each run of them
is a recording of its own.

The host's rows belong to the cycle in which they begin. What runs on the GPU, and the end of the
arrow that leads to it, belong to the cycle of the call that launched it, however late they run.
"""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.parsers.common.host_order import are_inner_steps
from htk.parsers.kineto.processes import Process, select_process
from htk.parsers.kineto.raw import RawEvents
from htk.parsers.kineto.sorting import Columns, Sorted, is_any
from htk.parsers.kineto.tables import LAUNCH_FLOWS, step_number

_MOST = 256  # cycles of one process; numbers that begin anew more often count nothing
_HOST = ("cpu_ops", "launches", "python_calls")
_ROUNDING_NS = 1000  # old profilers write whole microseconds


@dataclass(frozen=True)
class Cycle:
    """The rows of one run of step numbers."""

    process: Process
    uncut: int = 0  # how often its numbers begin anew, where that is too often


def split_cycles(raw: RawEvents, process: Process) -> list[Cycle]:
    """Return the cycles of a process in order; a process of one is returned as it is."""
    steps = _host_steps(raw, process.events)
    borders = np.union1d(_find_borders(steps), _find_skips(raw, process.events, steps))
    if not len(borders) or len(borders) >= _MOST:
        return [Cycle(process, uncut=len(borders))]
    owner = _Owners(raw, process.events, borders).owners()
    return [
        Cycle(select_process(process.events, owner == k, process.header))
        for k in range(len(borders) + 1)
    ]


def _host_steps(raw: RawEvents, events: Sorted) -> tuple[Ints, Ints, Ints]:
    """Return number, start and end of each step on the host, by start."""
    rows = events.of["annotations"]
    columns = Columns(raw, rows[~_on_gpu(Columns(raw, rows, 0))], 0)
    codes, names = columns.codes("name")
    number = np.array([*map(step_number, names.to_pylist()), NONE], np.int64)[codes]
    start, end = columns.times()
    order = order_by(start, end)
    order = order[number[order] != NONE]
    order = order[~are_inner_steps(number[order], start[order], end[order])]
    return number[order], start[order], end[order]


def _find_borders(steps: tuple[Ints, Ints, Ints]) -> Ints:
    """Return when each cycle after the first begins: at a step that is not beyond all before it.

    Equal numbers at one time are one step, marked by two threads or profilers.
    """
    number, start, end = steps
    if len(number) < 2:
        return start[:0]
    reach = np.maximum.accumulate(end)[:-1]
    is_apart = np.append(False, start[1:] >= reach - _ROUNDING_NS)
    falls = np.append(False, number[1:] <= number[:-1])
    borders: Ints = start[falls & is_apart]
    return borders


def _find_skips(raw: RawEvents, events: Sorted, steps: tuple[Ints, Ints, Ints]) -> Ints:
    """Return where steps begin before which numbers are missing and the host did nothing.

    Files joined from several, or cut to some steps, look so: nothing was recorded meanwhile.
    """
    number, start, end = steps
    skips = np.flatnonzero(np.diff(number) > 1)
    if not len(skips):
        return start[:0]
    before = np.maximum.accumulate(end)[skips]
    after = start[skips + 1]
    times = [Columns(raw, events.of[name], 0) for name in _HOST]
    begun = np.sort(np.concatenate([c.values("ts")[0][c.values("ts")[1]] for c in times]))
    between = np.searchsorted(begun, after) - np.searchsorted(begun, before + _ROUNDING_NS)
    borders: Ints = after[(after > before + _ROUNDING_NS) & (between <= 0)]
    return borders


def _on_gpu(columns: Columns) -> Mask:
    codes, categories = columns.codes("cat")
    is_gpu = [c.lower() == "gpu_user_annotation" for c in categories.to_pylist()]
    return np.asarray(np.array([*is_gpu, False], bool)[codes])


@dataclass(frozen=True)
class _Owners:
    """Which cycle each raw row belongs to."""

    raw: RawEvents
    events: Sorted
    borders: Ints

    def owners(self) -> Ints:
        """Return the number of each raw row's cycle."""
        times, there = Columns(self.raw, np.arange(self.raw.rows), 0).values("ts")
        owner = np.where(there, np.searchsorted(self.borders, times, side="right"), 0)
        calls = _Earlier.from_events(self.raw, self.events.of["launches"], "correlation")
        for table in ("kernels", "syncs"):
            self._follow_calls(owner, self.events.of[table], calls)
        self._follow_ranges(owner)
        self._follow_flows(owner)
        return owner

    def _follow_calls(self, owner: Ints, rows: Ints, calls: "_Earlier") -> None:
        """Work of the GPU goes with the last call of its id that began before it."""
        columns = Columns(self.raw, rows, 0)
        ids, there = columns.values("correlation")
        source = calls.rows_of(ids, there & (ids > 0), columns.values("ts")[0])
        owner[rows] = np.where(source == NONE, owner[rows], owner[source])

    def _follow_ranges(self, owner: Ints) -> None:
        """A range on the GPU mirrors the last range of its name that the host began before it."""
        rows = self.events.of["annotations"]
        on_gpu = _on_gpu(Columns(self.raw, rows, 0))
        host = Columns(self.raw, rows[(~on_gpu)], 0)
        gpu = Columns(self.raw, rows[on_gpu], 0)
        named = host.codes("name")[0].astype(np.int64)
        earlier = _Earlier(host.rows, SegmentTimes(named, host.values("ts")[0]))
        names = gpu.codes("name")[0].astype(np.int64)
        source = earlier.rows_of(names, names != NONE, gpu.values("ts")[0])
        owner[gpu.rows] = np.where(source == NONE, owner[gpu.rows], owner[source])

    def _follow_flows(self, owner: Ints) -> None:
        """The end of an arrow from a launch goes with its beginning."""
        columns = Columns(self.raw, self.events.of["flows"], 0)
        numbers, is_number = columns.values("id")
        spelled = columns.codes("id_text")[0]
        has_id = is_number | (spelled != NONE)
        to_gpu = is_any(*columns.codes("cat"), LAUNCH_FLOWS) & has_id
        begins = to_gpu & is_any(*columns.codes("ph"), ("s",))
        ids = np.column_stack([np.where(is_number, numbers, NONE), spelled])
        key = Groups.by_keys(ids).group_ids
        time = columns.values("ts")[0]
        earlier = _Earlier(columns.rows[begins], SegmentTimes(key[begins], time[begins]))
        source = earlier.rows_of(key, to_gpu & ~begins, time)
        owner[columns.rows] = np.where(source == NONE, owner[columns.rows], owner[source])


@dataclass(frozen=True)
class _Earlier:
    """Raw rows by key and time, of which the last before a time is looked up."""

    rows: Ints
    times: SegmentTimes

    @classmethod
    def from_events(cls, raw: RawEvents, rows: Ints, key: str) -> "_Earlier":
        ids, there = Columns(raw, rows, 0).values(key)
        usable = rows[there & (ids > 0)]
        columns = Columns(raw, usable, 0)
        return cls(usable, SegmentTimes(columns.values(key)[0], columns.values("ts")[0]))

    def rows_of(self, keys: Ints, usable: Mask, time: Ints) -> Ints:
        """Return the raw row of each usable key that is the last at or before its time."""
        if not len(self.rows):
            return fill_none(len(keys))
        position = self.times.last(keys, time)
        return np.where(usable & (position != NONE), take_or(self.rows, position), NONE)
