"""How far the atlas misses kernels that it was not shown: sizes, shapes, accelerators left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.atlas.distil import MeasuredGrid
from htk.physics.hardware import gpu
from htk.physics.kernel_atlas import BEYOND, OPERATIONS, SHAPE, SIZE, Table
from htk.physics.kernel_time import BASES, FORMULA, LENGTHS_NS, SIBLING, nearest_gpu

LONG_NS = 1e4
_FOLDS = 10
_FEW = 10_000  # kernels of a grid from which on two folds are enough: one teaches, one judges
Intervals = dict[str, dict[str, list[Any]]]
Pairs = dict[tuple[str, str, str], MeasuredGrid]


@dataclass(frozen=True)
class Misses:
    """Logarithms of measured over expected times, of kernels left out."""

    op: str
    nearness: int
    gpu: str
    number_format: str
    ns: NDArray[np.float64]
    log: NDArray[np.float64]
    judged: NDArray[np.bool_]  # the others taught the interval


def leave_out(grids: Sequence[MeasuredGrid]) -> Iterator[Misses]:
    """Yield the misses of every grid, each tenth size, each tenth shape, and the accelerator left
    out."""
    by_name = {(grid.gpu, grid.op, grid.number_format): grid for grid in grids}
    for grid in grids:
        randoms = np.random.default_rng(1)
        measured = np.isfinite(grid.typical)
        fold = np.where(measured, randoms.integers(0, _FOLDS, measured.shape), -1)
        for number in range(2 if measured.sum() >= _FEW else _FOLDS):
            yield _leave_sizes(grid, fold == number, judged=number % 2 == 1)
        if len(grid.shapes) > 2 * _FOLDS:
            shape_fold = randoms.integers(0, _FOLDS, len(grid.shapes))
            for number in range(2):
                yield _leave_shapes(grid, shape_fold == number, judged=number % 2 == 1)
        yield from _leave_accelerator(grid, by_name)


def _leave_sizes(grid: MeasuredGrid, held: NDArray[np.bool_], judged: bool) -> Misses:
    table = grid.without(held).to_table()
    return _note(grid, SIZE, held, grid.typical - table.typical, judged)


def _leave_shapes(grid: MeasuredGrid, held: NDArray[np.bool_], judged: bool) -> Misses:
    kept = ~held
    part = replace(grid, shapes=grid.shapes[kept], typical=grid.typical[kept], best=grid.best[kept])
    rest = np.isfinite(grid.typical) & held[:, None]
    return _note(grid, SHAPE, rest, grid.typical - _read_all(part.to_table(), grid), judged)


def _leave_accelerator(grid: MeasuredGrid, by_name: Pairs) -> Iterator[Misses]:
    own = gpu(grid.gpu)
    others = [n for n, op, kept in by_name if (op, kept) == (grid.op, grid.number_format)]
    others = [name for name in others if name != grid.gpu]
    alike = [name for name in others if gpu(name).architecture == own.architecture]
    measured = np.isfinite(grid.typical)
    for near, names in ((SIBLING, alike), (FORMULA, sorted(set(others) - set(alike)))):
        if names:
            sibling = by_name[nearest_gpu(own, names), grid.op, grid.number_format]
            expected = _read_all(sibling.to_table(), grid)
            randoms = np.random.default_rng(2)
            missed = _note(grid, near, measured, grid.typical - expected, judged=True)
            yield replace(missed, judged=randoms.random(len(missed.ns)) < 0.5)


def _read_all(table: Table, grid: MeasuredGrid) -> NDArray[np.float64]:
    rows, columns = (axis.reshape(-1) for axis in np.indices(grid.typical.shape))
    reading = table.read(grid.shapes[rows], grid.sizes[columns])
    return reading.typical.reshape(grid.typical.shape)


def _note(
    grid: MeasuredGrid, near: int, held: NDArray[np.bool_], log: NDArray[np.float64], judged: bool
) -> Misses:
    ns = grid.ns[held]
    flags = np.full(len(ns), judged)
    return Misses(grid.op, near, grid.gpu, grid.number_format, ns, log[held], flags)


def learn_intervals(misses: Sequence[Misses]) -> Intervals:
    """Return, by operation, format, nearness and length, the logarithms between which nine tenths
    lie."""
    table = _join(misses)
    taught = table[~table["judged"]]
    learnt: Intervals = {op: {} for op in OPERATIONS}
    for (op, kept), part in taught.groupby(["op", "format"]):
        learnt[op][kept] = [
            [_find_ends(part, near, length) for length in range(len(LENGTHS_NS) + 1)]
            for near in range(len(BASES))
        ]
    return learnt


def _find_ends(part: pd.DataFrame, near: int, length: int) -> list[float]:
    """Return those of one nearness. What was measured once differs from the next measurement as
    from its neighbours; what lies beyond all sizes is as far off as another shape, twice."""
    asked = {0: SIZE, BEYOND: SHAPE}.get(near, near)
    rows = part[part["near"] == asked]
    if rows.empty:
        rows = part[part["near"].isin([SIZE] if near <= BEYOND else [SIBLING, FORMULA])]
    same = rows[rows["length"] == length]
    rows = same if len(same) >= 20 else rows
    wide = 2.0 if near == BEYOND else 1.0
    outside = max(0.05 - 0.95 / max(len(rows), 1), 0.0)  # few say less
    return [round(wide * end, 4) for end in rows["log"].quantile([outside, 1 - outside])]


def _join(misses: Sequence[Misses]) -> pd.DataFrame:
    parts = [
        pd.DataFrame(
            {
                "op": m.op, "near": m.nearness, "gpu": m.gpu, "format": m.number_format,
                "ns": m.ns, "log": m.log, "judged": m.judged,
            }
        )
        for m in misses
    ]  # fmt: skip
    table = pd.concat(parts, ignore_index=True)
    table["format"] = table["format"].str.partition("/")[0]
    table["length"] = np.searchsorted(LENGTHS_NS, table["ns"] / np.exp(table["log"]))
    return table


def judge_misses(misses: Sequence[Misses], intervals: Intervals) -> pd.DataFrame:
    """Return, by operation, format and nearness, what kernels of 10 µs and more were missed by."""
    table = _join(misses)
    table = table[table["judged"] & (table["ns"] >= LONG_NS)].copy()
    lookup = [
        intervals[op][kept][near][length]
        for op, kept, near, length in table[["op", "format", "near", "length"]].itertuples(
            index=False
        )
    ]
    ends = np.array(lookup)
    table["held"] = (table["log"] >= ends[:, 0]) & (table["log"] <= ends[:, 1])
    table["miss"] = 100 * np.abs(np.expm1(-table["log"]))
    groups = table.groupby(["op", "format", "near"])
    return groups.agg(
        kernels=("miss", "size"),
        median=("miss", "median"),
        ninth=("miss", lambda values: values.quantile(0.9)),
        held=("held", "mean"),
    ).reset_index()
