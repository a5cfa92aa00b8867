"""How long each combination of kinds runs in each window of a device.

Kept beside the tables of a file: what most questions of time ask of its activities, in a row for
each window.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, read_numbers, read_times
from htk.base.columns.intervals import Spans, sweep_spans
from htk.base.columns.types import Ints
from htk.base.schema import INT64
from htk.base.schema.links import ADDED, RUNNING, WINDOW_TIMES
from htk.quantities.derived.windows import WindowedSpans, fill_windows, kinds_of

KINDS = ("compute", "comm", "memory", "other")  # other: of no known kind
BITS = {kind: 1 << k for k, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class KindTimes:
    """How long each combination of kinds runs, window by window."""

    total: Ints  # length of each window
    # A row per window; column = sum of bits: 1 compute, 2 comm, 4 memory; 8: nothing but other.
    times: Ints
    lengths: Ints  # of all activities of a known kind, added up; a row per window

    @classmethod
    def from_windows(cls, window_times: pa.Table) -> "KindTimes":
        """Return what a table of windows holds."""
        start, end = read_times(window_times)
        times = np.zeros((window_times.num_rows, len(RUNNING) + 1), np.int64)
        for on, name in enumerate(RUNNING, 1):
            times[:, on] = read_numbers(window_times[name])
        lengths = np.zeros((window_times.num_rows, len(ADDED)), np.int64)
        for k, name in enumerate(ADDED):
            lengths[:, k] = read_numbers(window_times[name])
        return cls(end - start, times, lengths)

    @property
    def busy(self) -> Ints:
        return self._sum(lambda on: on > 0)

    @property
    def idle(self) -> Ints:
        return self.total - self.busy

    def any(self, kind: str) -> Ints:
        """At least one activity of that known kind runs."""
        return self._sum(lambda on: bool(on & BITS[kind]))

    def both(self, kind: str, other: str) -> Ints:
        """Activities of both kinds run."""
        return self._sum(lambda on: bool(on & BITS[kind]) and bool(on & BITS[other]))

    def exposed(self, kind: str, *hiding: str) -> Ints:
        """Activities of that kind run, and none of the hiding kinds."""
        hidden = sum(BITS[other] for other in hiding)
        return self._sum(lambda on: bool(on & BITS[kind]) and not on & hidden)

    def exactly(self, *kinds: str) -> Ints:
        """Activities of just these kinds run, whatever of no kind runs beside them."""
        return np.asarray(self.times[:, sum(BITS[kind] for kind in kinds)])

    def added(self, kind: str) -> Ints:
        """Activities of that kind, each counted by itself."""
        return np.asarray(self.lengths[:, KINDS.index(kind)])

    def _sum(self, wanted: Callable[[int], bool]) -> Ints:
        columns = [on for on in range(self.times.shape[1]) if wanted(on)]
        return np.asarray(self.times[:, columns].sum(axis=1))


def kind_times(activities: pa.Table, windows: pa.Table) -> KindTimes:
    """Return how long each combination of kinds runs in each window."""
    return times_within(activities, fill_windows(activities, windows))


def times_within(activities: pa.Table, filled: WindowedSpans) -> KindTimes:
    """Return how long each combination of kinds runs, of activities cut to windows already."""
    kinds = kinds_of(activities, filled.row)
    pieces = [kinds.equals(kind) for kind in KINDS]
    unions: list[Spans] = [filled.union(of_kind) for of_kind in pieces]
    swept = sweep_spans(unions)
    window = filled.axis.window(swept.start)
    running = np.where(swept.on > BITS["other"], swept.on - BITS["other"], swept.on)
    times = np.zeros((len(filled.length), len(RUNNING) + 1), np.int64)
    np.add.at(times, (window, running), swept.end - swept.start)
    lengths = np.zeros((len(filled.length), len(ADDED)), np.int64)
    for k, of_kind in enumerate(pieces[: len(ADDED)]):
        length = (filled.end - filled.start)[of_kind]
        np.add.at(lengths[:, k], filled.window[of_kind], length)
    return KindTimes(filled.length, times, lengths)


def rank_window_times(activities: pa.Table, rank_windows: pa.Table) -> pa.Table:
    """Return the recorded windows, and what runs how long in each."""
    return _with_times(activities, rank_windows)


def step_window_times(activities: pa.Table, step_windows: pa.Table) -> pa.Table:
    """Return the GPU steps, and what runs how long in each."""
    return _with_times(activities, step_windows)


def _with_times(activities: pa.Table, windows: pa.Table) -> pa.Table:
    running = kind_times(activities, windows)
    columns = {name: windows[name] for name in windows.column_names}
    for on, name in enumerate(RUNNING, 1):
        columns[name] = build_numbers(running.times[:, on], INT64)
    for k, name in enumerate(ADDED):
        columns[name] = build_numbers(running.lengths[:, k], INT64)
    fields = [field for field in WINDOW_TIMES if field.name in columns]
    return pa.table([columns[field.name] for field in fields], schema=pa.schema(fields))
