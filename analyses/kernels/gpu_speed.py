"""Whether a GPU runs the same kernels slower than others, or slower than before."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    match_texts,
    number_or_null,
    read_keys,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups, divide_or_nan
from htk.base.columns.types import Floats, Ints, Mask, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, INT64, table
from htk.quantities.measures.breakdown import pool_rows
from htk.quantities.measures.gpu_counters import COLUMNS, SpanMeans
from htk.quantities.measures.gpu_slowness import usual_durations

Per = Literal["rank", "step", "time"]

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched the kernels, per step."),
    slice=(INT32, "Part of the recorded window, from 0, per time."),
    kernels=(INT64, "Kernels compared: their name, grid and block come often enough."),
    compared_ns=(INT64, "Sum of their durations."),
    usual_ns=(INT64, "The same at the usual duration of each."),
    slowness_pct=(FLOAT64, "How much longer than usual; above 0 slower, below faster."),
    lost_ns=(INT64, "compared_ns less usual_ns."),
    slow_kernels=(INT64, "Kernels that took more than 1.2 times the usual."),
    coverage_pct=(FLOAT64, "compared_ns of the time of all compute kernels there."),
    **COLUMNS,
)
_SLOW = 1.2


@analysis(
    returns=RETURNS,
    chart=Bar("rank", "slowness_pct", "slice", stacked=False),
    needs=("kernels",),
    null_without={"counters": tuple(COLUMNS)},
)
def gpu_speed(
    kernels: pa.Table,
    kernel_links: pa.Table,
    counters: pa.Table,
    *,
    per: Annotated[
        Per, "What a row covers: a GPU, each of its steps, or a slice of time."
    ] = "rank",
    slices: Annotated[int, "Slices of time of equal width."] = 50,
    min_count: Annotated[int, "Fewest runs of a kernel that show its usual duration."] = 5,
) -> pa.Table:
    """Does a GPU run the same kernels slower than the others, or slower than before?

    Compute kernels of the same name, grid and block are compared; the usual duration of one is the
    median over GPUs of each GPU's mean, or the median over time when there is one GPU. A slow GPU
    shows per rank, a throttling one per time, beside its clock and power where counters of them
    were recorded. Kernels whose duration depends on their data (MoE,
    embedding, varlen attention) blur it.
    """
    rows = np.flatnonzero(match_texts(kernels["kind"], "compute".__eq__))
    length = read_lengths(kernels)[rows]
    who = np.column_stack([read_keys(kernels[c])[rows] for c in _WHO])
    gpu = Groups.by_keys(who)
    usual, has_usual = _find_usual_durations(kernels, rows, length, gpu.group_ids, min_count)
    steps, part = _find_periods(per, kernels, kernel_links, rows, gpu.group_ids, max(slices, 1))
    groups = Groups.by_keys([who, steps, part])
    k = groups.keys
    spent = groups.sum(np.where(has_usual, length, 0))
    should = np.bincount(groups.group_ids, np.where(has_usual, usual, 0), minlength=len(groups))
    should = np.round(should).astype(np.int64)
    all_of_it = groups.sum(length)
    slow = has_usual & (length > _SLOW * usual)
    table = pa.table(
        [
            *(number_or_null(k[:, c], INT32) for c in range(5)),
            build_numbers(groups.sum(has_usual.astype(np.int64)), INT64),
            build_numbers(spent, INT64),
            build_numbers(should, INT64),
            build_numbers(100 * divide_or_nan(spent - should, should), FLOAT64, should > 0),
            build_numbers(spent - should, INT64),
            build_numbers(groups.sum(slow.astype(np.int64)), INT64),
            build_numbers(100 * divide_or_nan(spent, all_of_it), FLOAT64, all_of_it > 0),
            *SpanMeans(counters, kernels).of_groups(groups, rows),
        ],
        schema=RETURNS,
    )
    compared_over = "gpus" if len(gpu) > 1 else "time"
    return with_coverage(table, gpus=len(gpu), compared_over=compared_over)


_WHO = ("rank", "device")


def _find_usual_durations(
    kernels: pa.Table, rows: Ints, length: Ints, gpu: Ints, min_count: int
) -> tuple[Floats, Mask]:
    """Return the usual duration of each kernel, and where it is known.

    Of several GPUs the middle one of their means: calls that are slow on all of them (beside
    communication, say) make none look slow. Of one GPU its median.
    """
    same = Groups.by_keys(
        [codes_of(kernels[c])[0][rows].astype(np.int64) for c in ("name", "grid", "block")]
    )
    if len(np.unique(gpu)) > 1:
        usual = usual_durations(same.group_ids, gpu, np.ones_like(length), length)
    else:
        (usual,) = same.quantiles(length, (0.5,))
    grid = codes_of(kernels["grid"])[0][rows] >= 0
    return usual[same.group_ids], (same.count >= min_count)[same.group_ids] & grid


def _find_periods(
    per: Per, kernels: pa.Table, kernel_links: pa.Table, rows: Ints, gpu: Ints, slices: int
) -> tuple[Ints, Ints]:
    """Return cycle and step, and the part of the window, as far as asked for."""
    nothing = fill_none(len(rows))
    anytime = np.column_stack([nothing, nothing])
    if per == "rank" or not len(rows):
        return anytime, nothing
    if per == "step":
        return pool_rows("step", kernels, kernel_links["step"])[rows, 1:], nothing
    start = read_numbers(kernels["start_ns"])[rows]
    devices = Groups.by_keys(gpu)
    low = devices.min(start)[devices.group_ids]
    span = (devices.max(start)[devices.group_ids] - low) + 1
    return anytime, (start - low) * slices // span
