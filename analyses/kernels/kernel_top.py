"""Which kernels cost most."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import build_numbers, build_texts, codes_of, decode_texts, read_lengths
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import Ints
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import ByRank
from htk.base.names.kinds import kind_of
from htk.base.names.rows_by import By
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import Pool, build_percent, pool_rows, who_columns
from htk.quantities.measures.gpu_counters import COLUMNS, SpanMeans
from htk.quantities.measures.kernels_by import NamingTables, SourceDepth, tell_apart

SortBy = Literal["total", "count", "mean", "max"]

_Kind = tuple[str | None, str | None, str | None, bool | None]
_NO_KIND: _Kind = (None, None, None, None)

RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "Step that launched the kernels; null when pooled over steps."),
    name=(TEXT, "Kernel, copy or set, or what else rows stand for; 'others' for the rest."),
    kind=(TEXT, "compute, comm, memory; other: a whole CUDA graph."),
    family=(TEXT, "gemm, attention, …"),
    library=(TEXT, "cublas, cutlass, triton, nccl, …, where the name tells."),
    tensor_core=(BOOL, "Uses tensor (matrix) cores; null where the name does not tell."),
    kernel=(TEXT, "Of several kernels in the row: that with the most time."),
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
    **COLUMNS,
)


@analysis(
    returns=RETURNS,
    chart=Bar("name", "total_ns", horizontal=True),
    needs=("kernels",),
    null_without={"counters": tuple(COLUMNS)},
    is_of_activities=True,
    spread=ByRank(when={"per": ("rank", "step"), "by": ("kernel", "family", "stream")}),
)
def kernel_top(
    kernels: pa.Table,
    kernel_links: pa.Table,
    naming: NamingTables,
    counters: Later,
    *,
    by: Annotated[By, "What a row stands for; source: the line of the program."] = "kernel",
    source_depth: SourceDepth = 1,
    n: Annotated[int, "Rows to show, and one for the rest; 0: all."] = 20,
    sort_by: Annotated[SortBy, "What to sort rows by."] = "total",
    per: Annotated[
        Pool, "What a row covers: all ranks, a rank, or the launches of a step."
    ] = "all",
) -> pa.Table:
    """Which kernels cost most GPU time?

    Times are sums over activities, not unions: overlapping kernels count twice. Steps are those
    that launched the kernels; kernels of a replayed graph have the operator, module and line of
    their capture, where it was recorded. A line of the program is the innermost function round the
    launch that is neither PyTorch's nor Python's own, of backward work that round the forward
    operator.
    """
    rows_by, is_told = tell_apart(by, naming, source_depth)
    names, dictionary = _in_order(rows_by.codes, rows_by.texts)
    length = read_lengths(kernels)
    pools = Groups.by_keys(pool_rows(per, kernels, kernel_links["step"]))
    pool = pools.keys
    kept = _find_others(names, pools.group_ids, length, n, sort_by)
    groups = Groups.by_keys([pools.group_ids, kept])
    pool_of = groups.keys[:, 0]
    name = groups.keys[:, 1]
    total, count = groups.sum(length), groups.count
    rows = order_by(pool_of, name < 0, -_measure_groups(groups, length, sort_by))
    pool_total = np.bincount(pool_of, total, minlength=len(pool)).astype(np.int64)
    running = Groups.by_keys(pool_of[rows]).running(total[rows])
    labels = [dictionary[code] if code >= 0 else "others" for code in name.tolist()]
    largest = build_texts([None] * len(rows))
    kinds = [_NO_KIND] * len(labels)
    if by == "kernel":
        kinds = _list_kinds(kernels, groups, name, labels)
    else:
        largest = _find_largest_kernel(kernels["name"], groups, length).take(
            build_numbers(rows, INT64)
        )
    p50, p95 = groups.quantiles(length, (0.5, 0.95))
    means = SpanMeans(counters(), kernels).of_groups(groups)
    answer = pa.table(
        [
            *who_columns(pool[pool_of[rows]]),
            build_texts([labels[k] for k in rows]),
            build_texts([kinds[k][0] for k in rows]),
            build_texts([kinds[k][1] for k in rows]),
            build_texts([kinds[k][2] for k in rows]),
            pa.array([kinds[k][3] for k in rows], BOOL),
            largest,
            build_numbers(count[rows], INT64),
            build_numbers(total[rows], INT64),
            build_numbers((total / count)[rows], FLOAT64),
            build_numbers(groups.min(length)[rows], INT64),
            build_numbers(groups.max(length)[rows], INT64),
            build_numbers(groups.std(length)[rows], FLOAT64),
            build_numbers(p50[rows], FLOAT64),
            build_numbers(p95[rows], FLOAT64),
            build_percent(total[rows], pool_total[pool_of[rows]]),
            build_percent(running, pool_total[pool_of[rows]]),
            *(mean.take(build_numbers(rows, INT64)) for mean in means),
        ],
        schema=RETURNS,
    )
    if is_told.all():
        return answer
    told_ns = int(length[is_told].sum())
    return with_coverage(answer, **{f"{by}_known_pct": round(100 * told_ns / int(length.sum()), 2)})


def _in_order(codes: Ints, names: list[str]) -> tuple[Ints, list[str]]:
    """Return the names coded in alphabetical order, in which ties come, whatever was read first."""
    order = order_by(np.array(names, object))
    codes_in_order = np.empty(len(order), np.int64)
    codes_in_order[order] = np.arange(len(order))
    return codes_in_order[codes], [names[k] for k in order.tolist()]


def _find_others(
    names: Ints,
    pool: NDArray[np.int64],
    length: NDArray[np.int64],
    n: int,
    sort_by: SortBy,
) -> NDArray[np.int64]:
    """Return the names that are among the first n of their pool; the others become -1."""
    groups = Groups.by_keys(np.stack([pool, names], axis=1))
    order = Groups.by_keys(groups.keys[:, 0]).rank_within(-_measure_groups(groups, length, sort_by))
    kept = order < n if n else np.ones(len(order), bool)
    return np.where(kept[groups.group_ids], names, -1).astype(np.int64)


def _measure_groups(
    groups: Groups, length: NDArray[np.int64], sort_by: SortBy
) -> NDArray[np.float64]:
    total = groups.sum(length)
    values = {
        "total": total,
        "count": groups.count,
        "mean": total / groups.count,
        "max": groups.max(length),
    }
    return np.asarray(values[sort_by], np.float64)


def _list_kinds(kernels: pa.Table, groups: Groups, name: Ints, labels: list[str]) -> list[_Kind]:
    """Return the kind, family, library and tensor-core use of each group."""
    first = kernels.select(("activity", "kind", "family")).take(
        build_numbers(groups.first_row, INT64)
    )
    kinds = []
    rows = zip(name.tolist(), labels, first.to_pylist(), strict=True)
    for code, label, row in rows:  # a row each
        named = kind_of(label, row["activity"])
        own: _Kind = (row["kind"], row["family"], named.library or None, named.tensor_core)
        kinds.append(own if code >= 0 else _NO_KIND)
    return kinds


def _find_largest_kernel(name: pa.ChunkedArray, groups: Groups, length: Ints) -> pa.Array:
    """Return the kernel with the most time of each group."""
    codes, dictionary = codes_of(name)
    pairs = Groups.by_keys([groups.group_ids, codes])
    order = order_by(pairs.keys[:, 0], -pairs.sum(length))
    first = order[mark_heads(pairs.keys[order, 0])]
    return decode_texts(pairs.keys[first, 1], dictionary)
