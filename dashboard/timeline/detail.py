"""Level of detail: exact spans where they can be seen, exact busy shares of pixels elsewhere.

Spans lie sorted by (lane, kind, start) on one axis; with prefix sums of their lengths a viewport
is one searchsorted. Spans of one lane and kind do not overlap.
"""

import json
import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from htk.dashboard.timeline.lanes import KINDS, Lanes

MIN_PIXELS = 2.0
MOST_SPANS = 6000
MOST_PIXELS = 8000

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Detail:
    """An index over the lanes of one trace."""

    lanes: Lanes

    @cached_property
    def length(self) -> int:
        return int(self.lanes.end.max(initial=0)) + 2

    @cached_property
    def _parts(self) -> tuple[Ints, Ints]:
        """(lane, kind) of each part, and the part of each span."""
        pair = self.lanes.lane * len(KINDS) + self.lanes.kind
        parts, which = np.unique(pair, return_inverse=True)
        return parts, which.ravel()

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self._parts[1] * self.length + self.lanes.start, kind="stable")

    @cached_property
    def _key(self) -> Ints:
        return (self._parts[1] * self.length + self.lanes.start)[self._order]

    @cached_property
    def _start(self) -> Ints:
        return self.lanes.start[self._order]

    @cached_property
    def _end(self) -> Ints:
        return self.lanes.end[self._order]

    @cached_property
    def _sums(self) -> Ints:
        return np.concatenate([[0], np.cumsum(self._end - self._start)])

    @cached_property
    def _offset(self) -> Ints:
        return np.searchsorted(self._key, np.arange(len(self._parts[0]) + 1) * self.length)

    def busy(self, edges: Ints) -> tuple[NDArray[np.float64], Ints]:
        """Busy time of each part between neighbouring edges, and the place of each edge."""
        parts = np.arange(len(self._parts[0]))[:, None]
        place = np.searchsorted(self._key, parts * self.length + edges[None, :], side="right")
        base = self._offset[:-1][:, None]
        before = np.maximum(place - 1, 0)
        over = np.maximum(0, self._end[before] - edges[None, :])
        upto = self._sums[place] - np.where(place > base, over, 0) - self._sums[base]
        return np.diff(upto, axis=1).astype(np.float64), place

    def view(self, start: float, end: float, width: int) -> bytes:
        """What a viewport shows, packed for the browser."""
        width = max(1, min(width, MOST_PIXELS))
        if not len(self.lanes.labels):
            return _packed({"width": width, "lanes": 0}, [])
        span = max(1.0, end - start)
        edges = np.clip(start + span * np.arange(width + 1) / width, 0, self.length - 1)
        busy, place = self.busy(edges.astype(np.int64))
        share = np.clip(busy / (span / width), 0, 1)
        rows, whole = self._spans(place, span / width * MIN_PIXELS, width)
        share[whole] = 0
        density, dominant = self._folded(share)
        order = self._order[rows]
        head: dict[str, object] = {
            "width": width,
            "lanes": len(self.lanes.labels),
            "count": len(rows),
        }
        return _packed(
            head,
            [
                ("density", density),
                ("dominant", dominant),
                ("x", ((self._start[rows] - start) / span).astype(np.float32)),
                ("w", ((self._end[rows] - self._start[rows]) / span).astype(np.float32)),
                ("name", self.lanes.name[order].astype(np.uint32)),
                ("table", self.lanes.table[order].astype(np.uint32)),
                ("row", self.lanes.row[order].astype(np.uint32)),
                ("lane", self.lanes.lane[order].astype(np.uint16)),
                ("kind", self.lanes.kind[order].astype(np.uint8)),
            ],
        )

    def _spans(self, place: Ints, least: float, width: int) -> tuple[Ints, NDArray[np.bool_]]:
        """Spans that are wide enough or few enough to be drawn, and parts drawn whole."""
        low = np.maximum(place[:, 0] - 1, self._offset[:-1])
        high = place[:, -1]
        length = self._end - self._start
        chosen = []
        whole = np.zeros(len(low), bool)
        for k in range(len(low)):  # a few lanes
            a, b = int(low[k]), int(high[k])
            whole[k] = b - a <= width // 4
            rows = np.arange(a, b) if whole[k] else a + np.flatnonzero(length[a:b] >= least)
            chosen.append(rows)
        rows = np.concatenate(chosen).astype(np.int64)
        if len(rows) > MOST_SPANS:
            longest = np.argpartition(length[rows], len(rows) - MOST_SPANS)[-MOST_SPANS:]
            rows = rows[np.sort(longest)]
            whole[:] = False
        return rows, whole

    def _folded(self, share: NDArray[np.float64]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Parts of a lane together: how busy each pixel is, and with which kind most."""
        shape = (len(self.lanes.labels), share.shape[1])
        density, dominant, best = np.zeros(shape), np.zeros(shape, np.uint8), np.zeros(shape)
        for k, part in enumerate(self._parts[0].tolist()):  # a few parts
            lane, kind = divmod(part, len(KINDS))
            density[lane] += share[k]
            more = share[k] > best[lane]
            best[lane][more] = share[k][more]
            dominant[lane][more] = kind
        return np.ceil(np.clip(density, 0, 1) * 255).astype(np.uint8), dominant


def _packed(head: dict[str, object], arrays: list[tuple[str, NDArray[np.generic]]]) -> bytes:
    """A JSON head with the place of each array, then the arrays, each at a multiple of 8."""
    body, places, offset = [], [], 0
    for name, array in arrays:
        data = np.ascontiguousarray(array).tobytes()
        places.append([name, offset, len(data)])
        padding = b"\0" * (-len(data) % 8)
        body += [data, padding]
        offset += len(data) + len(padding)
    text = json.dumps({**head, "arrays": places}).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return struct.pack("<I", len(text)) + text + b"".join(body)
