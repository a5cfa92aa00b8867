"""Pairs of queries and keys that a mask leaves, against the mask itself."""

import pytest

from htk.models.op_costs.attention import Mask


@pytest.mark.parametrize("corner", ["top left", "bottom right"])
@pytest.mark.parametrize("left", [None, 0, 1, 3])
@pytest.mark.parametrize("right", [None, 0, 2])
def test_pairs_against_the_mask_itself(corner: str, left: int | None, right: int | None) -> None:
    for queries in range(7):
        for keys in range(7):
            own = keys - queries if corner == "bottom right" else 0
            counted = sum(
                (left is None or k >= q + own - left) and (right is None or k <= q + own + right)
                for q in range(queries)
                for k in range(keys)
            )
            assert Mask(corner, left, right).pairs(queries, keys) == counted, (queries, keys)


def test_pairs_of_lengths_that_no_memory_holds() -> None:
    """A window of 1,024 keys: all queries but the first see as many."""
    n = 1 << 40
    assert Mask("bottom right", 1023, 0).pairs(n, n) == 1024 * 1025 // 2 + (n - 1024) * 1024
