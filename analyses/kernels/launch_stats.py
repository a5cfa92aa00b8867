"""How long launches take, and how long the launched work waits."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    number_or_null,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.call_tree import labels_of
from htk.quantities.measures.launching import Launched

By = Literal["call", "kernel", "operator"]

RETURNS = table(
    rank=(INT32, "Global rank."),
    launched_by=(
        TEXT,
        "Runtime or driver call; the kernel or the operator, as asked for. By kernel, what a graph "
        "launches together is one row.",
    ),
    count=(INT64, "Calls that launched something."),
    kernels=(INT64, "GPU activities that they launched; a graph launch has many."),
    call_ns=(INT64, "Sum of the calls' durations."),
    call_ns_mean=(FLOAT64, "Mean call."),
    call_ns_p50=(FLOAT64, "Median call."),
    call_ns_p95=(FLOAT64, "95th percentile of the calls."),
    call_ns_max=(INT64, "Longest call."),
    device_ns=(INT64, "Sum of the activities' durations."),
    device_ns_mean=(FLOAT64, "Mean activity."),
    delay_ns=(INT64, "Sum of the delays, from the end of a call to the first start."),
    delay_ns_mean=(FLOAT64, "Mean delay."),
    delay_ns_p50=(FLOAT64, "Median delay."),
    delay_ns_p95=(FLOAT64, "95th percentile of the delays."),
    delay_ns_max=(INT64, "Longest delay."),
    shorter_than_call=(INT64, "Calls no outliers that took longer than what they launched."),
    call_outliers=(INT64, "Calls longer than the cutoff."),
    delay_outliers=(INT64, "Delays longer than the cutoff."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("launched_by", ("call_ns", "device_ns"), horizontal=True, stacked=False),
    needs=("kernels", "launches"),
)
def launch_stats(
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    cpu_ops: pa.Table,
    *,
    by: Annotated[By, "What a row stands for: a kind of call, a kernel or an operator."] = "call",
    call_cutoff_us: Annotated[float, "Calls longer than this are outliers."] = 50,
    delay_cutoff_us: Annotated[float, "Delays longer than this are outliers."] = 100,
    n: Annotated[int, "Rows to show of each rank, most calls first; 0: all."] = 20,
) -> pa.Table:
    """How long do launches take, and how long does the launched work wait?

    A delay that is long because work queued ahead of it ran is no fault: see queue_length. What
    was launched before the recording or is not linked has no call and is left out.
    """
    launched = Launched.from_kernels(kernels, kernel_links)
    label, labels = _label_launches(by, launched, kernels, kernel_links, launches, cpu_ops)
    rank = read_keys(kernels["rank"])[launched.first]
    groups = Groups.by_keys([rank, label])
    count = np.maximum(groups.count, 1)
    call, delay, length = launched.call_length, launched.delay, launched.length
    cut = round(call_cutoff_us * 1000)
    late = round(delay_cutoff_us * 1000)
    activities = groups.sum(launched.count)
    call_p50, call_p95 = groups.quantiles(call, (0.5, 0.95))
    delay_p50, delay_p95 = groups.quantiles(delay, (0.5, 0.95))

    def how_many(chosen: Mask) -> pa.Array:
        return build_numbers(groups.sum(chosen.astype(np.int64)), INT64)

    table = pa.table(
        [
            number_or_null(groups.keys[:, 0], INT32),
            build_texts([labels[k] or None for k in groups.keys[:, 1].tolist()]),
            build_numbers(groups.count, INT64),
            build_numbers(activities, INT64),
            build_numbers(groups.sum(call), INT64),
            build_numbers(groups.sum(call) / count, FLOAT64),
            build_numbers(call_p50, FLOAT64),
            build_numbers(call_p95, FLOAT64),
            build_numbers(groups.max(call), INT64),
            build_numbers(groups.sum(length), INT64),
            build_numbers(groups.sum(length) / np.maximum(activities, 1), FLOAT64),
            build_numbers(groups.sum(delay), INT64),
            build_numbers(groups.sum(delay) / count, FLOAT64),
            build_numbers(delay_p50, FLOAT64),
            build_numbers(delay_p95, FLOAT64),
            build_numbers(groups.max(delay), INT64),
            how_many((call <= cut) & (length < call)),
            how_many(call > cut),
            how_many(delay > late),
        ],
        schema=RETURNS,
    )
    order = order_by(groups.keys[:, 0], -groups.count)
    of_rank = groups.keys[order, 0]
    row_of_rank = np.arange(len(order)) - np.searchsorted(of_rank, of_rank)
    shown = order[row_of_rank < n] if n else order
    linked = int(launched.count.sum())
    return with_coverage(
        table.take(pa.array(shown)),
        rows_left_out=len(order) - len(shown),
        activities_without_call=kernels.num_rows - linked,
    )


def _label_launches(
    by: By,
    launched: Launched,
    kernels: pa.Table,
    kernel_links: pa.Table,
    launches: pa.Table,
    cpu_ops: pa.Table,
) -> tuple[Ints, list[str]]:
    """Return what launched, or was launched first, as a number; and the texts."""
    if by == "call":
        code, labels = labels_of(launches["name"])
        return code[launched.call], labels
    if by == "kernel":
        code, labels = labels_of(kernels["name"])
        return _told_apart(code[launched.first], labels, launched.count)
    code, labels = labels_of(cpu_ops["name"])
    row = read_numbers(kernel_links["op_row"], NONE)[launched.first]
    return np.append(code, len(labels) - 1)[row], labels


def _told_apart(first: Ints, labels: list[str], count: Ints) -> tuple[Ints, list[str]]:
    """Return labels of calls that say how many kernels they launched where it is more than one."""
    alike = Groups.by_keys([first, count])
    texts_of = [
        labels[code] if many == 1 else f"({many} of one call, first {labels[code]})"
        for code, many in alike.keys.tolist()  # a kernel and a size of graph each
    ]
    return alike.group_ids, texts_of
