"""Quantiles of times that are counted part by part: as of all of them together."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from htk.quantities.straggler.order_statistics import (
    CountedBins,
    bins_of,
    compute_medians,
    compute_quantiles,
)

SHARES = (0.0, 0.25, 0.5, 0.99, 1.0)


def block(times: dict[int, Any]) -> Any:
    """What is asked of a block: which types it has, and their times."""
    codes = np.array(sorted(times))
    return SimpleNamespace(
        program=SimpleNamespace(type=codes), durations=lambda _, code: np.asarray(times[code])
    )


def types_of(program: Any) -> Any:
    return program.type


@pytest.mark.parametrize("count", [1, 2, 3, 8, 1000, 1001])
@pytest.mark.parametrize("parts", [1, 4])
def test_quantiles_are_those_of_all_times_together(count: int, parts: int) -> None:
    rng = np.random.default_rng(count)
    wide = rng.integers(-(2**24), 2**52, count)
    wide[: count // 3] = 5
    near = rng.normal(3e6, 4e3, count).astype(np.int64)  # a few bins hold all of them
    zeros = np.zeros(count, np.int64)
    blocks = [
        block(dict(enumerate(cut)))
        for cut in zip(*(np.array_split(v, parts) for v in (wide, near, zeros)), strict=True)
    ]

    def of_blocks(function: Any) -> list[Any]:
        return [function(each) for each in blocks]

    bins = of_blocks(CountedBins(types_of))
    answer = compute_quantiles(of_blocks, types_of, bins, SHARES)
    for code, values in enumerate((wide, near, zeros)):
        assert answer[code] == pytest.approx(np.quantile(values, SHARES), rel=1e-14)
        assert compute_medians(of_blocks, types_of, bins)[code] == np.median(values)


def test_bins_keep_the_order_of_times() -> None:
    rng = np.random.default_rng(3)
    times = np.sort(np.concatenate([rng.integers(-(2**61), 2**61, 5000), np.arange(-300, 300)]))
    assert (np.diff(bins_of(times)) >= 0).all()
    assert len(np.unique(bins_of(np.arange(-255, 256)))) == 511, "short times are told apart"
