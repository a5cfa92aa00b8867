"""Points that tell how fast communication is: of benchmarks, of matched and of lone calls."""

import numpy as np
import pytest

from htk.quantities.measures.transfers import of_benchmarks, of_trace
from tests.htk.quantities.measures.timed_calls import calls_of
from tests.tables import make


def test_benchmarks_are_curves_of_one_kind_each() -> None:
    """All-reduce of 4 moves 2 * 3/4 of its bytes, a gather 3/4; other types are not known."""
    point = {"source": "nccl_tests", "group_size": 4, "nodes": 1, "in_place": False}
    points = make("bench_points", [
        point | {"type": "all_reduce", "size_bytes": 800, "time_us": 10.0},
        point | {"type": "all_gather", "size_bytes": 400, "time_us": 7.0},
        point | {"type": "all_reduce", "size_bytes": 1600, "time_us": 14.0},
        point | {"type": "all_reduce", "size_bytes": 800, "time_us": 30.0, "nodes": 2},
        point | {"type": "all_reduce", "size_bytes": 800, "time_us": 9.0, "in_place": True},
        point | {"type": "all_reduce", "size_bytes": 800, "time_us": 9.5, "in_place": None},
        point | {"type": "nonesuch", "size_bytes": 800, "time_us": 9.0},
        point | {"type": None, "size_bytes": 800, "time_us": 9.0},
    ])  # fmt: skip
    curves = {(c.type, c.level, c.in_place): c for c in of_benchmarks(points)}
    assert set(curves) == {
        ("all_reduce", "node", False), ("all_reduce", "across nodes", False),
        ("all_reduce", "node", True), ("all_reduce", "node", None), ("all_gather", "node", False),
    }  # fmt: skip
    curve = curves["all_reduce", "node", False]
    assert (curve.basis, curve.ranks) == ("nccl_tests", 4)
    assert curve.size.tolist() == [800, 1600] and curve.time_us.tolist() == [10, 14]
    assert curve.moved.tolist() == [1200, 2400]
    assert curves["all_gather", "node", False].moved.tolist() == [300]


def test_a_match_is_one_point_from_its_last_start_to_its_end() -> None:
    pairs = [((0, 1), 4000, 20_000), ((1, 5), 4000, 50_000), ((0, 1), 8000, 30_000)]
    within, across = sorted(of_trace(calls_of(pairs)), key=lambda c: str(c.level), reverse=True)
    assert (within.basis, within.level, within.ranks) == ("matched", "node", 2)
    assert within.size.tolist() == [4000, 8000] and within.time_us.tolist() == [20, 30]
    assert within.moved.tolist() == [4000, 8000]  # 2 * 1/2
    assert (across.level, across.time_us.tolist()) == ("across nodes", [50])


def test_of_calls_of_one_rank_the_fastest_tenth_of_each_size_counts() -> None:
    """Rank 0 was recorded alone: its calls wait for rank 1 as well as transfer."""
    times = [10_000 + 1000 * k for k in range(11)]
    alone = [((0,), size, size * t // 1000) for size in (1000, 2000) for t in times]
    (curve,) = of_trace(calls_of(alone, group_size=2, group_ranks="[0,1]"))
    assert (curve.basis, curve.ranks) == ("fastest tenth", 2)
    assert curve.size.tolist() == [1000, 2000]
    fast = np.quantile(times, 0.1) / 1e3
    assert curve.time_us.tolist() == pytest.approx([fast, 2 * fast])
