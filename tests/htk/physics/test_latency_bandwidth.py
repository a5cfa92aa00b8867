"""Curves of transfers whose latency and bandwidth are known."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.physics.latency_bandwidth import fit_segments, predicted_us
from tests.thinned import thinned

SIZES = 2.0 ** np.arange(10, 28)


@given(st.floats(0, 500), st.floats(1, 900))
def test_a_straight_line_is_found_again(latency_us: float, gbps: float) -> None:
    curve = fit_segments(SIZES, latency_us + SIZES / gbps * 1e-3)
    assert len(curve) == 1, "one piece is enough"
    (piece,) = curve
    assert piece.latency_us == pytest.approx(latency_us, abs=1e-6, rel=1e-6)
    assert piece.bandwidth_gbps == pytest.approx(gbps, rel=1e-6)
    assert piece.half_bytes == pytest.approx(latency_us * gbps * 1e3, rel=1e-5, abs=1e-2)
    assert (piece.low_bytes, piece.high_bytes, piece.points) == (SIZES[0], SIZES[-1], len(SIZES))
    assert piece.residual < 1e-6 and piece.worst < 1e-6
    for size in (SIZES[0] / 2, SIZES[3], 3e6, 2 * SIZES[-1]):
        assert predicted_us(curve, size) == pytest.approx(latency_us + size / gbps * 1e-3)


def test_two_protocols_are_two_pieces() -> None:
    """Up to 64 kB 5 us and 10 GB/s; beyond 30 us and 200 GB/s."""
    small = SIZES <= 1 << 16
    time = np.where(small, 5 + SIZES / 10e3, 30 + SIZES / 200e3)
    curve = fit_segments(SIZES, time)
    assert [piece.high_bytes for piece in curve] == [1 << 16, SIZES[-1]]
    assert [piece.low_bytes for piece in curve] == [SIZES[0], 1 << 17]
    assert [piece.points for piece in curve] == [small.sum(), (~small).sum()]
    assert [piece.latency_us for piece in curve] == pytest.approx([5, 30])
    assert [piece.bandwidth_gbps for piece in curve] == pytest.approx([10, 200])
    assert predicted_us(curve, 1 << 16) == pytest.approx(5 + (1 << 16) / 10e3)
    assert predicted_us(curve, (1 << 16) + 1) == pytest.approx(30 + (1 << 16) / 200e3, rel=1e-4)


def test_what_would_be_negative_is_nothing() -> None:
    grows = fit_segments(SIZES, 1e-6 * SIZES**1.2, pieces=1)[0]  # faster than in proportion
    assert grows.latency_us == 0 and grows.us_per_byte > 0 and grows.half_bytes == 0
    falls = fit_segments(SIZES, 100 - np.log2(SIZES), pieces=1)[0]
    assert falls.us_per_byte == 0 and 73 < falls.latency_us < 90
    assert falls.bandwidth_gbps is None and falls.half_bytes is None


def test_time_never_falls_from_one_piece_to_the_next() -> None:
    time = np.where(SIZES <= 1 << 18, 500 + SIZES / 1e3, 20 + SIZES / 100e3)
    curve = fit_segments(SIZES, time)
    for low, high in pairwise(curve):
        assert low.time_us(low.high_bytes) <= high.time_us(high.low_bytes)


def test_of_one_size_the_rate_is_all_that_can_be_told() -> None:
    (piece,) = fit_segments(np.full(5, 1e6), np.array([90.0, 100, 100, 110, 100]))
    assert not piece.tells_latency and piece.half_bytes is None
    assert piece.us_per_byte == pytest.approx(1e-4, rel=0.02)
    assert piece.worst == pytest.approx(0.1, abs=0.02)


def test_points_without_bytes_or_time_are_left_out() -> None:
    assert fit_segments(np.array([0.0, 5, -1]), np.array([1.0, 0, 3])) == []
    assert fit_segments(np.append(SIZES, 0), np.append(1 + SIZES, 7))[0].points == len(SIZES)


def test_three_protocols_are_three_pieces() -> None:
    """Latencies of 5, 12 and 40 us; 4, 25 and 200 GB/s; the first with three points alone."""
    ends = [SIZES[2], SIZES[10], SIZES[-1]]
    first, second = (np.less_equal(SIZES, end) for end in ends[:2])
    time = np.where(first, 5 + SIZES / 4e3, 12 + SIZES / 25e3)
    time = np.where(second, time, 200 + SIZES / 200e3)
    curve = fit_segments(SIZES, time)
    assert [piece.points for piece in curve] == [3, 8, 7]
    assert [piece.high_bytes for piece in curve] == ends
    assert [piece.latency_us for piece in curve] == pytest.approx([5, 12, 200])
    assert [piece.bandwidth_gbps for piece in curve] == pytest.approx([4, 25, 200])


def test_no_piece_is_made_of_two_points_or_of_one_size() -> None:
    """The last two sizes, measured once each, or one that was measured five times, stand apart."""
    time = 5 + SIZES / 10e3
    late = time * np.append(np.ones(len(SIZES) - 2), [3, 3])
    assert all(piece.points >= 3 for piece in fit_segments(SIZES, late))
    work = np.append(SIZES, np.full(5, 2 * SIZES[-1]))
    often = fit_segments(work, np.append(time, np.full(5, 5 * time[-1])))
    assert all(piece.low_bytes < piece.high_bytes for piece in often)


def _straight(work: np.ndarray, time: np.ndarray) -> tuple[float, float, float]:
    """Latency, ns a byte and squared relative error of a line through points."""
    system = np.stack([1 / time, work / time], 1)
    (latency, slope), *_ = np.linalg.lstsq(system, np.ones(len(work)), rcond=None)
    return latency, slope, float(np.sum((system @ [latency, slope] - 1) ** 2))


@pytest.mark.parametrize("seed", thinned(range(8), 3))
def test_the_curve_is_the_best_of_all_cuts(seed: int) -> None:
    """Two noisy protocols, some sizes measured twice: every cut is tried anew."""
    dice = np.random.default_rng(seed)
    work = np.sort(np.append(SIZES[:14], dice.choice(SIZES[:14], 6)))
    time = np.where(work < SIZES[int(dice.integers(4, 10))], 5 + work / 1e3, 40 + work / 20e3)
    time = np.maximum.accumulate(time) * dice.uniform(0.93, 1.07, len(work))
    best = (_straight(work, time)[2] * 0.7, [0, len(work)])
    cuts = [k for k in range(1, len(work)) if work[k] > work[k - 1]]
    for (cut,) in combinations(cuts, 1):
        pieces = [(0, cut), (cut, len(work))]
        if any(b - a < 3 or work[a] == work[b - 1] for a, b in pieces):
            continue
        lines = [_straight(work[a:b], time[a:b]) for a, b in pieces]
        if any(latency < 0 or slope < 0 for latency, slope, _ in lines):
            continue
        ends = lines[0][0] + work[cut - 1] * lines[0][1], lines[1][0] + work[cut] * lines[1][1]
        if ends[0] <= ends[1]:
            best = min(best, (lines[0][2] + lines[1][2], [0, cut, len(work)]))
    curve = fit_segments(work, time, pieces=2)
    assert [piece.points for piece in curve] == np.diff(best[1]).tolist()


def test_many_sizes_are_cut_near_where_the_protocol_changes() -> None:
    work = np.linspace(1e4, 2e6, 400)
    time = np.where(work <= 9e5, 5 + work / 10e3, 200 + work / 200e3)
    low, high = fit_segments(work, time, pieces=2)
    assert low.high_bytes == pytest.approx(9e5, abs=4e4)
    assert low.points + high.points == 400
    assert (low.low_bytes, high.high_bytes) == (1e4, 2e6)


def test_single_bytes_and_fractions_of_a_microsecond_count() -> None:
    (piece,) = fit_segments(np.arange(1.0, 7), 0.1 + 0.05 * np.arange(1.0, 7))
    assert (piece.points, piece.low_bytes) == (6, 1)
    assert piece.latency_us == pytest.approx(0.1)
