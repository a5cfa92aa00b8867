"""Which tensors a chain need not move: by hand; the rate of calls of a size."""

import numpy as np
import pytest

from htk.quantities.measures.fusible import MemoryRates, _compute_saving, _is_fed_by, _Moved

A, B = 4096, 1024


def moved(read: tuple[int, ...], written: int, *, in_place: bool = False, slack: float = 1.0):  # type: ignore[no-untyped-def]
    return _Moved(read, written, in_place, slack)


def test_what_is_written_is_read_once() -> None:
    """mul, add of two tensors of one size: one of both is what mul wrote."""
    assert _compute_saving([moved((A, A), A), moved((A, A), A)]) == (6 * A, A, A)


def test_what_is_written_in_place_stays_written() -> None:
    calls = [moved((A, A), A, in_place=True), moved((A,), A)]
    assert _compute_saving(calls) == (5 * A, A, 0)
    overwritten = [moved((A, A), A, in_place=True), moved((A, B), A, in_place=True)]
    assert _compute_saving(overwritten) == (5 * A + B, A, A)


def test_sizes_tell_what_feeds_what() -> None:
    assert _is_fed_by(moved((A,), B), moved((A, B), A))
    assert not _is_fed_by(moved((A,), B), moved((A,), A))
    assert not _is_fed_by(moved((A,), 8), moved((8,), A)), "a scalar"
    dropout = moved((A,), A + A // 4, slack=1.5)
    assert _is_fed_by(dropout, moved((A,), A))
    assert not _is_fed_by(moved((A,), A + A // 4), moved((A,), A))


def test_the_rate_of_calls_of_a_size() -> None:
    sizes = np.array([10, 1000, 1500, 2000, 100_000])
    rates = MemoryRates(sizes, sizes * np.array([9, 1, 2, 3, 9]))
    fast, usual, slow = rates.lengths_of(1000) or (0, 0, 0)
    assert (usual, fast < usual < slow) == (2000, True)
    assert rates.lengths_of(10**9) is None
    assert rates.lengths_of(10) == pytest.approx((90, 90, 90))
