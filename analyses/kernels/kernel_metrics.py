"""Metrics of each kernel, as CUPTI's range profiler took them."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    codes_of,
    decode_texts,
    match_texts,
    number_or_null,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.names.counters import RANGE_PROFILER
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table

RETURNS = table(
    rank=(INT32, "Global rank."),
    kernel=(TEXT, "Kernel; or the range, where several were measured together."),
    metric=(TEXT, "Metric, as CUPTI calls it."),
    count=(INT64, "Kernels of that name that were measured."),
    total=(FLOAT64, "Sum over these."),
    mean=(FLOAT64, "Mean of one."),
    least=(FLOAT64, "Smallest value."),
    most=(FLOAT64, "Largest value."),
)


@analysis(returns=RETURNS, chart=Bar("kernel", "total", "metric", horizontal=True))
def kernel_metrics(
    counters: pa.Table,
    *,
    zeros: Annotated[bool, "Metrics that are 0 for all kernels of a name too."] = False,
    n: Annotated[int, "Rows to show, largest of each metric first; 0: all."] = 20,
) -> pa.Table:
    """What did the profiler's hardware counters measure for each kernel?

    Of recordings with CUPTI_PROFILER_METRICS in Kineto's configuration, which measure one kernel
    after the other: their times are not those of the job.
    """
    metrics = counters.filter(pa.array(match_texts(counters["process"], RANGE_PROFILER.__eq__)))
    if not metrics.num_rows:
        raise MissingTable(
            "no metrics of kernels; record with CUPTI_PROFILER_METRICS in KINETO_CONFIG", "counters"
        )
    kernel, kernels = codes_of(metrics["series"])
    metric, names = codes_of(metrics["name"])
    keys = [read_keys(metrics["rank"]), kernel.astype(np.int64), metric.astype(np.int64)]
    groups = Groups.by_keys(keys)
    value = read_numbers(metrics["value"], np.nan)
    total = np.bincount(groups.group_ids, value, len(groups))
    least = groups.min(value)
    most = groups.max(value)
    rank, kernel, metric = groups.keys.T
    kept = np.flatnonzero(zeros | (least != 0) | (most != 0))
    order = kept[order_by(metric[kept], -total[kept])]
    shown = order[:n] if n else order
    answer = pa.table(
        [
            number_or_null(rank[shown], INT32),
            decode_texts(kernel[shown], kernels),
            decode_texts(metric[shown], names),
            build_numbers(groups.count[shown], INT64),
            build_numbers(total[shown], FLOAT64),
            build_numbers((total / groups.count)[shown], FLOAT64),
            build_numbers(least[shown], FLOAT64),
            build_numbers(most[shown], FLOAT64),
        ],
        schema=RETURNS,
    )
    measured = len(np.unique(kernel))
    return with_coverage(answer, kernels=measured, rows_left_out=len(order) - len(shown))
