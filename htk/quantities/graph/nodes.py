"""What a step is made of: its GPU activities and the CPU calls that matter, lane by lane."""

import re
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    match_texts,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.errors import MissingTable
from htk.base.mappings import NamedTables
from htk.quantities.derived.clocks import compute_corrections
from htk.quantities.graph.shared_tables import find_once

SYNCHRONISES = re.compile(r"(Device|Stream|Event|Ctx)Synchronize$")
FREES = re.compile(r"^(cuda|hip)Free(Host)?$")  # waits for all that runs, then gives memory back
_MATTERS = re.compile(rf"Synchronize$|StreamWaitEvent|EventRecord|{FREES.pattern}")
Which = int | list[int] | None  # a step, several, or all that was recorded
_ROUNDED_NS = 1_000  # recorders round times to so much at most


@dataclass(frozen=True)
class Steps:
    """Whole steps of all ranks; window rows are of the rank that ends last."""

    numbers: list[int]
    low: dict[int, int]
    high: dict[int, int]
    recording: tuple[int, int]  # where none are marked: all of one recording
    cycle: int = 0  # which of them: that with the most GPU time
    cycle_of: dict[int, int] = field(default_factory=dict)  # of numbers that several cycles have

    def cycle_for(self, step: int | None) -> int | None:
        """Return the cycle whose rows are meant; None: the number tells the step alone."""
        return self.cycle if step is None else self.cycle_of.get(step)

    @property
    def periods(self) -> dict[int, int]:
        return {k: self.high[k] - self.low[k] for k in self.numbers}

    @property
    def steadiest(self) -> int:
        """The step nearest the median; the first, whose start was not seen, only if it must be."""
        usable = self.numbers[1:] or self.numbers
        periods = self.periods
        middle = float(np.median([periods[k] for k in usable]))
        return min(usable, key=lambda k: (abs(periods[k] - middle), k))

    def chosen(self, step: int | None) -> int | None:
        """Return the step asked for, where none is the steadiest; None: none are marked."""
        chosen = self.steadiest if step is None and self.numbers else step
        if chosen is not None and chosen not in self.numbers:
            raise MissingTable(
                f"step {chosen} is not whole on every rank; there are {self.numbers}"
            )
        return chosen

    def window(self, step: int | None, origin: int) -> tuple[int, int]:
        low, high = self.recording if step is None else (self.low[step], self.high[step])
        return low - origin, high - origin


def steps_of_all(step_windows: pa.Table, rank_windows: pa.Table) -> Steps:
    is_complete = read_booleans(step_windows["complete"]) & (
        read_numbers(step_windows["step"], NONE) >= 0
    )
    rank = read_numbers(step_windows["rank"], NONE)
    cycle = read_numbers(step_windows["cycle"], 0)
    step = read_numbers(step_windows["step"], NONE)
    recording, longest = _find_longest_cycle(rank_windows)
    low, high = read_times(step_windows)
    ranks = len(np.unique(read_numbers(rank_windows["rank"], NONE)))
    complete_steps = []
    lows = {}
    highs = {}
    cycle_of = {}
    for k in np.unique(step[is_complete]).tolist():  # a few steps
        of_step = is_complete & (step == k)
        if _is_repeated(rank[of_step], cycle[of_step]):
            cycle_of[int(k)] = _cycle_of_all(rank[of_step], cycle[of_step], longest)
            of_step &= cycle == cycle_of[int(k)]
        if len(np.unique(rank[of_step])) == ranks:
            complete_steps.append(int(k))
            lows[int(k)] = int(low[of_step].max())
            highs[int(k)] = int(high[of_step].max())
    return Steps(complete_steps, lows, highs, recording, longest, cycle_of)


def _is_repeated(rank: Ints, cycle: Ints) -> bool:
    """Return whether some rank has the step in more than one of its cycles."""
    ranks = Groups.by_keys(rank.astype(np.int64))
    return bool((ranks.distinct(cycle.astype(np.int64)) > 1).any())


def _cycle_of_all(rank: Ints, cycle: Ints, preferred: int) -> int:
    """Return the cycle in which most ranks have the step; of several the preferred, or the last."""
    cycles = Groups.by_keys(cycle.astype(np.int64))
    of_cycle = cycles.keys[:, 0]
    ranks = cycles.distinct(rank.astype(np.int64))
    return int(of_cycle[order_by(ranks, of_cycle == preferred, of_cycle)[-1]])


def _find_longest_cycle(rank_windows: pa.Table) -> tuple[tuple[int, int], int]:
    """From when to when the recording with the most GPU time lasts, and its cycle: between two
    recordings nobody knows what ran."""
    if not rank_windows.num_rows:
        raise MissingTable("no GPU work runs in the time that is looked at")
    cycles = Groups.by_keys(read_numbers(rank_windows["cycle"]).astype(np.int64)[:, None])
    low, high = read_times(rank_windows)
    most = int(cycles.sum(high - low).argmax())
    in_cycle = cycles.group_ids == most
    return (int(low[in_cycle].min()), int(high[in_cycle].max())), int(cycles.keys[most, 0])


