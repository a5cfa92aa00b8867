"""Intervals of counters, against sums worked out one by one."""

import random
from typing import Any

import numpy as np
import pytest

from htk.quantities.measures.counted_links import counted_intervals, moved_within
from tests.tables import make

S = 10**9
T = 1_785_000_000 * S


def intervals(rows: list[dict[str, Any]]) -> tuple[list[tuple[int, int, float]], int, int]:
    listed = counted_intervals(make("link_samples", rows))
    spans = zip(
        (listed.start_ns - T).tolist(),
        (listed.end_ns - T).tolist(),
        listed.counted_bytes.tolist(),
        strict=True,
    )
    return sorted(spans), listed.resets, listed.untimed


def total(second: int | None, count: int | None, **more: Any) -> dict[str, Any]:
    moment = None if second is None else T + second * S
    plain = {"host": "a", "port": "p", "link": "infiniband", "direction": "sent"}
    return plain | {"metric": "m", "time_ns": moment, "total_bytes": count} | more


def test_totals_are_differences_and_resets_are_left_out() -> None:
    rows = [total(0, 100), total(2, 50), total(1, 170), total(3, 90), total(None, 5)]
    spans, resets, untimed = intervals(rows)
    assert spans == [(0, S, 70.0), (2 * S, 3 * S, 40.0)]
    assert (resets, untimed) == (1, 1)


def test_series_are_kept_apart() -> None:
    rows = [
        total(second, count, **{key: value})
        for key, value in {"host": "b", "port": "q", "direction": "received", "device": 3}.items()
        for second, count in ((0, 10), (1, 20))
    ]
    random.Random(3).shuffle(rows)
    assert intervals(rows)[0] == [(0, S, 10.0)] * 4


def test_rates_hold_since_the_sample_before() -> None:
    rate = {"link": "nvlink", "total_bytes": None}
    rows = [total(s, None, bytes_per_s=v, **rate) for s, v in ((0, 9e9), (2, 3e9), (5, None))]
    assert intervals(rows)[0] == [(0, 2 * S, 6e9)]


def test_large_totals_keep_their_last_byte() -> None:
    rows = [total(0, 2**61), total(1, 2**61 + 3)]
    assert intervals(rows)[0] == [(0, S, 3.0)]


def test_transfers_go_on_evenly() -> None:
    dice = np.random.default_rng(5)
    start = T + dice.integers(0, 1000, 40)
    end = start + dice.integers(1, 300, 40)
    moved = dice.integers(1, 10**9, 40).astype(np.float64)
    edges = T + np.arange(0, 1400, 70)
    expected = [
        sum(m * min(max((t - a) / (b - a), 0), 1)
            for a, b, m in zip(start.tolist(), end.tolist(), moved.tolist(), strict=True))
        for t in edges.tolist()
    ]  # fmt: skip
    assert moved_within(start, end, moved, edges).tolist() == pytest.approx(expected)
