"""Baselines of transfers, of calls whose excess is known."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.quantities.measures.transfer_excess import (
    BASELINES,
    BENCHMARK,
    LIKE_CALLS,
    LINK_RATES,
    OTHER_SIZES,
    CompleteCollectives,
    baseline_of,
)
from htk.quantities.measures.transfer_times import LinkRates
from tests.htk.quantities.measures.timed_calls import calls_of
from tests.tables import make

GROUPS = [(0, 4), (1, 5), (2, 6), (3, 7)]
NO_BENCHMARKS = make("bench_points", [])
ALL = np.arange(len(BASELINES))


def complete(transfers: list[tuple[tuple[int, ...], int, int]], **more: Any) -> CompleteCollectives:
    """Of (members, bytes, ns)."""
    return CompleteCollectives.from_calls(calls_of(transfers, **more))


def compared(
    collectives: CompleteCollectives,
    points: pa.Table = NO_BENCHMARKS,
    rates: LinkRates | None = None,
    wanted: Any = ALL,
) -> tuple[list[float], list[int]]:
    baseline = baseline_of(collectives, points, rates or LinkRates(None, None, "given"), wanted)
    return baseline.expected_ns.tolist(), baseline.basis.tolist()


def test_waiting_is_no_part_of_a_transfer() -> None:
    collectives = complete([((0, 4), 1000, 700), ((1, 5), 1000, 900)])
    assert sorted(collectives.time_ns.tolist()) == [700, 900]
    assert collectives.nodes == [("h0", "h1")] * 2


def test_a_slow_group_is_compared_with_its_like() -> None:
    """Three fast groups and a slow one, five calls each: expected is the fastest tenth of all."""
    slow = [(g, 1000, 3000 if g == (2, 6) else 1000 + k) for k in range(5) for g in GROUPS]
    collectives = complete(slow)
    expected, basis = compared(collectives)
    assert basis == [LIKE_CALLS] * 20
    fastest = np.quantile([t for _, _, t in slow], 0.1)
    assert expected == pytest.approx([fastest] * 20)
    excess = {members: 0.0 for members in collectives.members}
    for group, time, usual in zip(collectives.group, collectives.time_ns, expected, strict=True):
        excess[collectives.members[group]] += time - usual
    assert excess[2, 6] == pytest.approx(5 * (3000 - fastest))
    assert max(e for g, e in excess.items() if g != (2, 6)) < 20


def test_sizes_and_algorithms_are_not_compared_with_one_another() -> None:
    calls = [(g, size, size) for size in (1000, 5000) for _ in range(5) for g in GROUPS]
    expected, _ = compared(complete(calls))
    assert sorted(set(expected)) == [1000, 5000]
    table = complete([(g, 1000, 1000) for _ in range(2) for g in GROUPS])
    assert compared(table, wanted=np.array([LIKE_CALLS]))[1] == [LIKE_CALLS] * 8
    trees = complete([(GROUPS[0], 1000, 900)], algorithm="TREE")
    assert compared(trees, wanted=np.array([LIKE_CALLS]))[1] == [-1]


def test_rare_sizes_are_expected_from_latency_and_bandwidth_of_others() -> None:
    """t = 2000 + W exactly; the odd call takes twice that."""
    sizes = [10_000, 20_000, 40_000, 80_000]
    calls = [(GROUPS[0], size, 2000 + size) for size in sizes] + [(GROUPS[1], 40_000, 84_000)]
    collectives = complete(calls)
    expected, basis = compared(collectives)
    assert set(basis) == {OTHER_SIZES}
    worst = int(np.argmax(collectives.time_ns))
    assert expected[worst] == pytest.approx(42_000, rel=0.06)


def test_benchmarks_speak_for_their_ranks_nodes_and_sizes() -> None:
    points = make("bench_points", [
        {"source": "nccl_tests", "type": "all_reduce", "group_size": 2, "nodes": 2,
         "size_bytes": size, "time_us": (1000 + size) / 1e3, "in_place": in_place}
        for size in (1000, 2000, 4000, 8000) for in_place in (False, True)
    ])  # fmt: skip
    inside, outside, within = (GROUPS[0], 4000, 9000), (GROUPS[0], 90_000, 9000), ((0, 1), 4000, 9)
    collectives = complete([inside, outside, within])
    expected, basis = compared(collectives, points, wanted=np.array([BENCHMARK]))
    by_size = dict(zip(collectives.moved.tolist(), basis, strict=True))
    assert by_size[90_000] == -1
    hits = [e for e, b in zip(expected, basis, strict=True) if b == BENCHMARK]
    assert hits == pytest.approx([5000], rel=1e-6)  # and not the group within a node


def test_links_of_known_rate_are_the_last_resort() -> None:
    """10 MB at three quarters of 20 GB/s, and some latency."""
    collectives = complete([(GROUPS[0], 10_000_000, 2_000_000)])
    rates = LinkRates(100.0, 80.0, "given")  # four GPUs a node: a quarter of the node's rate
    (expected,), (basis,) = compared(collectives, rates=rates)
    assert basis == LINK_RATES
    assert 10_000_000 / 15 <= expected < 1.1 * 10_000_000 / 15
    assert compared(collectives)[1] == [-1]  # no rate, no like call: nothing is expected


def test_calls_of_one_group_alone_are_counted() -> None:
    alone = complete([(GROUPS[0], 1000, 1000 + k) for k in range(6)])
    rates = LinkRates(None, None, "given")
    assert baseline_of(alone, NO_BENCHMARKS, rates, ALL).with_themselves == 6
    both = complete([(g, 1000, 1000 + k) for k in range(6) for g in GROUPS[:2]])
    assert baseline_of(both, NO_BENCHMARKS, rates, ALL).with_themselves == 0


def test_nothing_recorded_is_nothing_expected() -> None:
    empty = complete([])
    assert len(empty) == 0
    assert compared(empty) == ([], [])
