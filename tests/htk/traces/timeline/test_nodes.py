"""Rows of nodes against counting: how many of a node's ranks are busy at each moment."""

import json
import struct
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.nodes import mean_busy, nodes_of
from htk.traces.trace.opening import OpenOptions, open_trace

SPANS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 40), st.integers(0, 9)),
    min_size=1,
    max_size=20,
)


@given(SPANS)
def test_mean_over_the_ranks_of_a_node(spans: list[tuple[int, int, int, int]]) -> None:
    node, kind, start, length = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    ranks = np.array([2, 5])
    edges = np.arange(51)
    for number, of_kind, busy in mean_busy(node, kind, start, start + length, ranks):
        counted = np.zeros(50)
        for own, k, begin, long in spans:
            if (own, k) == (number, of_kind):
                counted[begin : begin + long] += 1
        assert np.allclose(busy.between(edges), counted / ranks[number])


def test_many_ranks_are_rows_of_their_nodes(tmp_path: Path) -> None:
    config = Config(
        model="any", layers=1, hidden=64, heads=2, ffn=64, vocab=512, nodes=9, gpus_per_node=8,
        strategy="ddp", steps=2,
    )  # fmt: skip
    simulate_job(config, tmp_path / "run")
    trace = open_trace(tmp_path / "run", OpenOptions(cache=False))
    assert [node.ranks for node in nodes_of(trace)] == [
        list(range(8 * k, 8 * k + 8)) for k in range(9)
    ]
    assert nodes_of(trace.sel(ranks=[*range(64)])) == [], "as many ranks have rows of their own"
    timeline = TraceTimeline(trace)
    nodes = timeline.about()["nodes"]
    strips = [k for k, lane in enumerate(timeline.lanes.lanes) if lane.section == "busy"]
    high = timeline.lanes.high
    one = _shares(timeline.view(0, high, 40, str(nodes[1]["lane"])))[0]
    ranks = [lane for lane in strips if timeline.lanes.lanes[lane].rank in nodes[1]["ranks"]]
    each = _shares(timeline.view(0, high, 40, ",".join(map(str, ranks))))
    assert one.sum() > 0 and np.abs(one - each.mean(axis=0)).max() <= 1
    marked = timeline.stats(0, high, str(nodes[1]["lane"]))
    assert {rank for rank, _, _ in marked["kinds"]} == set(nodes[1]["ranks"])


def _shares(view: bytes) -> np.ndarray:
    (size,) = struct.unpack("<I", view[:4])
    head = json.loads(view[4 : 4 + size])
    offset, length = next((o, n) for name, o, n in head["arrays"] if name == "stack")
    stack = np.frombuffer(view[4 + size + offset :][:length], np.uint8)
    return stack.reshape(len(head["strips"]), 3, head["cells"]).astype(float)
