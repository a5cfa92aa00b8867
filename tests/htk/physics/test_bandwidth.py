"""Bandwidth of every collective, worked out by hand from nccl-tests' PERFORMANCE.md formulas."""

import numpy as np
import pytest

from htk.physics.bandwidth import algorithm_bytes, compute_traffic, find_bus_factor

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
    ("all_reduce", 96, 96, 2, 96, 1.0),
    ("all_gather", 50, 100, 2, 100, 1 / 2),
    ("all_reduce", -1, 512, 4, 512, 3 / 2),
    ("reduce", 64, 0, 4, 64, 1.0),  # only the root gets something
    ("hypercube", 40, 80, 8, 70, 1.0),
    ("hypercube", 80, -1, 8, 70, 1.0),
    # Nothing at all is known to be moved.
    ("broadcast", 0, 9, 4, 0, 1.0),
    ("all_gather", 0, -1, 8, 0, 7 / 8),
    ("reduce_scatter", -1, 0, 8, 0, 7 / 8),
    ("hypercube", 0, 0, 8, 0, 1.0),
    ("all_to_all", 0, 0, 8, 0, 7 / 8),
]


@pytest.mark.parametrize(("kind", "into", "out", "n", "size", "times"), BY_HAND)
def test_by_hand(kind: str, into: int, out: int, n: int, size: int, times: float) -> None:
    assert algorithm_bytes(kind, into, out, n) == size
    found = compute_traffic(np.zeros(1, int), [kind], *(np.array([x]) for x in (into, out, n, -1)))
    assert found[0][0] == size and found[1][0] == pytest.approx(times)


def test_what_is_not_known_is_nothing() -> None:
    assert algorithm_bytes("all_gather", 100, -1, -1) is None
    assert algorithm_bytes("barrier", 1, 1, 8) is None
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "hypercube", "all_to_all"):
        assert algorithm_bytes(kind, -1, -1, 8) is None
    for kind, into, out in (("gather", 5, -1), ("scatter", -1, 5), ("hypercube", 5, 5)):
        assert algorithm_bytes(kind, into, out, 0) is None, "without the group's size"
    assert find_bus_factor("moe_dispatch", 8) is None
    size, times = compute_traffic(
        np.zeros(1, int), ["all_reduce"], *(np.array([x]) for x in (64, 64, -1, -1))
    )
    assert size[0] == 64 and np.isnan(times[0])


def test_an_uneven_all_to_all_moves_what_it_does_not_keep() -> None:
    size, times = compute_traffic(
        np.zeros(1, int), ["all_to_all"], *(np.array([x]) for x in (100, 60, 4, 30))
    )
    assert (size[0], times[0]) == (100, 0.7)
    one_known = [np.array(column) for column in ([100, 100], [60, 60], [4, 4], [0, -1])]
    size, times = compute_traffic(np.zeros(2, int), ["all_to_all"], *one_known)
    assert size.tolist() == [100, 100] and times.tolist() == [1.0, 0.75]
