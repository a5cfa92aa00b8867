"""From rows of measured kernels to the tables that ship: one grid for each operation and format."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.atlas.read import GPUS, read_collectives, read_rows
from htk.physics.hardware import gpu
from htk.physics.kernel_atlas import OPERATIONS, Table
from htk.physics.kernel_laws import LAWS

Grid = NDArray[np.float64]
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
_NEIGHBOURS = 6
_ODD = 0.5  # of the logarithm: what lies so far off the line between its neighbours teaches nothing


@dataclass(frozen=True)
class MeasuredGrid:
    """Logarithms of measured times over the law; NaN where nobody measured."""

    gpu: str
    op: str
    number_format: str
    shapes: Grid
    sizes: Grid
    typical: Grid
    best: Grid
    ns: Grid

    def without(self, held: NDArray[np.bool_]) -> "MeasuredGrid":
        """Return the grid as if those had not been measured."""
        return replace(self, typical=np.where(held, np.nan, self.typical))

    def to_table(self) -> Table:
        """Return the table that ships, with what was not measured filled in."""
        operation = OPERATIONS[self.op]
        near = _find_neighbours(operation.measure_shapes(self.shapes))
        measured = np.isfinite(self.typical)
        best = np.where(np.isfinite(self.best), self.best, np.nanmedian(self.best))
        filled = _fill_grid(self.typical, np.log(self.sizes), near)
        return Table(operation, self.shapes, self.sizes, filled, best, measured)


def build_grids(wheel: Path, folder: str) -> Iterator[MeasuredGrid]:
    """Yield the grids of an accelerator, from all libraries that were measured on it."""
    for op in ("matmul", "attention_prefill", "attention_decode", "experts"):
        rows = read_rows(wheel, folder, op)
        label = rows["format"]
        if op == "experts":
            label = label + "/" + rows["distribution"]
        for number_format, part in rows.groupby(label):
            yield _build_grid(GPUS[folder], op, str(number_format), part)
    rows = read_collectives(wheel, folder)
    for op in COLLECTIVES:
        yield _build_grid(GPUS[folder], op, "bf16", rows[rows["op"] == op])


def _build_grid(name: str, op: str, number_format: str, rows: pd.DataFrame) -> MeasuredGrid:
    operation = OPERATIONS[op]
    columns = [*operation.shape, operation.along]
    # One figure of each library, then the median of libraries.
    each = rows.groupby([*columns, "library"])["ns"].min().reset_index()
    kernels = each.groupby(columns)["ns"].agg(["median", "min"]).reset_index()
    sizes = {column: kernels[column].to_numpy(np.float64) for column in columns}
    law = LAWS[op](gpu(name), number_format.partition("/")[0], sizes)
    kernels["typical"] = np.log(kernels["median"] / law)
    kernels["best"] = np.log(kernels["min"] / kernels["median"])
    wide = kernels.pivot(index=list(operation.shape), columns=operation.along)
    return MeasuredGrid(
        name,
        op,
        number_format,
        wide.index.to_frame().to_numpy(np.float64),
        wide["typical"].columns.to_numpy(np.float64),
        wide["typical"].to_numpy(),
        wide["best"].to_numpy(),
        wide["median"].to_numpy(),
    )


def _find_neighbours(coordinates: Grid) -> NDArray[np.int64]:
    count = min(_NEIGHBOURS, len(coordinates) - 1)
    near = np.empty((len(coordinates), count), np.int64)
    for row, point in enumerate(coordinates):
        far = np.square(coordinates - point).sum(axis=1)
        far[row] = np.inf
        near[row] = np.argsort(far, kind="stable")[:count]
    return near


def _fill_grid(values: Grid, logs: Grid, near: NDArray[np.int64]) -> Grid:
    """Return the grid with each gap filled from the sizes beside it, and from how far neighbours'
    own values lie off the line between theirs."""
    line = _interpolate_beside(values, logs)
    off = values - line
    with np.errstate(all="ignore"):
        usual = _mean_known(off[near])
        level = _mean_known(values[near]) - line
    usable = np.isfinite(off) & np.isfinite(usual) & (np.abs(off) < _ODD)
    usable &= (np.abs(usual) < _ODD) & (np.abs(level) < _ODD)
    design = np.column_stack([usual[usable], level[usable]])
    shares = np.linalg.lstsq(design, off[usable], rcond=None)[0] if len(design) > 50 else (0.0, 0.0)
    guess = line + shares[0] * np.nan_to_num(usual)
    guess += shares[1] * np.clip(np.nan_to_num(level), -_ODD, _ODD)
    return np.where(np.isfinite(values), values, guess)


def _mean_known(values: Grid) -> Grid:
    measured = np.isfinite(values)
    return np.where(measured, values, 0.0).sum(axis=1) / measured.sum(axis=1)


def _interpolate_beside(values: Grid, logs: Grid) -> Grid:
    """Return each value as the line between the nearest measured ones beside it tells it."""
    count = values.shape[1]
    measured, index = np.isfinite(values), np.arange(count)
    left = np.maximum.accumulate(np.where(measured, index, -1), axis=1)
    left = np.roll(left, 1, axis=1)
    left[:, 0] = -1
    right = np.minimum.accumulate(np.where(measured, index, count)[:, ::-1], axis=1)[:, ::-1]
    right = np.roll(right, -1, axis=1)
    right[:, -1] = count
    has_left, has_right = left >= 0, right < count
    left, right = np.maximum(left, 0), np.minimum(right, count - 1)
    below = np.take_along_axis(values, left, axis=1)
    above = np.take_along_axis(values, right, axis=1)
    wide = np.where(right > left, logs[right] - logs[left], 1.0)
    between = below + (above - below) * (logs[None, :] - logs[left]) / wide
    one_side = np.where(has_left, below, np.where(has_right, above, np.nan))
    return np.where(has_left & has_right, between, one_side)
