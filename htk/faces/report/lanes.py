"""The timeline of a report: what ran on each stream during one step, in as many cells as pixels."""

from base64 import b64encode
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    codes_of,
    mark_valid,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.intervals import Spans
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints, Mask
from htk.base.core.humanize import shorten_text
from htk.base.mappings import Fields
from htk.quantities.derived.recorded import recorded_spans
from htk.traces.trace.trace import Trace

CELLS = 1200
MOST_LANES = 48
KINDS = ("compute", "comm", "memory")
UNRECORDED = -2  # the code of cells that no file of the rank reaches into
_LEAST_BUSY = 0.001  # of the busiest stream; those that do less are left out
_NAME = 56


@dataclass(frozen=True)
class LaneCells:
    """Cells of each lane; a cell holds the activity in its middle, and how busy it is."""

    title: str
    start_ns: int  # since the trace began
    length_ns: int
    lanes: list[str]
    names: list[str]
    kinds: list[int]  # of each name, into KINDS
    name_codes: NDArray[np.int16]  # lanes × cells, into names; -1: nothing runs, -2: not recorded
    busy: NDArray[np.uint8]  # lanes × cells, 255: all the time
    left_out: int

    def packed(self) -> Fields:
        """For the script that draws it."""
        return {
            "title": self.title,
            "start_ns": self.start_ns,
            "length_ns": self.length_ns,
            "lanes": self.lanes,
            "names": self.names,
            "kinds": self.kinds,
            "cells": CELLS,
            "codes": b64encode(self.name_codes.astype("<i2").tobytes()).decode(),
            "busy": b64encode(self.busy.tobytes()).decode(),
            "left_out": self.left_out,
        }


def select_lanes(trace: Trace) -> LaneCells | None:
    """A step of median length on all ranks, else the whole recording; None without GPU work."""
    table = trace.tables["activities"]
    if not table.num_rows:
        return None
    title, low, high = _choose_window(trace)
    start, end = read_times(table)
    inside = np.flatnonzero((start < high) & (end > low))
    keys_of_row = [read_keys(table[c])[inside] for c in ("rank", "device", "stream")]
    codes, names = codes_of(table["name"])
    kinds, kind_names = codes_of(table["kind"])
    kind_codes = np.array(
        [KINDS.index(k) if k in KINDS else 0 for k in kind_names.to_pylist()] + [0]
    )
    used, code = np.unique(codes[inside], return_inverse=True)
    kind_of = np.zeros(len(used), np.int64)
    kind_of[code] = kind_codes[kinds[inside]]
    start = start[inside]
    end = end[inside]
    keys, lane_of_row = np.unique(np.stack(keys_of_row), axis=1, return_inverse=True)
    chosen = _choose_lanes(lane_of_row.ravel(), start, end, keys[0])
    drawn = [_fill_cells(start[m], end[m], code[m], low, high) for m in chosen.values()]
    recorded = recorded_spans(trace.tables["ranks"], table)
    lost = [_mark_unrecorded(recorded[int(r), int(d)], low, high) for r, d in keys[:2, [*chosen]].T]
    text = names.to_pylist()
    return LaneCells(
        title,
        low - trace.origin_ns,
        high - low,
        [_label_lane(keys[:, k], keys) for k in chosen],
        [_shorten_kernel(str(text[k])) for k in used.tolist()],
        kind_of.tolist(),
        np.where(lost, UNRECORDED, np.stack([cells for cells, _ in drawn])).astype(np.int16),
        np.stack([busy for _, busy in drawn]),
        keys.shape[1] - len(chosen),
    )


def _choose_window(trace: Trace) -> tuple[str, int, int]:
    """Name, start and end of what is drawn."""
    steps = trace.tables["step_windows"]
    complete = np.flatnonzero(mark_valid(steps["step"]) & read_booleans(steps["complete"]))
    if not len(complete):
        windows = trace.tables["rank_windows"]
        low = int(read_numbers(windows["start_ns"]).min())
        high = int(read_numbers(windows["end_ns"]).max())
        return "The whole recording", low, high
    step = np.stack([read_numbers(steps[c])[complete] for c in ("cycle", "step")], axis=1)
    start, end = read_times(steps, complete)
    length = end - start
    median = step[order_by(length)][len(length) // 2]
    of_step = (step == median).all(axis=1)
    return f"Step {median[1]}", int(start[of_step].min()), int(end[of_step].max())


def _choose_lanes(lane_of_row: Ints, start: Ints, end: Ints, rank: Ints) -> dict[int, Ints]:
    """Return the rows of each lane that is drawn: the streams that work, of the first ranks."""
    busy = np.bincount(lane_of_row, end - start)
    lanes = np.flatnonzero(busy >= _LEAST_BUSY * busy.max(initial=0)).tolist()
    ranks = sorted({int(rank[k]) for k in lanes})
    each = max(len(lanes) // max(len(ranks), 1), 1)
    shown = set(ranks[: max(MOST_LANES // each, 1)])
    return {
        k: np.flatnonzero(lane_of_row == k) for k in [k for k in lanes if int(rank[k]) in shown]
    }


def _fill_cells(
    start: Ints, end: Ints, code: Ints, low: int, high: int
) -> tuple[Ints, NDArray[np.uint8]]:
    """Return what runs in the middle of each cell, and how much of it is filled."""
    edges = low + (np.arange(2 * CELLS + 1) * (high - low)) // (2 * CELLS)
    middle = edges[1::2]
    edge = edges[::2]
    order = order_by(start)
    start = start[order]
    end = np.sort(end)
    code = code[order]
    own_end = end if len(end) < 2 else np.maximum.accumulate(end)
    latest = np.searchsorted(start, middle, side="right") - 1
    runs = (latest >= 0) & (middle < own_end[np.maximum(latest, 0)])
    filled = np.diff(_sum_time_before(edge, start) - _sum_time_before(edge, end)) / np.maximum(
        np.diff(edge), 1
    )
    name = np.where(runs, code[np.maximum(latest, 0)], -1)
    nearest = code[np.clip(np.searchsorted(start, edge[1:]) - 1, 0, len(code) - 1)]
    name = np.where((name < 0) & (filled > 0), nearest, name)
    return name, np.rint(255 * np.clip(filled, 0, 1)).astype(np.uint8)


def _mark_unrecorded(recorded: Spans, low: int, high: int) -> Mask:
    """Cells whose middle no recording reaches into."""
    middle = low + (np.arange(1, 2 * CELLS, 2) * (high - low)) // (2 * CELLS)
    latest = np.searchsorted(recorded.start, middle, side="right") - 1
    return np.asarray((latest < 0) | (middle >= recorded.end[np.maximum(latest, 0)]))


def _sum_time_before(points: Ints, times: Ints) -> Ints:
    """Sum over times of how long ago each is, at each point; 0 for those to come."""
    total = np.concatenate([[0], np.cumsum(times - times[0])])
    count = np.searchsorted(times, points)
    return np.asarray(count * (points - times[0]) - total[count])


def _shorten_kernel(name: str) -> str:
    """Return a kernel's name without what every kernel's name has."""
    short = shorten_text(name, _NAME)
    for prefix in ("ncclDevKernel_", "ncclKernel_", "void "):
        short = short.removeprefix(prefix)
    return short


def _label_lane(key: Ints, keys: Ints) -> str:
    rank, device, stream = (int(k) for k in key)
    several = len(np.unique(keys[1][keys[0] == rank])) > 1
    gpu = f" · GPU {device}" if several else ""
    return f"{'rank ' + str(rank) if rank >= 0 else 'no rank'}{gpu} · stream {stream}"
