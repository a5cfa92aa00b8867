"""How much longer a GPU's kernels take than those of the other GPUs, from totals of kernels."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_keys, read_numbers
from htk.base.columns.groups import Groups, divide_or_nan
from htk.base.columns.types import Floats, Ints

_LEAST_CALLS = 5  # that show the usual duration of a kernel
_WHO = ("rank", "device")
_SHAPE = ("name", "grid", "block")


def slowness_by_rank(kernel_totals: pa.Table) -> dict[int, float]:
    """Return how much longer than usual each rank's kernels take, in %, beyond the usual GPU.

    Usual is, as in `gpu_speed`, the median over GPUs of each GPU's mean duration of a compute
    kernel of one name, grid and block.
    """
    rows = np.flatnonzero(match_texts(kernel_totals["kind"], "compute".__eq__))
    who = np.column_stack([read_keys(kernel_totals[c])[rows] for c in _WHO])
    if len(np.unique(who[:, 0])) < 2:
        return {}
    calls = read_numbers(kernel_totals["count"])[rows]
    length = read_numbers(kernel_totals["total_ns"])[rows]
    shape = [codes_of(kernel_totals[c])[0][rows].astype(np.int64) for c in _SHAPE]
    gpu = Groups.by_keys(who)
    same = Groups.by_keys(shape)
    usual = usual_durations(same.group_ids, gpu.group_ids, calls, length)[same.group_ids]
    counted = (same.sum(calls) >= _LEAST_CALLS)[same.group_ids]
    counted &= shape[1] >= 0  # without a grid it is not known to be the same work
    spent = gpu.sum(np.where(counted, length, 0))
    should = np.bincount(gpu.group_ids, np.where(counted, usual * calls, 0.0), len(gpu))
    should = np.round(should).astype(np.int64)
    slow = 100 * divide_or_nan(spent - should, should)
    beyond = slow - float(np.quantile(slow, 0.5, method="lower"))
    return dict(zip(gpu.keys[:, 0].tolist(), beyond.tolist(), strict=True))


def usual_durations(shape: Ints, gpu: Ints, calls: Ints, total: Ints) -> Floats:
    """Return for each shape the median over GPUs of each GPU's mean duration, in ns; of an even
    number the lower of the middle two: of two GPUs the faster one's.

    Each row is of one shape (numbered from 0) and GPU: how many calls, and their time in all.
    """
    of_gpu = Groups.by_keys([shape, gpu])
    means = divide_or_nan(of_gpu.sum(total), of_gpu.sum(calls))
    return Groups.by_keys(of_gpu.keys[:, 0]).lower_medians(means)
