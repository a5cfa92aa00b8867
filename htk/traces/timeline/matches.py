"""The spans that a search or path selects, as lanes of their own, to be highlighted."""

import numpy as np

from htk.base.columns.types import Ints, Mask
from htk.traces.timeline.lanes import Lanes
from htk.traces.timeline.sources import TABLES, SpanSource, build_busy_spans

_STREAMS = "streams"
_BUSY = "busy"


def select_matching(lanes: Lanes, chosen: Mask) -> Lanes:
    """Return the chosen spans on the same lanes, and each rank's busy lane made of them alone."""
    rows = np.flatnonzero(chosen & (lanes.row >= 0))
    strips = build_busy_spans(_on_streams(lanes, rows))
    lane_of = {lane.rank: k for k, lane in enumerate(lanes.lanes) if lane.section == _BUSY}
    strip_lane = np.array([lane_of.get(rank, -1) for rank in strips.rank.tolist()], np.int64)
    kept = np.flatnonzero(strip_lane >= 0)
    names = len(lanes.names)  # the kinds of the strips have names of their own
    return Lanes.in_order(
        lanes.lanes,
        lane=np.concatenate([lanes.lane[rows], strip_lane[kept]]),
        name=np.concatenate([lanes.name[rows], names + strips.name[kept]]),
        names=[*lanes.names, *strips.names],
        kinds=np.concatenate([lanes.kinds, np.arange(len(strips.names), dtype=np.uint8)]),
        start=np.concatenate([lanes.start[rows], strips.start[kept]]),
        end=np.concatenate([lanes.end[rows], strips.end[kept]]),
        table=np.concatenate([lanes.table[rows], np.full(len(kept), TABLES.index(_BUSY))]),
        row=np.concatenate([lanes.row[rows], np.full(len(kept), -1)]),
    )


def _on_streams(lanes: Lanes, rows: Ints) -> SpanSource:
    """Return the spans of those that ran on streams of GPUs, as `busy` reads them."""
    streams = np.array([lane.section == _STREAMS for lane in lanes.lanes], bool)
    ranks = np.array([lane.rank for lane in lanes.lanes], np.int64)
    chosen = rows[streams[lanes.lane[rows]]]
    lane = lanes.lane[chosen]
    kind = lanes.kind[chosen]
    none = np.zeros(len(chosen), np.int64)
    return SpanSource(
        _BUSY, _BUSY, ranks[lane], none, [_BUSY], kind, none, [_BUSY],
        lanes.start[chosen], lanes.end[chosen], none - 1,
    )  # fmt: skip
