"""What a neighbouring step took is what its whole graph says."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from htk.quantities.graph.build import Graph, build_graph, steps_at_hand
from htk.quantities.graph.step_lengths import StepLengths, step_lengths
from htk.traces.trace.opening import open_trace
from tests.htk.quantities.graph.small_step import step_tables

KINDS = ("run", "transfer", "call", "host_gap", "handover")


def tables_of(name: str) -> Mapping[str, pa.Table]:
    return step_tables() if name == "small" else open_trace(name).tables


def weights(of: Graph | StepLengths, kind: str, heads: np.ndarray) -> list[list[int]]:
    """The weights of the edges of a kind into each of these nodes, in their order."""
    into: dict[int, list[int]] = {}
    chosen = np.flatnonzero(of.edges(kind))
    for head, weight in zip(of.dst[chosen].tolist(), of.weight[chosen].tolist(), strict=True):
        into.setdefault(head, []).append(weight)
    return [into.get(head, []) for head in heads.tolist()]


@pytest.mark.parametrize("name", ["small", "sample_traces/simulated/llama2-7b"])
def test_lengths_are_those_of_the_whole_graph(name: str) -> None:
    tables = tables_of(name)
    for step in steps_at_hand(tables).numbers:
        whole, found = build_graph(tables, step), step_lengths(tables, step)
        assert found.window == whole.window
        assert found.wrap_weight.tolist() == whole.wrap_weight.tolist()
        assert found.wrap_seen.tolist() == whole.wrap_seen.tolist()
        seen = 0
        for kind in KINDS:
            for node in ("start", "end", "call_start", "call_end"):
                lengths = weights(found, kind, getattr(found, node))
                assert lengths == weights(whole, kind, getattr(whole, node))
                seen += sum(map(len, lengths))
        assert seen > len(whole.start)
