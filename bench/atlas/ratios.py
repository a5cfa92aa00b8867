"""Ratios that a prediction of a changed job rests on: of two sizes, and of two accelerators."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from bench.atlas.distil import MeasuredGrid
from bench.atlas.judge import LONG_NS

_FACTORS = (2, 4, 8)
_SHARE = 0.1  # of the sizes, left out on both sides of a ratio


def judge_ratios(grids: Sequence[MeasuredGrid]) -> tuple[list[float], list[float]]:
    """Return by how many percent ratios of two rows' numbers, and of two accelerators, are missed
    where both sides were left out."""
    products = [grid for grid in grids if grid.op == "matmul"]
    missed = {(grid.gpu, grid.number_format): _miss_left_out(grid) for grid in products}
    sizes = np.concatenate([_compare_sizes(grid, missed) for grid in products])
    gpus = np.concatenate(list(_compare_gpus(products, missed)))
    return _describe(sizes), _describe(gpus)


def _miss_left_out(grid: MeasuredGrid) -> NDArray[np.float64]:
    """Return the logarithm by which each size left out is missed; NaN of the others. A size is left
    out on every accelerator alike."""
    randoms = np.random.default_rng(3)
    held = np.isfinite(grid.typical) & (randoms.random(grid.typical.shape) < _SHARE)
    log = grid.typical - grid.without(held).to_table().typical
    return np.where(held & (grid.ns >= LONG_NS), log, np.nan)


def _compare_sizes(
    grid: MeasuredGrid, missed: dict[tuple[str, str], NDArray[np.float64]]
) -> NDArray[np.float64]:
    log = missed[grid.gpu, grid.number_format]
    column = {size: index for index, size in enumerate(grid.sizes.tolist())}
    pairs = [
        (index, column[factor * size])
        for size, index in column.items()
        for factor in _FACTORS
        if factor * size in column
    ]
    apart = np.concatenate([log[:, first] - log[:, second] for first, second in pairs])
    return apart[np.isfinite(apart)]


def _compare_gpus(
    grids: Sequence[MeasuredGrid], missed: dict[tuple[str, str], NDArray[np.float64]]
) -> Iterator[NDArray[np.float64]]:
    for first, second in combinations(grids, 2):
        alike = first.number_format == second.number_format
        alike = alike and np.array_equal(first.shapes, second.shapes)
        if alike and np.array_equal(first.sizes, second.sizes):
            kept = first.number_format
            apart = missed[first.gpu, kept] - missed[second.gpu, kept]
            yield apart[np.isfinite(apart)]


def _describe(logs: NDArray[np.float64]) -> list[float]:
    percent = 100 * np.abs(np.expm1(logs))
    return [float(len(logs)), *np.quantile(percent, [0.5, 0.9]).tolist()]
