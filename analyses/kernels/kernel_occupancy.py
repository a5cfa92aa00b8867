"""How well kernels fill the GPU: blocks per multiprocessor, occupancy, waves and tail."""

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    mark_valid,
    rank_alphabetically,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups, divide_or_nan
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.mappings import Fields
from htk.base.schema import BOOL, FLOAT64, INT64, TEXT, table
from htk.physics.occupancy import Multiprocessor
from htk.quantities.measures.breakdown import build_percent

RETURNS = table(
    name=(TEXT, "Kernel."),
    family=(TEXT, "gemm, attention, …"),
    grid=(TEXT, "Grid, compact JSON [x,y,z]."),
    block=(TEXT, "Block, compact JSON [x,y,z]."),
    count=(INT64, "Runs."),
    total_ns=(INT64, "Sum of durations."),
    kernel_time_pct=(
        FLOAT64,
        "Share of the summed time of all activities, with a grid or not.",
    ),
    blocks=(INT64, "Blocks of the grid."),
    threads_per_block=(INT64, "Threads of a block."),
    multiprocessors=(INT64, "Multiprocessors (compute units) of the GPU; null: not recorded."),
    blocks_per_sm=(FLOAT64, "Blocks by multiprocessors: as recorded, else computed."),
    resident_blocks=(
        INT64,
        "Blocks that fit a multiprocessor: threads, registers, memory; null: registers or "
        "architecture not recorded.",
    ),
    occupancy_pct=(
        FLOAT64,
        "Estimated achieved occupancy: as recorded, else (where 0 is recorded too) computed.",
    ),
    occupancy_limit_pct=(
        FLOAT64,
        "Threads of the resident blocks, of what a multiprocessor holds.",
    ),
    waves=(FLOAT64, "Blocks by what the GPU holds at once; below 1 it is not filled."),
    tail_pct=(FLOAT64, "Share of the last wave's places that stay empty, of all waves."),
    persistent=(
        BOOL,
        "One block per multiprocessor, of a gemm or attention: it loops itself.",
    ),
)


@analysis(returns=RETURNS, chart=Bar("name", "total_ns", horizontal=True), needs=("kernels",))
def kernel_occupancy(
    kernels: pa.Table,
    ranks: pa.Table,
    *,
    n: Annotated[int, "Rows to show, most time first; 0: all."] = 20,
) -> pa.Table:
    """How well do kernels fill the GPU?

    A grid below one wave leaves multiprocessors without work, and one just above a whole number
    of waves leaves them idle in the last. A persistent kernel launches as many blocks as there are
    multiprocessors on purpose: its waves and tail say nothing, and are null.
    """
    rows = np.flatnonzero(mark_valid(kernels["grid"]) & mark_valid(kernels["block"]))
    if not len(rows) and kernels.num_rows:
        raise MissingTable(
            "no kernel records its grid and block; the profiler of this device leaves them out"
        )
    grid, grids = codes_of(kernels["grid"])
    block, blocks = codes_of(kernels["block"])
    name, names = codes_of(kernels["name"])
    gpu, gpus = _read_gpus(kernels, ranks)
    used = [read_numbers(kernels[c], NONE) for c in ("registers", "shared_memory_bytes")]
    groups = Groups.by_keys(np.column_stack([name, grid, block, gpu, *used])[rows])
    k = groups.keys
    count = _multiply_dims(grids)[k[:, 1]]
    threads = _multiply_dims(blocks)[k[:, 2]]
    sms = np.array([g.multiprocessors for g in gpus], np.int64)[k[:, 3]]
    resident = _count_resident_blocks(gpus, k[:, 3], threads, k[:, 4], k[:, 5])
    family, families = codes_of(kernels["family"])
    of_group = family[rows][groups.first_row]
    looping = np.isin(of_group, [i for i, f in enumerate(families.to_pylist()) if f in _LOOPING])
    persistent = looping & (sms > 0) & ((count == sms) | (count == 2 * sms))
    places = resident * sms
    has_waves = (places > 0) & ~persistent
    waves = np.divide(count, places, out=np.zeros(len(count)), where=has_waves)
    length = read_lengths(kernels)
    total = groups.sum(length[rows])
    per_sm = divide_or_nan(count, sms)
    recorded, has = _compute_mean(groups, read_numbers(kernels["blocks_per_sm"], -1.0)[rows])
    most = np.array([g.limits.threads if g.limits else 0 for g in gpus], np.int64)[k[:, 3]]
    in_warps = _in_whole_warps(gpus, k[:, 3], threads)
    held = divide_or_nan(100.0 * resident * in_warps, most)
    # What runs occupies something: a recorded 0 says that the profiler could not tell.
    estimated, has_estimate = _compute_mean(
        groups, read_numbers(kernels["occupancy_pct"], -1.0)[rows]
    )
    has_estimate &= estimated > 0
    achieved = divide_or_nan(100.0 * np.minimum(resident, per_sm) * in_warps, most)
    occupancy = np.where(has_estimate, estimated, achieved)
    has_occupancy = has_estimate | (resident > 0) & (sms > 0)
    table = pa.table(
        [
            decode_texts(k[:, 0], names),
            decode_texts(of_group, families),
            decode_texts(k[:, 1], grids),
            decode_texts(k[:, 2], blocks),
            build_numbers(groups.count, INT64),
            build_numbers(total, INT64),
            build_percent(total, np.full(len(total), int(length.sum()))),
            build_numbers(count, INT64),
            build_numbers(threads, INT64),
            build_numbers(sms, INT64, sms > 0),
            build_numbers(np.where(has, recorded, per_sm), FLOAT64, has | (sms > 0)),
            build_numbers(resident, INT64, resident > 0),
            build_numbers(occupancy, FLOAT64, has_occupancy),
            build_numbers(held, FLOAT64, resident > 0),
            build_numbers(waves, FLOAT64, has_waves),
            build_numbers(_compute_tail(waves), FLOAT64, has_waves),
            pa.array(persistent.tolist(), BOOL),
        ],
        schema=RETURNS,
    )
    ties = [rank_alphabetically(*codes_of(table[c])) for c in ("block", "grid", "name")]
    order = np.lexsort((*ties, -total))
    shown = order[:n] if n else order
    without = int(length.sum() - length[rows].sum())
    return with_coverage(
        table.take(pa.array(shown)),
        rows_left_out=len(order) - len(shown),
        time_without_grid_ns=without,
    )


