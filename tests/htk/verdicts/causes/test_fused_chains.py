"""What one kernel in place of a chain takes, by hand."""

import numpy as np
import pytest

from htk.base.columns.types import NONE
from htk.quantities.measures.fusible import Chains, MemoryRates, Saving
from htk.verdicts.causes.fused_chains import ChainKinds

# Two chains of a kind: activities 0, 1 and 3, 4, 5; a lone call, activity 2, is of no chain.
ADD = ("aten::add", "[[8]]", None)
MUL = ("aten::mul", "[[8]]", None)
LENGTH = np.array([10, 30, 99, 5, 25, 50])


def kinds(savings: list[Saving | None], per_byte: list[float]) -> ChainKinds:
    """Return two kinds of chains; calls of 10 to 30 bytes took so long a byte."""
    moved = np.array([10, 20, 30])
    rates = MemoryRates(moved, (moved * np.array(per_byte)).astype(np.int64))
    chains = Chains(
        activity=np.array([0, 1, 3, 4, 5]),
        chain=np.array([0, 0, 2, 2, 2]),
        is_first=np.array([True, False, True, False, False]),
        alike=np.array([0, NONE, 1]),
        keys=[(ADD, MUL), (ADD, MUL, MUL)],
        savings=savings,
        around=[("aten::mm", "aten::mm")] * 2,
        rates=rates,
    )
    return ChainKinds(chains, LENGTH)


def test_chains_that_are_alike_add_up() -> None:
    found = kinds([None, None], [1, 1, 1])
    assert (found.count.tolist(), found.kernels.tolist()) == ([1, 1], [2, 3])
    assert found.device_ns.tolist() == [40, 80]
    assert [each.tolist() for each in found.longest] == [[0, 1], [3, 4, 5]]
    assert found.activities_of([1]).tolist() == [3, 4, 5]
    assert found.fused == [None, None] and found.saved_ns.tolist() == [0, 0], "no shapes"


def test_one_kernel_moves_the_rest_at_the_rate_of_its_size() -> None:
    """Of 40 bytes 10 are read again, 10 written in vain: 20 remain, 30 if all is written."""
    first, second = kinds([Saving(40, 10, 10), None], [1, 1, 1]).fused
    assert second is None and first is not None
    assert first == pytest.approx((40, 20, 20, 30))
    assert first.saved_ns == 20 and first.is_certain


def test_a_chain_that_a_slow_kernel_would_not_shorten_is_not_certain() -> None:
    """The slowest of ten calls of 15 to 60 bytes takes 2 ns a byte: 30 bytes, the chain's 40 ns."""
    (first, _) = kinds([Saving(40, 10, 10), None], [1, 1, 2]).fused
    assert first is not None and not first.is_certain and first.slow_ns == 40
