"""Clocks of ranks and hosts, told from collectives that end together."""

import numpy as np
import pyarrow as pa
import pytest

from htk.base.columns.arrow import with_column
from htk.base.schema import TABLES
from htk.quantities.derived.clocks import (
    aligned_matches,
    compute_corrections,
    rank_clocks,
    recorded_times,
)
from htk.quantities.derived.match import collective_matches
from tests.htk.quantities.derived.collective_rows import NO_RANKS, NO_WINDOWS, call, collectives
from tests.tables import make


def test_aligned_times_may_lie_before_zero() -> None:
    """A trace that counts from 0: rank 1's clock is 1000 ns ahead."""
    table = collectives(call(0, 5, 100), call(1, 1020, 1100))
    matches = collective_matches(table, NO_WINDOWS, NO_RANKS)
    clocks = rank_clocks(table, matches, NO_RANKS)
    shifted = clocks.set_column(2, "offset_ns", pa.array([-1000, -2000]))
    shifted = with_column(shifted, "aligned", pa.array([True, True]))
    found = aligned_matches(table, matches, shifted, NO_WINDOWS, NO_RANKS)
    assert found["wait_ns"].to_pylist() == [15, 0]


def skewed(offsets: list[int], groups: list[tuple[int, ...]], count: int = 20) -> pa.Table:
    """Collectives that truly end together, on clocks that are off."""
    rows = []
    for k in range(count):
        for g, members in enumerate(groups):
            end = 1_000_000 * (k + 1) + 100_000 * g
            for rank in members:
                start = end - 5_000 - 400 * ((rank + k) % 7)
                shift = offsets[rank]
                rows.append(call(rank, start + shift, end + shift, group=str(g)))
    return collectives(*rows)


def test_offsets_are_found_over_groups_that_overlap() -> None:
    table = skewed([0, 70_000, -30_000, 5_000], [(0, 1), (1, 2), (2, 3)])
    clocks = rank_clocks(table, collective_matches(table, NO_WINDOWS, NO_RANKS), NO_RANKS)
    assert clocks["offset_ns"].to_pylist() == [0, -70_000, 30_000, -5_000]
    assert clocks["aligned_with"].to_pylist() == [0, 0, 0, 0]
    assert max(clocks["residual_ns"].to_pylist()) < 1
    ranks, times = table["rank"].to_numpy(), table["end_ns"].to_numpy()
    aligned = times + compute_corrections(clocks, ranks, times)
    assert (aligned % 100_000 == 0).all()


def test_times_on_one_clock_are_those_of_clocks_decades_apart() -> None:
    """A clock of since boot, 20 parts per million slow, at two moments 3,000 s apart."""
    offset = 55 * 365 * 86_400_000_000_000
    clock = {"reference_ns": 1000, "offset_ns": offset, "drift_ppm": 20.0, "aligned": True}
    clocks = make("rank_clocks", [clock, clock | {"rank": 1, "aligned": False}])
    aligned = np.array([1000 + offset, 3_000_060_001_000 + offset])
    assert recorded_times(clocks, np.array([0, 0]), aligned).tolist() == [1000, 3_000_000_001_000]
    assert recorded_times(clocks, np.array([1, -1]), aligned).tolist() == aligned.tolist()


def test_groups_that_share_no_rank_are_not_compared() -> None:
    table = skewed([0, 9, 0, 9], [(0, 1), (2, 3)])
    clocks = rank_clocks(table, collective_matches(table, NO_WINDOWS, NO_RANKS), NO_RANKS)
    assert clocks["aligned_with"].to_pylist() == [0, 0, 2, 2]
    assert clocks["offset_ns"].to_pylist() == [0, -9, 0, -9]


def test_drift_over_seconds() -> None:
    """Rank 1 runs 20 parts per million fast."""
    rows = []
    for k in range(50):
        end = 100_000_000 * (k + 1)
        rows += [call(0, end - 900, end), call(1, end - 900 + end // 50_000, end + end // 50_000)]
    table = collectives(*rows)
    clocks = rank_clocks(
        table, collective_matches(table, NO_WINDOWS, NO_RANKS), NO_RANKS
    ).to_pylist()
    assert clocks[1]["drift_ppm"] == pytest.approx(-20, rel=1e-3)
    assert clocks[1]["residual_ns"] < 10


def hosts(names: list[str]) -> pa.Table:
    rows = [{"rank": rank, "host": name} for rank, name in enumerate(names)]
    return pa.Table.from_pylist(rows, schema=TABLES["ranks"])


def test_ranks_of_a_host_share_its_clock() -> None:
    """On each host one rank's collectives always end 2 µs later, which is no matter of clocks."""
    table = skewed([0, 2_000, 70_000, 72_000], [(0, 1, 2, 3)])
    matches = collective_matches(table, NO_WINDOWS, NO_RANKS)
    clocks = rank_clocks(table, matches, hosts(["a", "a", "b", "b"])).to_pylist()
    assert [c["clock"] for c in clocks] == [0, 0, 2, 2]
    assert [c["offset_ns"] for c in clocks] == [0, 0, -70_000, -70_000]
    assert all(c["aligned"] for c in clocks)


def test_hosts_whose_ranks_are_far_apart_have_several_clocks() -> None:
    table = skewed([0, 0, 70_000, -9_000_000], [(0, 1, 2, 3)])
    matches = collective_matches(table, NO_WINDOWS, NO_RANKS)
    clocks = rank_clocks(table, matches, hosts(["a", "a", "b", "b"])).to_pylist()
    assert [c["clock"] for c in clocks] == [0, 0, 2, 3]
    assert [c["offset_ns"] for c in clocks] == [0, 0, -70_000, 9_000_000]


def test_clocks_that_are_years_apart_lose_no_nanosecond() -> None:
    table = skewed([0, 1_700_000_000_123_456_789, 7], [(0, 1), (1, 2)])
    clocks = rank_clocks(table, collective_matches(table, NO_WINDOWS, NO_RANKS), NO_RANKS)
    assert clocks["offset_ns"].to_pylist() == [0, -1_700_000_000_123_456_789, -7]