_LOOPING = ("gemm", "attention", "convolution", "moe")


@dataclass(frozen=True)
class _Gpu:
    """What is recorded of a GPU; nothing of an unknown one."""

    multiprocessors: int = 0
    limits: Multiprocessor | None = None


def _read_gpus(kernels: pa.Table, ranks: pa.Table) -> tuple[Ints, list[_Gpu]]:
    """The GPU of each activity, and what is known of it; number 0 stands for an unknown one."""
    models = {_Gpu(): 0}
    model_of: dict[tuple[int, int, int], int] = {}
    columns = ("rank", "cycle", "device_properties")
    for rank, cycle, listed in zip(*(ranks[c].to_pylist() for c in columns), strict=True):
        for gpu in _parse_properties(listed):
            key = (NONE if rank is None else rank, cycle, int(gpu.get("id", 0)))
            model_of[key] = models.setdefault(_read_gpu(gpu), len(models))  # alike GPUs are one
    who = Groups.by_keys([read_numbers(kernels[c], NONE) for c in ("rank", "cycle", "device")])
    of_group = []
    for rank, cycle, device in who.keys.tolist():  # a device each
        only = {v for (r, c, _), v in model_of.items() if (r, c) == (rank, cycle)}
        alike = next(iter(only)) if len(only) == 1 else 0
        of_group.append(model_of.get((rank, cycle, device), alike))
    return np.array(of_group, np.int64)[who.group_ids], [*models]


def _parse_properties(text_: str | None) -> list[Fields]:
    try:
        listed = json.loads(text_ or "[]")
    except ValueError:
        return []
    return [g for g in listed if isinstance(g, dict)] if isinstance(listed, list) else []


def _read_gpu(properties: Fields) -> _Gpu:
    units = properties.get("numSms")
    is_counted = isinstance(units, int) and units > 0
    multiprocessors = int(units or 0) if is_counted else 0
    return _Gpu(multiprocessors, Multiprocessor.from_properties(properties))


def _multiply_dims(dims: pa.Array) -> Ints:
    """Return the product of each [x,y,z]."""
    products = [int(np.prod(json.loads(d), dtype=np.int64)) for d in dims.to_pylist()]
    return np.array([*products, 0], np.int64)


def _count_resident_blocks(
    gpus: list[_Gpu], gpu: Ints, threads: Ints, registers: Ints, shared: Ints
) -> Ints:
    """Return the blocks that fit a multiprocessor at once; 0 where it is not known."""
    fits = np.zeros(len(gpu), np.int64)
    for model in np.unique(gpu).tolist():  # a model or two
        limits = gpus[model].limits
        if limits is not None:
            rows = np.flatnonzero(gpu == model)
            fits[rows] = limits.count_blocks(threads[rows], registers[rows], shared[rows])
    return fits


def _in_whole_warps(gpus: list[_Gpu], gpu: Ints, threads: Ints) -> Ints:
    """Return the places that the threads of a block take: a warp is held by one thread of it."""
    warp = np.array([g.limits.warp if g.limits else 1 for g in gpus], np.int64)[gpu]
    return np.asarray(-(-threads // warp) * warp)


def _compute_tail(waves: Floats) -> Floats:
    """Empty places of the last wave, of the places of all waves, in percent."""
    full = np.ceil(waves)
    return divide_or_nan(100.0 * (full - waves), full)


def _compute_mean(groups: Groups, values: Floats) -> tuple[Floats, Mask]:
    """Mean of what is recorded (finite, not negative), and where anything is."""
    some = (values >= 0) & np.isfinite(values)
    count = np.bincount(groups.group_ids, some, minlength=len(groups))
    total = np.bincount(groups.group_ids, np.where(some, values, 0), minlength=len(groups))
    return total / np.maximum(count, 1), count > 0