@dataclass(frozen=True)
class Activities:
    """GPU activities of the step, by stream and start."""

    row: Ints  # in `kernels`
    rank: Ints
    lane: Ints  # (rank, device, stream)
    device: Ints  # (rank, device)
    start: Ints
    end: Ints
    name: Ints  # into `names`
    names: list[str]
    kind: Ints  # 0 compute, 1 comm, 2 memory
    call: Ints  # the call that launched it, in Calls; -1: none
    before: Ints  # end of the stream's last activity of the step before; -1: none

    @cached_property
    def length(self) -> Ints:
        length = self.end - self.start
        length.flags.writeable = False  # many share it
        return length

    def compute_lane(self, rank: int) -> Ints:
        """Return the activities of the rank's busiest compute stream, in order; looked for once."""
        if rank not in self._compute_lanes:
            compute = (self.rank == rank) & (self.kind == 0) & (self.call >= 0)
            lanes = np.unique(self.lane[compute])
            busy = [int(self.length[compute & (self.lane == k)].sum()) for k in lanes.tolist()]
            rows = np.empty(0, np.int64)
            if busy:
                on_lane = (self.lane == lanes[int(np.argmax(busy))]) & (self.rank == rank)
                rows = np.flatnonzero(on_lane)
                rows = rows[order_by(self.start[rows])]
            rows.flags.writeable = False
            self._compute_lanes[rank] = rows
        return self._compute_lanes[rank]

    @cached_property
    def _compute_lanes(self) -> dict[int, Ints]:
        return {}

    @cached_property
    def of_devices(self) -> list[tuple[Ints, Ints, Ints]]:
        """Return the rows of each device: those that compute, those that communicate, others."""
        order = order_by(self.device)
        begins = np.flatnonzero(np.diff(self.device[order])) + 1
        of_device = np.split(order, begins) if len(order) else []
        kind = self.kind
        return [
            (rows[kind[rows] == 0], rows[kind[rows] == 1], rows[kind[rows] == 2])
            for rows in of_device
        ]


@dataclass(frozen=True)
class LaunchCalls:
    """Calls that launch, wait, record or synchronise, by thread and start."""

    row: Ints  # in `launches`
    rank: Ints
    lane: Ints  # (rank, thread)
    start: Ints
    end: Ints
    name: Ints
    names: list[str]
    correlation: Ints
    before: Ints  # end of the thread's last call before the step; -1: none

    def named(self, pattern: re.Pattern[str]) -> Mask:
        hits = np.array([bool(pattern.search(n)) for n in self.names] + [False])
        return hits[self.name]


def calls_of(
    tables: NamedTables, step: Which, origin: int, cycle: int | None = None
) -> LaunchCalls:
    """Return the calls of a step or of several, of a cycle, or of all."""
    launches = tables["launches"]
    links = tables["launch_links"]
    every, ends, cycles = find_once(tables, "calls", lambda: _all_calls(tables, origin))
    ours = _mark_step_rows(launches, links, step, cycle)[every.row]
    return LaunchCalls(
        every.row[ours],
        every.rank[ours],
        every.lane[ours],
        every.start[ours],
        every.end[ours],
        every.name[ours],
        every.names,
        every.correlation[ours],
        _last_before(every.lane, ends, cycles, ours),
    )


def _all_calls(tables: NamedTables, origin: int) -> tuple[LaunchCalls, Ints, Ints]:
    """Return the calls of all recordings, their ends as recorded, and their cycles."""
    launches = tables["launches"]
    links = tables["launch_links"]
    matters = match_texts(launches["name"], lambda n: bool(_MATTERS.search(n)))
    matters |= read_numbers(links["kernels"]) > 0
    rank = read_keys(launches["rank"])
    began, ended = read_times(launches)
    clocks = tables["rank_clocks"]
    start = began - origin + compute_corrections(clocks, rank, began)
    # By itself: clocks drift while a call blocks, and the next one would begin inside of it.
    end = ended - origin + compute_corrections(clocks, rank, ended)
    lane = _threads_by_first_row(launches, rank)
    rows = np.flatnonzero(matters)
    rows = rows[order_by(lane[rows], start[rows])]
    names, dictionary = codes_of(launches["name"])
    every = LaunchCalls(
        rows,
        rank[rows],
        lane[rows],
        start[rows],
        _not_inside_next(lane[rows], start[rows], np.maximum(end[rows], start[rows])),
        names[rows].astype(np.int64),
        dictionary.to_pylist(),
        read_numbers(launches["correlation"], NONE)[rows],
        fill_none(len(rows)),
    )
    return every, end[rows], read_numbers(launches["cycle"], 0)[rows]


def _not_inside_next(lane: Ints, start: Ints, end: Ints) -> Ints:
    """Return the ends of calls; of one that ends just inside the next one, as rounding makes it,
    where that begins."""
    over = end[:-1] - start[1:]
    is_rounded = (lane[1:] == lane[:-1]) & (over > 0) & (over <= _ROUNDED_NS) & (end[1:] > end[:-1])
    shortened = end.copy()
    shortened[:-1][is_rounded] = start[1:][is_rounded]
    return shortened


