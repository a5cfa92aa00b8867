"""Which activities and beginnings of two steps are taken for each other."""

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.held_out import _build_keys, _pair_rows, _with_begins


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=12),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), max_size=12),
)
def test_the_nth_of_a_name_on_a_lane_has_the_nth_for_its_partner(
    own: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    def keys(rows: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(*row, rows[:k].count(row)) for k, row in enumerate(rows)]

    arrays = [
        _build_keys(*(np.array([row[k] for row in rows], np.int64) for k in (0, 1)))
        for rows in (own, theirs)
    ]
    assert [tuple(row) for row in arrays[0].tolist()] == keys(own)
    here, there = _pair_rows(*arrays)
    expected = {(k, keys(theirs).index(key)) for k, key in enumerate(keys(own))
                if key in keys(theirs)}  # fmt: skip
    assert set(zip(here.tolist(), there.tolist(), strict=True)) == expected


def test_a_step_begins_as_another_does_on_ranks_where_as_many_edges_lead_into_both() -> None:
    """Rank 0: two threads and two threads; rank 1: two and one; rank 2: one and one."""

    def step(begins: list[int], low: int, ranks: list[int]) -> Any:
        nodes, none = np.arange(len(ranks)), np.empty(0, np.int64)
        return SimpleNamespace(
            start=none, end=none, call_start=nodes, call_end=nodes, dst=none, wrap_dst=nodes,
            wrap_weight=np.array(begins), wrap_seen=10 * np.array(begins), window=(low, low + 9),
            activities=SimpleNamespace(rank=none), calls=SimpleNamespace(rank=np.array(ranks)),
        )  # fmt: skip

    graph = step([1, 2, 3, 4, 5], 100, [0, 0, 1, 1, 2])
    other = step([10, 20, 30, 50], 400, [0, 0, 1, 2])
    weight, seen = _with_begins(graph, other)
    assert weight.tolist() == [10, 20, 3, 4, 50]
    assert seen.tolist() == [100 - 300, 200 - 300, 30, 40, 500 - 300]
