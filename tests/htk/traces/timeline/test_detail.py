"""Level of detail against counting: busy shares of pixels are exact, wide spans are given whole."""

import json
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.traces.timeline.detail import Detail
from htk.traces.timeline.lanes import Lane, Lanes
from htk.traces.timeline.sources import KINDS, TABLES

GAPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12)


def lanes(rows: list[list[tuple[int, int]]]) -> Lanes:
    """Lanes of (gap, length) pairs, one behind the other; odd spans are of another kind."""
    lane, start, end = [], [], []
    for number, pairs in enumerate(rows):
        at = 0
        for gap, length in pairs:
            lane.append(number)
            start.append(at + gap)
            at += gap + length
            end.append(at)
    count = len(lane)
    return Lanes.in_order(
        [Lane(0, "streams", str(k), 0) for k in range(len(rows))],
        np.array(lane),
        np.arange(count) % 2,
        ["even", "odd"],
        np.array([0, 1], np.uint8),
        np.array(start),
        np.array(end),
        np.full(count, TABLES.index("kernels")),
        np.arange(count),
    )


@given(st.lists(GAPS, min_size=1, max_size=3))
def test_busy_time_of_every_pixel(rows: list[list[tuple[int, int]]]) -> None:
    made = lanes(rows)
    detail = Detail(made)
    edges = np.arange(made.high + 1)
    parts = np.unique(made.lane * len(KINDS) + made.kind)
    busy = detail.busy(edges, np.arange(len(parts)))
    for k, part in enumerate(parts.tolist()):
        mine = (made.lane * len(KINDS) + made.kind) == part
        expected = np.zeros(made.high)
        for start, end in zip(made.start[mine], made.end[mine], strict=True):
            expected[start:end] += 1
        assert busy[k].tolist() == expected.tolist()


def test_a_few_spans_come_whole() -> None:
    detail = Detail(lanes([[(1, 3), (2, 4)]]))
    data = detail.view(0, 20, 100)
    (size,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + size])
    assert head["count"] == 2
    place = {name: (offset, length) for name, offset, length in head["arrays"]}
    offset, length = place["x"]
    x = np.frombuffer(data[4 + size + offset : 4 + size + offset + length], np.float32)
    assert (x * 20).round().tolist() == [1, 6]
    offset, length = place["density"]
    assert not any(data[4 + size + offset : 4 + size + offset + length]), "nothing drawn twice"


def test_only_the_lanes_that_are_asked_for_in_their_order() -> None:
    detail = Detail(lanes([[(1, 3)], [(2, 3)], [(4, 3)]]))
    data = detail.view(0, 10, 50, [2, 1])
    (size,) = struct.unpack("<I", data[:4])
    head = json.loads(data[4 : 4 + size])
    assert (head["lanes"], head["count"]) == (2, 2)
    place = {name: (offset, length) for name, offset, length in head["arrays"]}
    body = data[4 + size :]
    found = {
        n: np.frombuffer(body[o : o + m], t)
        for n, t in (("lane", "u2"), ("id", "u4"))
        for o, m in [place[n]]
    }
    assert dict(zip(found["id"].tolist(), found["lane"].tolist(), strict=True)) == {2: 0, 1: 1}


def test_nothing_at_all() -> None:
    none = np.empty(0, np.int64)
    empty = Detail(Lanes([], none, none, [], np.empty(0, np.uint8), none, none, none, none))
    assert b'"lanes": 0' in empty.view(0, 10, 100)


def test_lanes_whose_clocks_lie_decades_apart() -> None:
    """Parts times their extent is more than an integer holds: each keeps its own spans."""
    far, count = 1 << 60, 6
    pair = [(lane, k) for lane in range(count) for k in range(4)]
    start = np.array([(-far if lane % 2 else far) + 100 * lane + 10 * k for lane, k in pair])
    name = np.array([k % 2 for _, k in pair])
    lane = np.array([lane for lane, _ in pair])
    order = np.random.default_rng(3).permutation(len(pair))
    order = order[np.argsort(start[order], kind="stable")]
    spread = Lanes.in_order(
        [Lane((1 << 20) + k, "streams", "7", 0) for k in range(count)],
        lane[order],
        name[order],
        ["even", "odd"],
        np.array([0, 1], np.uint8),
        start[order],
        start[order] + 1 + lane[order],
        np.full(len(pair), TABLES.index("kernels")),
        np.arange(len(pair)),
    )
    detail = Detail(spread)
    parts = np.arange(2 * count)
    assert detail.part_lane.tolist() == [k // 2 for k in parts.tolist()]
    assert detail.offset.tolist() == [2 * k for k in range(2 * count + 1)]
    rows = list(zip(spread.lane, spread.name, spread.start, strict=True))
    assert rows == sorted(rows)
    edges = np.array([-far, -far + 105, -far + 200, far, far + 215, far + 600])
    begun, busy = detail.positions(parts, edges), detail.busy(edges, parts)
    for part in parts.tolist():
        own = (spread.lane == part // 2) & (spread.name == part % 2)
        starts, ends = spread.start[own], spread.end[own]
        until = [2 * part + int((starts <= edge).sum()) for edge in edges.tolist()]
        assert begun[part].tolist() == until
        covered = [
            int(np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0).sum())
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]
        assert busy[part].tolist() == covered


@given(st.lists(GAPS, min_size=1, max_size=3), st.integers(0, 40), st.integers(1, 60))
def test_cells_of_the_axis_in_which_anything_lies(
    rows: list[list[tuple[int, int]]], start: int, cells: int
) -> None:
    some = lanes(rows)
    runs = Detail(some).hits(start + 2.0 * np.arange(cells + 1))
    assert all(a < b for a, b in runs)
    lit = {cell for a, b in runs for cell in range(a, b)}
    assert sum(b - a for a, b in runs) == len(lit), "runs do not overlap"
    for cell in range(cells):  # each two long
        low, high = start + 2 * cell, start + 2 * cell + 2
        spans = zip(some.start.tolist(), some.end.tolist(), strict=True)
        inside = any(max(a, low) < min(b, high) for a, b in spans)
        at_once = any(
            a == b and low <= a < high
            for a, b in zip(some.start.tolist(), some.end.tolist(), strict=True)
        )
        assert cell in lit if inside else (cell not in lit or at_once)
