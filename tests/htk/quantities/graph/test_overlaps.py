"""Overlaps in compiled code, in NumPy, and counted nanosecond by nanosecond are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.overlaps import (
    Nodes,
    beside_pure,
    busy_pure,
    measure_busy_sets,
    share_time_beside,
)


def _step(rng: np.random.Generator) -> tuple[np.ndarray, list[Nodes]]:
    """Return times of some nodes, and three sets of spans among them, in order or not."""
    sets = []
    for many in rng.integers(0, 12, 3).tolist():
        start = rng.integers(0, 40, many)
        if rng.random() < 0.5:
            start.sort()
        sets.append(Nodes(start, np.minimum(start + rng.integers(0, 9, many), 39)))
    return np.sort(rng.integers(0, 60, 40)), sets


def _instants(time: np.ndarray, nodes: Nodes) -> list[set[int]]:
    spans = zip(time[nodes.start].tolist(), time[nodes.end].tolist(), strict=True)
    return [set(range(start, end)) for start, end in spans]


@given(st.integers(0, 1 << 32))
def test_every_nanosecond_asked(seed: int) -> None:
    time, (one, two, three) = _step(np.random.default_rng(seed))
    each = [_instants(time, nodes) for nodes in (one, two, three)]
    first, second, third = (set[int]().union(*spans) for spans in each)
    lengths = len(first), len(first | second), len(first | second | third)
    assert (
        measure_busy_sets(time, (one, two, three)) == busy_pure(time, (one, two, three)) == lengths
    )
    shares = [len(second & own) / max(len(own), 1) for own in each[0]]
    assert (
        share_time_beside(time, one, two).tolist() == beside_pure(time, one, two).tolist() == shares
    )


def test_nodes_that_are_not_there_are_refused() -> None:
    compiled = pytest.importorskip("htk.base.native._overlaps", reason="not built with a compiler")
    time, some, none = np.arange(4), np.array([0, 4]), np.empty(0, np.int64)
    with pytest.raises(IndexError, match="a span of a node that is not there"):
        compiled.busy(time, none, none, some, some, none, none)
    with pytest.raises(IndexError, match="a span of a node that is not there"):
        compiled.beside(time, -some, some, none, none, np.empty(2))
    with pytest.raises(ValueError, match="starts and ends differ in length"):
        compiled.busy(time, none, none, none, some, none, none)
    with pytest.raises(ValueError, match="spans and shares differ in length"):
        compiled.beside(time, none, none, none, none, np.empty(2))
