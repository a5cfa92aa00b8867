"""Which kernels cost most."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, number, read_lengths, texts
from htk.base.columns.groups import Groups
from htk.base.columns.order import ordered
from htk.base.core.analysis import analysis
from htk.base.core.chart import Bar
from htk.base.core.spread import ByRank
from htk.base.names.kinds import kind_of
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import Pool, percent, pooled, who_columns

By = Literal["total", "count", "mean", "max"]

RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched the kernels; null when pooled over steps."),
    name=(TEXT, "Kernel, copy or set; 'others' for the rest."),
    kind=(TEXT, "compute, comm or memory."),
    family=(TEXT, "gemm, attention, …"),
    library=(TEXT, "cublas, cutlass, triton, nccl, …, where the name tells."),
    tensor_core=(BOOL, "Uses tensor (matrix) cores; null where the name does not tell."),
    count=(INT64, "Activities."),
    total_ns=(INT64, "Sum of durations."),
    duration_ns_mean=(FLOAT64, "Mean duration."),
    duration_ns_min=(INT64, "Shortest."),
    duration_ns_max=(INT64, "Longest."),
    duration_ns_std=(FLOAT64, "Standard deviation of the population."),
    duration_ns_p50=(FLOAT64, "Median."),
    duration_ns_p95=(FLOAT64, "95th percentile, linearly interpolated."),
    kernel_time_pct=(FLOAT64, "Share of the summed time of all activities of the group."),
    cumulative_pct=(FLOAT64, "That share, summed down the table."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("name", "total_ns", horizontal=True),
    needs=("kernels",),
    spread=ByRank(when={"per": ("rank", "step")}),
)
def kernel_top(
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    n: Annotated[int, "Rows to show, and one for the rest; 0: all."] = 20,
    sort_by: Annotated[By, "What to sort rows by."] = "total",
    per: Annotated[
        Pool, "What a row covers: all ranks, a rank, or the launches of a step."
    ] = "all",
) -> pa.Table:
    """Which kernels cost most GPU time?

    Times are sums over activities, not unions: overlapping kernels count twice. Steps are those
    that launched the kernels.
    """
    names, dictionary = _in_order(*codes_of(kernels["name"]))
    length = read_lengths(kernels)
    pools = Groups.by_keys(pooled(per, kernels, kernel_links["step"]))
    pool = pools.keys
    kept = _others(names, pools.group_ids, length, n, sort_by)
    groups = Groups.by_keys([pools.group_ids, kept])
    pool_of, name = groups.keys[:, 0], groups.keys[:, 1]
    total, count = groups.sum(length), groups.count
    rows = ordered(pool_of, name < 0, -_measure(groups, length, sort_by))
    pool_total = np.bincount(pool_of, total, minlength=len(pool)).astype(np.int64)
    running = Groups.by_keys(pool_of[rows]).running(total[rows])
    kinds = _labels(kernels, groups, name, dictionary)
    p50, p95 = groups.quantiles(length, (0.5, 0.95))
    return pa.table(
        [
            *who_columns(pool[pool_of[rows]]),
            texts([kinds[k][0] for k in rows]),
            texts([kinds[k][1] for k in rows]),
            texts([kinds[k][2] for k in rows]),
            texts([kinds[k][3] for k in rows]),
            pa.array([kinds[k][4] for k in rows], BOOL),
            number(count[rows], INT64),
            number(total[rows], INT64),
            number((total / count)[rows], FLOAT64),
            number(groups.min(length)[rows], INT64),
            number(groups.max(length)[rows], INT64),
            number(groups.std(length)[rows], FLOAT64),
            number(p50[rows], FLOAT64),
            number(p95[rows], FLOAT64),
            percent(total[rows], pool_total[pool_of[rows]]),
            percent(running, pool_total[pool_of[rows]]),
        ],
        schema=RETURNS,
    )


def _in_order(codes: NDArray[np.int32], dictionary: pa.Array) -> tuple[NDArray[np.int32], pa.Array]:
    """Return the names coded in alphabetical order, in which ties come, whatever was read first."""
    order = ordered(np.array(dictionary.to_pylist(), object))
    codes_in_order = np.empty(len(order) + 1, np.int32)
    codes_in_order[order], codes_in_order[-1] = np.arange(len(order)), -1
    return codes_in_order[codes], dictionary.take(number(order, INT64))


def _others(
    names: NDArray[np.int32],
    pool: NDArray[np.int64],
    length: NDArray[np.int64],
    n: int,
    sort_by: By,
) -> NDArray[np.int64]:
    """Return the names that are among the first n of their pool; the others become -1."""
    groups = Groups.by_keys(np.stack([pool, names.astype(np.int64)], axis=1))
    order = Groups.by_keys(groups.keys[:, 0]).rank_within(-_measure(groups, length, sort_by))
    kept = order < n if n else np.ones(len(order), bool)
    return np.where(kept[groups.group_ids], names, -1).astype(np.int64)


def _measure(groups: Groups, length: NDArray[np.int64], sort_by: By) -> NDArray[np.float64]:
    total = groups.sum(length)
    values = {
        "total": total,
        "count": groups.count,
        "mean": total / groups.count,
        "max": groups.max(length),
    }
    return np.asarray(values[sort_by], np.float64)


def _labels(
    kernels: pa.Table, groups: Groups, name: NDArray[np.int64], dictionary: pa.Array
) -> list[tuple[str, str | None, str | None, str | None, bool | None]]:
    """Name, kind, family, library and tensor-core use of each group."""
    activity = kernels["activity"].take(number(groups.first_row, INT64)).to_pylist()
    labels: list[tuple[str, str | None, str | None, str | None, bool | None]] = []
    for code, act in zip(name.tolist(), activity, strict=True):  # a row of the answer each
        if code < 0:
            labels.append(("others", None, None, None, None))
            continue
        label = dictionary[code].as_py()
        kind = kind_of(label, act)
        labels.append((label, kind.kind, kind.family, kind.library or None, kind.tensor_core))
    return labels
