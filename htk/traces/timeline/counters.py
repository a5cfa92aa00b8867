"""Counters as rows of the timeline: what they are between which values in each cell of a view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.arrow import mark_valid, read_numbers
from htk.base.columns.groups import number_hosts, split_pairs
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.base.mappings import Fields
from htk.quantities.measures.counter_series import counter_series, recorded_series
from htk.traces.timeline.cuts import TimeCuts
from htk.traces.timeline.lanes import Lane
from htk.traces.timeline.sources import DisplayClock
from htk.traces.trace.trace import Trace

SECTION = "counters"
MOST_KEPT = 150_000  # points of all counters in a file
_POINTS = 3  # kept of each cell of a counter that has too many: lowest, highest, last


@dataclass(frozen=True)
class Counter:
    """A counter of a rank: its value holds from each time to the next; NaN: not recorded."""

    rank: int
    family: str
    name: str
    unit: str
    time: Ints  # on the axis, in order
    value: Floats

    def bounds(self, edges: Ints) -> tuple[Floats, Floats]:
        """Return the lowest and highest value between neighbouring edges; NaN: none there."""
        upto = np.searchsorted(self.time, edges, side="right")
        first = np.maximum(upto[:-1] - 1, 0)
        last = upto[1:]
        between = np.column_stack([first, np.maximum(last, first + 1)]).ravel()
        values = np.append(self.value, np.nan)
        low = np.fmin.reduceat(values, between)[::2]
        high = np.fmax.reduceat(values, between)[::2]
        begun = upto[1:] > 0
        return np.where(begun, low, np.nan), np.where(begun, high, np.nan)

    def reduced(self, most: int) -> "Counter":
        """Return the counter with no more values than that, its extremes among them; all gaps."""
        if len(self.time) <= most:
            return self
        cells = np.linspace(0, len(self.time), max(1, most // _POINTS) + 1).astype(np.int64)[:-1]
        cell = np.searchsorted(cells, np.arange(len(self.time)), side="right") - 1
        last = np.append(cells[1:], len(self.time)) - 1
        unknown = np.isnan(self.value)
        lowest = order_by(cell, np.where(unknown, np.inf, self.value))[cells]
        highest = order_by(cell, np.where(unknown, -np.inf, self.value))[last]
        kept = np.unique(np.concatenate([lowest, highest, last, np.flatnonzero(unknown)]))
        return replace(self, time=self.time[kept], value=self.value[kept])


def counters_of(trace: Trace, aligned: bool, cuts: TimeCuts) -> list[Counter]:
    """Return the counters of all ranks, those of one family beside each other."""
    tables = (trace.tables[name] for name in ("kernels", "kernel_links", "memory"))
    every = [*counter_series(*tables), *recorded_series(trace.tables["counters"])]
    if not every:
        return []
    ranks = split_pairs(np.array([part.host for part in every], np.int64))[0]
    named: dict[tuple[int, str, str, str], int] = {}  # several recordings of a rank make one
    number = [
        named.setdefault((rank, part.family, part.name, part.unit), len(named))
        for rank, part in zip(ranks.tolist(), every, strict=True)
    ]
    ends = _find_ends(trace)
    # The last value of a counter holds until the recording ends.
    ended = [k for k, p in enumerate(every) if p.host in ends and ends[p.host] >= p.time[-1]]
    until = np.array([ends[every[k].host] for k in ended], np.int64)
    time = np.concatenate([*(part.time for part in every), until])
    value = np.concatenate([*(part.value for part in every), np.full(len(ended), np.nan)])
    size = [len(part.time) for part in every]
    part_of = np.append(np.repeat(np.arange(len(every)), size), np.array(ended, np.int64))
    time = DisplayClock(trace, aligned)(ranks[part_of], time) - trace.origin_ns
    counter = np.array(number)[part_of]
    order = order_by(counter, time)
    position = cuts.position_of(time[order])
    edges = np.searchsorted(counter[order], np.arange(len(named) + 1)).tolist()
    return [
        Counter(*name, position[first:after], value[order[first:after]])
        for name, first, after in zip(named, edges, edges[1:], strict=False)
    ]


def counter_lanes(counters: Sequence[Counter]) -> list[Lane]:
    """Return a lane for each counter."""
    depth: dict[tuple[int, str], int] = {}
    lanes = []
    for counter in counters:
        key = counter.rank, counter.family
        lanes.append(Lane(counter.rank, SECTION, counter.family, depth.setdefault(key, 0)))
        depth[key] += 1
    return lanes


def describe_counters(counters: Mapping[int, Counter]) -> list[Fields]:
    """Return what the picture needs of each counter: its lane, name, unit and scale, the same scale
    for the same counter of all ranks."""
    values_of: dict[str, list[Floats]] = {}
    for counter in counters.values():
        values_of.setdefault(counter.name, [np.zeros(1)]).append(counter.value)
    every = {name: np.concatenate(values) for name, values in values_of.items()}
    tops = {
        name: (float(np.nanmin(values)), float(np.nanmax(values))) for name, values in every.items()
    }
    return [
        {
            "lane": lane,
            "name": c.name,
            "unit": c.unit,
            "low": tops[c.name][0],
            "high": tops[c.name][1],
        }
        for lane, c in sorted(counters.items())
    ]


def _find_ends(trace: Trace) -> dict[int, int]:
    """Return when each recording ends: what counters are afterwards is not known."""
    table = trace.tables["ranks"]
    rows = np.flatnonzero(mark_valid(table["end_ns"]))
    ends: dict[int, int] = {}
    for host, time in zip(
        number_hosts(table)[rows].tolist(),
        read_numbers(table["end_ns"])[rows].tolist(),
        strict=True,
    ):  # a file each
        ends[host] = max(ends.get(host, time), time)
    return ends
