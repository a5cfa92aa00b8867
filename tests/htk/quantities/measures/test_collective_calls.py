"""Collectives of several sources, and what each moved: by hand."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import (
    CollectiveCalls,
    build_bandwidth,
    clock_facts,
    find_group_scopes,
    with_nccl_facts,
)
from tests.htk.quantities.measures.timed_calls import calls_of
from tests.tables import make

NO_WINDOWS = make("rank_windows", [])


def of_rows(rows: list[dict[str, Any]], world: int | None = None) -> CollectiveCalls:
    known = {"source": "kineto", "timing": "gpu", "group": "0"}
    table = make("collectives", [known | row for row in rows])
    ranks = make("ranks", [{"rank": r, "world_size": world} for r in range(world or 1)])
    return CollectiveCalls.from_tables(table, collective_matches(table, NO_WINDOWS, ranks), ranks)


def test_of_several_sources_the_one_that_knows_times_best_counts() -> None:
    rows = [{"source": s, "type": "all_reduce"} for s in ("nccl_debug", "kineto", "inspector")]
    table, ranks = make("collectives", rows), make("ranks", [{}])
    matches = collective_matches(table, NO_WINDOWS, ranks)
    calls = CollectiveCalls.of_one_source(table, matches, ranks)
    assert calls.table["source"].to_pylist() == ["kineto"] and len(calls.matches) == 1
    others = [r for r in rows if r["source"] != "kineto"]
    table = make("collectives", others)
    matches = collective_matches(table, NO_WINDOWS, ranks)
    calls = CollectiveCalls.of_one_source(table, matches, ranks)
    assert calls.table["source"].to_pylist() == ["inspector"]


def test_what_a_collective_moves_is_that_of_the_rank_that_moves_most() -> None:
    """An uneven gather of three: ranks see 100, 120 and 90 bytes of the whole."""
    rows = [
        {"rank": r, "type": "all_gather", "in_bytes": 30 + r, "out_bytes": whole, "group_size": 3,
         "group_ranks": "[0,1,2]", "start_ns": 10 * r, "end_ns": 100,
         "seq": 4, "seq_kind": "collective"}
        for r, whole in enumerate((100, 120, 96))
    ]  # fmt: skip
    calls = of_rows(rows, world=3)
    assert calls.traffic[0].tolist() == [100, 120, 96]
    size, factor = calls.moved
    assert size.tolist() == [120] * 3 and factor.tolist() == pytest.approx([2 / 3] * 3)
    assert calls.span.tolist() == [80] * 3, "from the last start, 20, to the end"


def test_a_duration_of_the_source_goes_before_the_times_of_the_host() -> None:
    timed = {"type": "all_reduce", "start_ns": 10, "end_ns": 50}
    calls = of_rows([timed, timed | {"duration_ns": 7}, {"type": "all_reduce"}])
    assert calls.duration.tolist() == [40, 7, -1]
    assert calls.span.tolist() == [-1, 7, -1], "no rank alone spans a collective"


def test_an_exchange_tells_what_goes_to_whom() -> None:
    """Rank 1 of [2, 1]: its place is the second. 12 elements of 4 bytes."""
    even = {"rank": 1, "type": "all_to_all", "group_ranks": "[2,1]", "group_size": 2}
    even |= {"in_bytes": 48, "out_bytes": 48}
    uneven = even | {"out_bytes": 40, "in_split": "[9,3]", "out_split": "[9,1]"}
    typed = uneven | {"in_bytes": None, "dtype": "bfloat16"}
    calls = of_rows([uneven, even, typed, even | {"out_bytes": 40}])
    assert [calls.sent(k) for k in range(4)] == [[36, 12], [24, 24], [18, 6], None]
    assert calls.received(0) == [36, 4]
    assert calls.members(0) == (2, 1)
    assert sorted((first, rows.tolist()) for first, rows in calls.with_splits()) == [
        (0, [0]), (2, [2]),
    ]  # fmt: skip
    assert calls.kept.tolist() == [12, -1, 6, -1]


def test_a_group_spans_nodes_where_two_of_its_hosts_differ() -> None:
    calls = calls_of([((0, 1), 8, 9), ((1, 5), 8, 9)])
    by_group = dict(
        zip(calls.table["group"].to_pylist(), find_group_scopes(calls).to_pylist(), strict=True)
    )
    assert by_group == {"(0, 1)": "node", "(1, 5)": "across nodes"}
    beyond = calls_of([((6,), 8, 9)], group_ranks="[6,9]", group_size=2)
    assert find_group_scopes(beyond).to_pylist() == [None], "nobody says where rank 9 runs"


def test_bandwidth_is_null_where_bytes_or_time_are_unknown() -> None:
    rates = build_bandwidth(np.array([600.0, np.nan, 600.0, 600.0]), np.array([300, 300, 0, -1]))
    assert rates.to_pylist() == [2.0, None, None, None]


def test_facts_of_other_sources_fill_what_the_profiler_lacks() -> None:
    collectives = make("collectives", [{"algorithm": a} for a in ("RING", None, None)])
    facts = pa.table({"algorithm": ["TREE", "TREE", None], "protocol": ["LL", None, None]})
    filled = with_nccl_facts(collectives, facts)
    assert filled["algorithm"].to_pylist() == ["RING", "TREE", None]
    assert filled["protocol"].to_pylist() == ["LL", None, None]
    assert filled.schema == collectives.schema


def test_coverage_says_when_clocks_were_left_as_recorded() -> None:
    assert clock_facts(align=True) == {}
    assert clock_facts(align=False) == {"clock_alignment": "off"}
