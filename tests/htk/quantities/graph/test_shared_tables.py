"""What two graphs of a recording share changes neither, and is worked out once."""

from functools import partial

import numpy as np
import pyarrow as pa

from htk.quantities.graph.build import build_graph, steps_at_hand
from htk.quantities.graph.shared_tables import SharedTables, find_once
from htk.traces.trace.opening import open_trace


def test_what_steps_share_leaves_each_as_it_is() -> None:
    tables = open_trace("sample_traces/simulated/llama2-7b").tables
    shared = SharedTables(tables)
    for step in steps_at_hand(tables).numbers[::-1]:
        alone, beside = build_graph(tables, step), build_graph(shared, step)
        for name in ("time", "src", "dst", "weight", "kind", "wrap_src", "wrap_seen"):
            assert np.array_equal(getattr(alone, name), getattr(beside, name)), name
        for name in ("row", "lane", "start", "end", "call", "before", "kind"):
            one, other = getattr(alone.activities, name), getattr(beside.activities, name)
            assert np.array_equal(one, other), name


def test_tables_that_are_shared_are_asked_once_each() -> None:
    asked = []

    def rows_of(tables: SharedTables) -> int:
        asked.append(tables)
        return tables["kernels"].num_rows

    one, other = (SharedTables({"kernels": pa.table({"x": range(n)})}) for n in (1, 2))
    for tables in (one, one, other, one):
        assert find_once(tables, "rows", partial(rows_of, tables)) == tables["kernels"].num_rows
    assert [id(tables) for tables in asked] == [id(one), id(other)]


def test_other_tables_are_asked_each_time() -> None:
    asked = []
    for _ in range(2):
        find_once({"kernels": pa.table({"x": [1]})}, "sum", lambda: asked.append(None))
    assert len(asked) == 2
