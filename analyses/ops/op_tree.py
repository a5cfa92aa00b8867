"""The call tree of the operators, calls along the same path taken together."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    number_or_null,
    read_booleans,
    read_keys,
)
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.call_tree import CallTree, DeviceTimes, Paths, labels_of

Per = Literal["all", "rank"]

RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    id=(INT64, "Number of the row, counted from the top: a caller comes before its callees."),
    parent=(INT64, "Row that calls it; null for the outermost."),
    depth=(INT32, "0 for the outermost."),
    op=(TEXT, "Operator."),
    path=(TEXT, "Operators from the outermost to this one."),
    count=(INT64, "Calls along this path."),
    cpu_total_ns=(INT64, "Time inside it on the CPU."),
    cpu_self_ns=(INT64, "That less the operators that it calls."),
    device_total_ns=(INT64, "Sum of GPU activities launched inside it, at any depth."),
    device_self_ns=(INT64, "Sum of GPU activities that it launched itself."),
    device_time_pct=(FLOAT64, "device_total_ns of all GPU time."),
    kernels=(INT64, "GPU activities launched inside it."),
    callees=(INT64, "Different operators that it calls, shown or not."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("path", "device_self_ns", horizontal=True, instead="cpu_self_ns"),
    needs=("cpu_ops",),
    null_without={"kernels": ("device_total_ns", "device_self_ns", "kernels")},
)
def op_tree(
    cpu_ops: pa.Table,
    op_links: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    depth: Annotated[int | None, "Levels to show; by default all."] = None,
    min_pct: Annotated[
        float, "Leave out what is smaller, in %: paths, as a share of GPU and CPU time."
    ] = 1.0,
    per: Annotated[Per, "What a row covers: all ranks, or a rank."] = "all",
) -> pa.Table:
    """Where in the call tree do operators take their time?

    Calls along the same path are one row. What is left out still counts in its callers.
    """
    tree = CallTree.from_calls(cpu_ops, op_links)
    times = DeviceTimes.from_kernels(cpu_ops.num_rows, kernels, kernel_links, op_links)
    name, names = labels_of(cpu_ops["name"])
    rank = read_keys(cpu_ops["rank"])
    # Ranks apart: the outermost names carry the rank, those below inherit it.
    own = name if per == "all" else name + (rank - rank.min(initial=0)) * len(names)
    paths = Paths.from_tree(tree, own)
    name_of = paths.name % max(len(names), 1)
    chosen = read_booleans(op_links["selected"])
    sums = _sum_paths(tree, times, paths, chosen)
    cpu_all = int(sums["cpu_self_ns"].sum())
    worth = (100 * sums["device_total_ns"] >= min_pct * max(times.total, 1)) | (
        100 * sums["cpu_total_ns"] >= min_pct * max(cpu_all, 1)
    )
    worth &= sums["total_count"] > 0
    if depth is not None:
        worth &= paths.depth < depth
    rank_of = fill_none(len(paths.above))
    rank_of[paths.of_row] = rank if per == "rank" else NONE
    order = _from_the_top(paths, np.flatnonzero(worth), sums, rank_of)
    position = fill_none(len(paths.above) + 1)
    position[order] = np.arange(len(order))
    parent = position[paths.above[order]]
    answer = pa.table(
        [
            number_or_null(rank_of[order], INT32),
            build_numbers(np.arange(len(order)), INT64),
            build_numbers(parent, INT64, parent != NONE),
            build_numbers(paths.depth[order], INT32),
            build_texts([names[k] for k in name_of[order].tolist()]),
            build_texts([_spell_path(paths, name_of, int(p), names) for p in order.tolist()]),
            *(build_numbers(sums[c][order], INT64) for c in _BEFORE_SHARE),
            build_percent(sums["device_total_ns"][order], np.full(len(order), times.total)),
            build_numbers(sums["kernels"][order], INT64),
            build_numbers(sums["callees"][order], INT64),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, paths=len(paths.above), paths_left_out=len(worth) - len(order))


_BEFORE_SHARE = ("count", "cpu_total_ns", "cpu_self_ns", "device_total_ns", "device_self_ns")


def _sum_paths(tree: CallTree, times: DeviceTimes, paths: Paths, chosen: Mask) -> dict[str, Ints]:
    def of_path(values: Ints) -> Ints:
        total = np.zeros(len(paths.above), np.int64)
        np.add.at(total, paths.of_row[chosen], values[chosen])
        return total

    count = of_path(np.ones(len(tree.parent), np.int64))
    inner = paths.above != NONE
    device = of_path(times.own)
    kernels = of_path(times.kernels)
    return {
        "count": count,
        "total_count": paths.subtree(count),
        "cpu_total_ns": of_path(tree.length),
        "cpu_self_ns": of_path(tree.self_time),
        "device_total_ns": paths.subtree(device),
        "device_self_ns": device,
        "kernels": paths.subtree(kernels),
        "callees": np.bincount(paths.above[inner], minlength=len(paths.above)).astype(np.int64),
    }


def _from_the_top(paths: Paths, kept: Ints, sums: dict[str, Ints], rank: Ints) -> Ints:
    """Kept paths, callers before callees, of siblings the costliest first."""
    cost = order_by(-rank[kept], sums["device_total_ns"][kept], sums["cpu_total_ns"][kept])
    below: dict[int, list[int]] = {}
    for path in kept[cost].tolist():  # distinct paths; the costliest comes last: it is popped first
        below.setdefault(int(paths.above[path]), []).append(path)
    order: list[int] = []
    stack = list(below.get(NONE, []))
    while stack:
        path = stack.pop()
        order.append(path)
        stack += below.get(path, [])
    return np.array(order, np.int64)


def _spell_path(paths: Paths, name_of: Ints, path: int, names: list[str]) -> str:
    return Paths(paths.of_row, paths.above, name_of, paths.depth).text(path, names)
