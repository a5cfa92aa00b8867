"""How much longer a GPU's kernels take than those of the other GPUs, from totals of kernels."""

import numpy as np
import pyarrow as pa

from htk.columns.arrow import codes_of, matching, numbers
from htk.columns.groups import Groups, quotient
from htk.columns.types import NONE

_LEAST_CALLS = 5  # that show the usual duration of a kernel
_WHO, _SHAPE = ("rank", "device"), ("name", "grid", "block")


def slowness_by_rank(kernel_totals: pa.Table) -> dict[int, float]:
    """Return how much longer than usual each rank's kernels take, in %, beyond the median GPU.

    Usual is, as in `gpu_speed`, the median over GPUs of each GPU's mean duration of a compute
    kernel of one name, grid and block.
    """
    rows = np.flatnonzero(matching(kernel_totals["kind"], "compute".__eq__))
    who = np.column_stack([numbers(kernel_totals[c], NONE).astype(np.int64)[rows] for c in _WHO])
    if len(np.unique(who[:, 0])) < 2:
        return {}
    calls, length = (numbers(kernel_totals[c])[rows] for c in ("count", "total_ns"))
    shape = [codes_of(kernel_totals[c])[0][rows].astype(np.int64) for c in _SHAPE]
    gpu, same = Groups.by_keys(who), Groups.by_keys(np.column_stack(shape))
    of_gpu = Groups.by_keys(np.column_stack([same.group_ids, gpu.group_ids]))
    calls, length = of_gpu.sum(calls), of_gpu.sum(length)
    over = Groups.by_keys(of_gpu.keys[:, 0])
    (usual,) = over.quantiles(quotient(length, calls), (0.5,))
    enough = over.sum(calls) >= _LEAST_CALLS
    enough &= shape[1][same.first_row] >= 0  # without a grid it is not known to be the same work
    counted = enough[over.group_ids]
    ids, gpus = of_gpu.keys[:, 1], len(gpu)
    spent = np.bincount(ids, np.where(counted, length, 0), gpus)
    should = np.bincount(ids, np.where(counted, usual[over.group_ids] * calls, 0.0), gpus)
    should = np.round(should).astype(np.int64)
    slow = 100 * quotient(spent - should, should)
    beyond = slow - float(np.median(slow))
    return dict(zip(gpu.keys[:, 0].tolist(), beyond.tolist(), strict=True))
