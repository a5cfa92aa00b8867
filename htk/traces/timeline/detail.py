"""Level of detail: exact spans where they can be seen, exact busy shares of pixels elsewhere.

Spans lie by lane, kind and start, those of a lane and kind (a part) one behind the other; with
prefix sums of their lengths a viewport is one look-up of its edges in each part.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.groups import row_of
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import Ints, fill_none
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.traces.timeline.lanes import Lanes
from htk.traces.timeline.nodes import SECTION as NODE
from htk.traces.timeline.nodes import MeanBusy, Node, mean_busy
from htk.traces.timeline.sources import KINDS

STRIPES = ("compute", "comm", "memory")  # of a rank's strip, from the bottom up
MIN_PIXELS = 2.0
MOST_SPANS = 6000
MOST_PIXELS = 8000
MOST_CELLS = 120_000  # of density in one answer; beyond, a cell is several pixels wide


class Bounded(Protocol):
    """A counter that tells its lowest and highest value between neighbouring edges."""

    def bounds(self, edges: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...


@dataclass(frozen=True)
class Detail:
    """An index over the lanes of one trace."""

    lanes: Lanes
    nodes: Mapping[int, Node] = field(default_factory=dict)  # by their lanes

    @cached_property
    def offset(self) -> Ints:
        """Return where each part begins, and where the last one ends."""
        lane, kind = self.lanes.lane, self.lanes.kind
        starts = np.flatnonzero(mark_heads(lane, kind)) if len(lane) else fill_none(0)
        return np.append(starts, len(lane))

    @cached_property
    def part_keys(self) -> Ints:
        """Return the lane and kind of each part."""
        first = self.offset[:-1]
        return np.stack([self.lanes.lane[first], self.lanes.kinds[self.lanes.name[first]]], 1)

    @property
    def part_lane(self) -> Ints:
        return np.asarray(self.part_keys[:, 0])

    @cached_property
    def _sums(self) -> Ints:
        sums = np.zeros(len(self.lanes.start) + 1, np.int64)
        np.subtract(self.lanes.end, self.lanes.start, out=sums[1:])
        return np.cumsum(sums, out=sums)

    @cached_property
    def _summary(self) -> NDArray[np.bool_]:
        """The lanes whose kinds lie on top of each other, which are drawn as shares only."""
        return np.array([lane.section in ("busy", NODE) for lane in self.lanes.lanes], bool)

    @cached_property
    def busy_nodes(self) -> list[tuple[int, int, MeanBusy]]:
        """The lane of each node, a kind of work, and how busy its ranks are with it."""
        if not self.nodes:
            return []
        node_of = {rank: k for k, node in enumerate(self.nodes.values()) for rank in node.ranks}
        node = np.array([node_of.get(lane.rank, -1) for lane in self.lanes.lanes], np.int64)
        rows = np.flatnonzero(self._summary[self.lanes.lane])
        rows = rows[node[self.lanes.lane[rows]] >= 0]
        busy = mean_busy(
            node[self.lanes.lane[rows]],
            self.lanes.kinds[self.lanes.name[rows]].astype(np.int64),
            self.lanes.start[rows],
            self.lanes.end[rows],
            np.array([len(node.ranks) for node in self.nodes.values()], np.int64),
        )
        lanes = list(self.nodes)
        return [(lanes[number], kind, spent) for number, kind, spent in busy]

    def indexed(self) -> "Detail":
        """Return it with what several first views at once would each make."""
        _ = self._sums, self.offset, self.part_keys, self.busy_nodes
        return self

    def positions(self, parts: Ints, edges: Ints) -> Ints:
        """Return how many spans begin up to each edge, for each of some parts."""
        begun = np.empty((len(parts), len(edges)), np.int64)
        for k, (first, after) in enumerate(self._find_bounds(parts)):  # those in sight
            own = self.lanes.start[first:after]
            begun[k] = first + np.searchsorted(own, edges, side="right")
        return begun

    def _find_bounds(self, parts: Ints) -> Iterator[tuple[int, int]]:
        first = self.offset[parts]
        after = self.offset[parts + 1]
        return zip(first.tolist(), after.tolist(), strict=True)

    def busy(self, edges: Ints, parts: Ints) -> NDArray[np.float64]:
        """Return the busy time of each of some parts between neighbouring edges, in ns."""
        begun = self.positions(parts, edges)
        base = self.offset[parts][:, None]
        over = np.maximum(0, self.lanes.end[np.maximum(begun - 1, 0)] - edges[None, :])
        upto = self._sums[begun] - np.where(begun > base, over, 0) - self._sums[base]
        return np.diff(upto, axis=1).astype(np.float64)

    def view(
        self,
        start: float,
        end: float,
        width: int,
        lanes: Sequence[int] | None = None,
        lit: "Detail | None" = None,
        counters: "Mapping[int, Bounded] | None" = None,
    ) -> bytes:
        """Return what a viewport shows of some lanes, from top to bottom, packed for the browser.

        With it: how much of that belongs to `lit`, spans of the same lanes, and the bounds of
        `counters`, which are by lane.
        """
        width = max(1, min(width, MOST_PIXELS))
        every = len(self.lanes.lanes)
        chosen = np.array(range(every) if lanes is None else lanes, np.int64)
        if not np.isfinite([start, end]).all():
            raise UsageError("a view begins and ends at some time")
        span = max(1.0, end - start)
        low = int(np.floor(start))
        high = int(np.ceil(start + span))
        line = fill_none(every + 1)
        line[chosen] = np.arange(len(chosen))
        parts = np.flatnonzero(line[self.part_lane] >= 0)
        rows, is_drawn = self._select_spans(parts, low, high, span / width * MIN_PIXELS, width)
        rest = parts[~is_drawn]
        cells = max(1, min(width, MOST_CELLS // max(1, len(rest))))
        marks = start + span * np.arange(cells + 1) / cells
        edges = np.clip(marks, self.lanes.low, self.lanes.high).astype(np.int64)
        drawn = self._draw_cells("", edges, rest, line, marks)
        if lit is not None:
            wanted = row_of(self.part_keys[rest], lit.part_keys) >= 0
            wanted |= lit._summary[lit.part_lane] & (line[lit.part_lane] >= 0)
            drawn += lit._draw_cells("lit_", edges, np.flatnonzero(wanted), line, marks)
        head: Fields = {"cells": cells, "lanes": len(chosen), "count": len(rows)}
        head["merged"] = bool(len(rows) >= MOST_SPANS)
        if lit is not None:
            head["hits"] = lit.hits(marks)
        head["strips"] = [k for k, lane in enumerate(chosen.tolist()) if self._summary[lane]]
        head["counters"] = [k for k, lane in enumerate(chosen.tolist()) if lane in (counters or {})]
        bounds = [(counters or {})[int(chosen[k])].bounds(edges) for k in head["counters"]]
        return pack_arrays(
            head,
            [
                *drawn,
                ("counter_low", np.array([low for low, _ in bounds], np.float32)),
                ("counter_high", np.array([high for _, high in bounds], np.float32)),
                ("x", ((self.lanes.start[rows] - start) / span).astype(np.float32)),
                ("w", ((self.lanes.end[rows] - self.lanes.start[rows]) / span).astype(np.float32)),
                ("id", rows.astype(np.uint32)),
                ("name", self.lanes.name[rows].astype(np.uint32)),
                ("lane", line[self.lanes.lane[rows]].astype(np.uint16)),
            ],
        )

    def hits(self, marks: NDArray[np.float64]) -> list[list[int]]:
        """Return runs of cells in which any span lies, on whichever lane; an end is exclusive."""
        spans = (self.lanes.end > marks[0]) & (self.lanes.start < marks[-1])
        cells = len(marks) - 1
        first = np.searchsorted(marks, self.lanes.start[spans], side="right") - 1
        last = np.searchsorted(marks, self.lanes.end[spans], side="left")
        first = np.clip(first, 0, cells - 1)
        change = np.zeros(cells + 1, np.int64)
        np.add.at(change, first, 1)
        np.add.at(change, np.clip(last, first + 1, cells), -1)
        has = np.concatenate([[False], np.cumsum(change[:-1]) > 0, [False]])
        runs: list[list[int]] = np.flatnonzero(np.diff(has)).reshape(-1, 2).tolist()
        return runs

    def _draw_cells(
        self, prefix: str, edges: Ints, parts: Ints, line: Ints, marks: NDArray[np.float64]
    ) -> list[tuple[str, NDArray[np.generic]]]:
        """Return how busy each cell is: lanes in total with their main kind, strips by kind."""
        cell = (marks[-1] - marks[0]) / max(len(marks) - 1, 1)
        share = np.clip(self.busy(edges, parts) / cell, 0, 1)
        density, dominant = self._fold_cells(share, parts, line, int(line.max(initial=-1)) + 1)
        strips = sorted(int(line[k]) for k in np.flatnonzero(self._summary & (line[:-1] >= 0)))
        stack = np.zeros((len(strips), len(STRIPES), len(edges) - 1), np.uint8)
        for k in np.flatnonzero(self._summary[self.part_lane[parts]]).tolist():  # three a rank
            lane, kind = self.part_keys[parts[k]].tolist()
            stripe = strips.index(int(line[lane])), STRIPES.index(KINDS[kind])
            stack[stripe] = np.rint(share[k] * 255)
        for lane, kind, spent in self.busy_nodes:
            if line[lane] >= 0:
                stripe = strips.index(int(line[lane])), STRIPES.index(KINDS[kind])
                stack[stripe] = np.rint(np.clip(spent.between(edges) / cell, 0, 1) * 255)
        arrays: dict[str, NDArray[np.generic]]
        arrays = {"density": density, "dominant": dominant, "stack": stack}
        return [(prefix + name, array) for name, array in arrays.items()]

    def _select_spans(
        self, parts: Ints, low: int, high: int, least: float, width: int
    ) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the spans wide enough or few enough to draw, and which parts are drawn whole."""
        bounds = self.positions(parts, np.array([low, high], np.int64))
        first = np.maximum(bounds[:, 0] - 1, self.offset[parts])
        last = bounds[:, 1]
        summary = self._summary[self.part_lane[parts]]
        is_drawn = (last - first <= width // 4) & ~summary
        chosen = [np.empty(0, np.int64)]
        for k in np.flatnonzero(~summary).tolist():  # a few parts
            a = int(first[k])
            b = int(last[k])
            if is_drawn[k]:
                rows = np.arange(a, b)
            else:
                rows = a + np.flatnonzero(self.lanes.end[a:b] - self.lanes.start[a:b] >= least)
            chosen.append(rows)
        rows = np.concatenate(chosen)
        rows = rows[self.lanes.end[rows] >= low]
        if len(rows) > MOST_SPANS:
            length = self.lanes.end[rows] - self.lanes.start[rows]
            longest = np.argpartition(length, len(rows) - MOST_SPANS)[-MOST_SPANS:]
            rows = rows[np.sort(longest)]
            is_drawn = np.zeros(len(parts), bool)
        return rows, is_drawn

    def _fold_cells(
        self, share: NDArray[np.float64], parts: Ints, line: Ints, lanes: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return how busy each cell of a lane is over all its parts, and with which kind most."""
        shape = (lanes, share.shape[1])
        density = np.zeros(shape)
        dominant = np.zeros(shape, np.uint8)
        best = np.zeros(shape)
        for k, (lane, kind) in enumerate(self.part_keys[parts].tolist()):  # a few parts
            position = int(line[lane])
            density[position] += share[k]
            more = share[k] > best[position]
            best[position][more] = share[k][more]
            dominant[position][more] = kind
        return np.ceil(np.clip(density, 0, 1) * 255).astype(np.uint8), dominant


def pack_arrays(
    head: dict[str, object], arrays: Sequence[tuple[str, NDArray[np.generic]]]
) -> bytes:
    """Return a JSON head with the place of each array, then the arrays, each at a multiple of 8."""
    body = []
    places = []
    offset = 0
    for name, array in arrays:
        data = np.ascontiguousarray(array).tobytes()
        places.append([name, offset, len(data)])
        padding = b"\0" * (-len(data) % 8)
        body += [data, padding]
        offset += len(data) + len(padding)
    text = json.dumps({**head, "arrays": places}).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return struct.pack("<I", len(text)) + text + b"".join(body)
