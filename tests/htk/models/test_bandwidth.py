"""Bandwidth of every collective, worked out by hand from nccl-tests' PERFORMANCE.md formulas."""

import numpy as np
import pytest

from htk.models.bandwidth import algorithm_bytes, factor, traffic

# type, bytes in, bytes out, ranks, S, factor
BY_HAND = [
    ("all_reduce", 1024, 1024, 8, 1024, 2 * 7 / 8),
    ("all_gather", 100, 800, 8, 800, 7 / 8),
    ("all_gather", 100, -1, 8, 800, 7 / 8),
    ("reduce_scatter", 800, 100, 8, 800, 7 / 8),
    ("reduce_scatter", -1, 100, 8, 800, 7 / 8),
    ("broadcast", 64, 64, 4, 64, 1.0),
    ("reduce", 64, 64, 4, 64, 1.0),
    ("all_to_all", 400, 400, 4, 400, 3 / 4),
    ("all_to_all", 100, 700, 4, 700, 3 / 4),
    ("gather", 10, -1, 4, 40, 3 / 4),
    ("scatter", -1, 10, 4, 40, 3 / 4),
    ("send", 77, -1, 4, 77, 1.0),
    ("recv", -1, 77, 4, 77, 1.0),
    ("hypercube", 80, 80, 8, 70, 1.0),
    ("all_reduce", 1024, 1024, 1, 1024, 0.0),
]


@pytest.mark.parametrize(("kind", "into", "out", "n", "size", "times"), BY_HAND)
def test_by_hand(kind: str, into: int, out: int, n: int, size: int, times: float) -> None:
    assert algorithm_bytes(kind, into, out, n) == size
    found = traffic(np.zeros(1, int), [kind], *(np.array([x]) for x in (into, out, n, -1)))
    assert found[0][0] == size and found[1][0] == pytest.approx(times)


def test_what_is_not_known_is_nothing() -> None:
    assert algorithm_bytes("all_gather", 100, -1, -1) is None
    assert algorithm_bytes("barrier", 1, 1, 8) is None
    assert factor("moe_dispatch", 8) is None
    size, times = traffic(
        np.zeros(1, int), ["all_reduce"], *(np.array([x]) for x in (64, 64, -1, -1))
    )
    assert size[0] == 64 and np.isnan(times[0])


def test_an_uneven_all_to_all_moves_what_it_does_not_keep() -> None:
    size, times = traffic(
        np.zeros(1, int), ["all_to_all"], *(np.array([x]) for x in (100, 60, 4, 30))
    )
    assert (size[0], times[0]) == (70, 1.0)
