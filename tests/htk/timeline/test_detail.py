"""Level of detail against counting: busy shares of pixels are exact, wide spans are given whole."""

import json
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.timeline.detail import Detail
from htk.timeline.lanes import Lane, Lanes
from htk.timeline.sources import KINDS, TABLES

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
    return Lanes(
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