def activities_of(
    tables: NamedTables,
    calls: LaunchCalls,
    step: Which,
    origin: int,
    cycle: int | None = None,
) -> Activities:
    kernels = tables["kernels"]
    links = tables["kernel_links"]
    every, ends, cycles = find_once(tables, "activities", lambda: _all_activities(tables, origin))
    ours = _mark_step_rows(kernels, links, step, cycle)[every.row] & (every.call >= 0)
    where = fill_none(tables["launches"].num_rows + 1)
    where[calls.row] = np.arange(len(calls.row))
    return Activities(
        every.row[ours],
        every.rank[ours],
        every.lane[ours],
        every.device[ours],
        every.start[ours],
        every.end[ours],
        every.name[ours],
        every.names,
        every.kind[ours],
        where[every.call[ours]],
        _last_before(every.lane, ends, cycles, ours),
    )


def _all_activities(tables: NamedTables, origin: int) -> tuple[Activities, Ints, Ints]:
    """Return the activities of all recordings, their ends as recorded, and their cycles; their
    calls are rows of `launches`."""
    kernels = tables["kernels"]
    links = tables["kernel_links"]
    rank = read_keys(kernels["rank"])
    shift = compute_corrections(tables["rank_clocks"], rank, read_numbers(kernels["start_ns"]))
    start = read_numbers(kernels["start_ns"]) - origin + shift
    end = read_numbers(kernels["end_ns"]) - origin + shift
    device = _number_lanes(rank, read_numbers(kernels["device"], NONE))
    lane = _number_lanes(
        rank, read_numbers(kernels["device"], NONE), read_numbers(kernels["stream"], NONE)
    )
    rows = order_by(lane, start)
    names, dictionary = codes_of(kernels["name"])
    kinds, kind_names = codes_of(kernels["kind"])
    kind_codes = {"compute": 0, "comm": 1, "memory": 2}
    to_kind = np.array([kind_codes.get(k, 0) for k in kind_names.to_pylist()] + [0], np.int64)
    every = Activities(
        rows,
        rank[rows],
        lane[rows],
        device[rows],
        start[rows],
        np.maximum(end[rows], start[rows]),
        names[rows].astype(np.int64),
        dictionary.to_pylist(),
        to_kind[kinds[rows]],
        read_numbers(links["launch_row"], NONE)[rows],
        fill_none(len(rows)),
    )
    return every, end[rows], read_numbers(kernels["cycle"], 0)[rows]


def _mark_step_rows(table: pa.Table, links: pa.Table, step: Which, cycle: int | None) -> Mask:
    every: Mask = np.ones(len(table), bool)
    if step is not None:
        every &= np.isin(read_numbers(links["step"], NONE), step)
    if cycle is not None:
        every &= read_numbers(table["cycle"]) == cycle
    return every


def _last_before(lane: Ints, end: Ints, cycle: Ints, ours: Mask) -> Ints:
    """For the chosen rows, ordered by lane: the last end on their lane and in their cycle before
    the first chosen; what ran between two cycles nobody knows."""
    chosen = np.flatnonzero(ours)
    lanes, first = np.unique(lane[chosen], return_index=True)
    last_end = fill_none(len(chosen))
    over = np.append(first, len(chosen))[1:]
    begins = np.searchsorted(lane, lanes)
    for low, high, begin in zip(first.tolist(), over.tolist(), begins.tolist(), strict=True):
        row = chosen[low]  # a few threads or streams
        own = cycle[begin:row] == cycle[row]
        if own.any():
            last_end[low:high] = end[begin:row][own].max()
    return last_end


def ends_of_lanes(lane: Ints) -> tuple[Ints, Ints]:
    """Return the first and the last row of each lane, which are ordered by it."""
    first = np.flatnonzero(mark_heads(lane))
    return first, np.append(first[1:], len(lane))[: len(first)] - 1


def _threads_by_first_row(launches: pa.Table, rank: Ints) -> Ints:
    """Return the thread of each call, numbered by rank and first call, whatever ranks are at
    hand."""
    names = [codes_of(launches[name])[0] for name in ("process", "thread")]
    threads = Groups.by_keys([rank, *names])
    code = np.empty(len(threads), np.int64)
    code[order_by(threads.keys[:, 0], threads.first_row)] = np.arange(len(threads))
    return code[threads.group_ids]


def _number_lanes(*columns: NDArray[np.integer]) -> Ints:
    """Return one number for each distinct combination."""
    return Groups.by_keys(columns).group_ids


def collective_rows(tables: NamedTables, rows: Ints) -> Ints:
    """Row of `collectives` for each activity; -1: none."""
    kernels = tables["kernels"]
    comm = tables["collectives"]
    linked = np.flatnonzero(mark_valid(comm["event"]))
    positions = row_of(event_keys(comm)[linked], event_keys(kernels)[rows])
    return take_or(linked, positions)
