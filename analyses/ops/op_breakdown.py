"""Which operators take the time, on the CPU and on the GPU."""

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    mark_valid,
    read_booleans,
    read_keys,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.core.analysis import TablesLater, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import Pool, build_percent, pool_rows, who_columns
from htk.quantities.measures.call_tree import (
    CallTree,
    DeviceTimes,
    labels_of,
    without_operator,
)
from htk.quantities.measures.program_lines import OperatorLineTables, lines_of_operators

By = Literal["name", "shape", "source", "module", "thread"]

RETURNS = table(
    rank=(INT32, "Global rank; null when pooled over ranks."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "ProfilerStep it ran in; null when pooled over steps."),
    op=(TEXT, "Operator; in brackets: GPU time that belongs to none, and why."),
    by=(TEXT, "Input shapes, line of the program, module or thread, as asked for; null by name."),
    types=(TEXT, "Types of the inputs, by shape."),
    count=(INT64, "Calls."),
    cpu_total_ns=(INT64, "Time inside the operator on the CPU; nested calls count once."),
    cpu_self_ns=(INT64, "That less the operators that it calls."),
    device_total_ns=(INT64, "Sum of GPU activities launched inside it, at any depth."),
    device_self_ns=(INT64, "Sum of GPU activities that it launched itself."),
    device_time_pct=(FLOAT64, "device_self_ns of all GPU time, so that rows sum to 100."),
    backward_device_ns=(INT64, "GPU time of the backward operators whose forward one it is."),
    kernels=(INT64, "GPU activities launched inside it."),
    kernels_per_call=(FLOAT64, "kernels by count."),
    launching_calls=(INT64, "Calls that launched GPU activities themselves."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("op", "device_self_ns", horizontal=True, instead="cpu_self_ns"),
    needs=("cpu_ops",),
    null_without={
        "kernels": (
            "device_total_ns",
            "device_self_ns",
            "backward_device_ns",
            "kernels",
            "kernels_per_call",
            "launching_calls",
        )
    },
)
def op_breakdown(
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_callers: pa.Table,
    line_tables: OperatorLineTables,
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    by: Annotated[
        By, "What a row stands for: a name, or its calls of one shape, line, module or thread."
    ] = "name",
    per: Annotated[Pool, "What a row covers: all ranks, a rank, or each of its steps."] = "all",
    n: Annotated[int, "Rows to show, most time first; 0: all."] = 20,
) -> pa.Table:
    """Which operators take the time, on the CPU and on the GPU?

    GPU time is linked to the operator round the launching call (by correlation), else by External
    id, else by flow arrows. It is a sum over activities, not a union. Totals of an operator that
    calls itself count the outermost call. GPU work without an operator, or of one that lies
    outside the selection, has rows of its own.
    """
    tree = CallTree.from_calls(cpu_ops, op_links)
    times = DeviceTimes.from_kernels(cpu_ops.num_rows, kernels, kernel_links, op_links)
    apart, label = _told_apart(by, tree, cpu_ops, op_callers, line_tables)
    name, names = labels_of(cpu_ops["name"])
    selected = read_booleans(op_links["selected"])
    kept = slice(None) if selected.all() else np.flatnonzero(selected)  # a slice copies nothing
    who = pool_rows(per, cpu_ops, op_links["step"])
    groups = Groups.by_keys([who[kept], name[kept], apart[kept]])
    first = np.arange(len(selected))[kept][groups.first_row]
    sums = _sum_times(tree, times, groups, kept)
    with_operator = pa.table(
        [
            *who_columns(groups.keys),
            build_texts([names[k] for k in groups.keys[:, 3].tolist()]),
            build_texts(label(first)),
            _build_type_column(by, cpu_ops, first),
            *(build_numbers(sums[c], INT64) for c in _BEFORE_SHARE),
            build_percent(sums["device_self_ns"], np.full(len(groups), times.total)),
            build_numbers(sums["backward_device_ns"], INT64),
            build_numbers(sums["kernels"], INT64),
            build_numbers(sums["kernels"] / groups.count, FLOAT64),
            build_numbers(sums["launching_calls"], INT64),
        ],
        schema=RETURNS,
    )
    launcher = pool_rows(per, kernels, kernel_links["step"])
    lost = _without_operator(launcher, kernel_links, times, selected)
    ranked = _rank_rows(pa.concat_tables([with_operator, lost]).unify_dictionaries())
    shown = ranked.slice(0, n) if n else ranked
    return with_coverage(shown, rows_left_out=ranked.num_rows - shown.num_rows)


_BEFORE_SHARE = ("count", "cpu_total_ns", "cpu_self_ns", "device_total_ns", "device_self_ns")


def _sum_times(
    tree: CallTree, times: DeviceTimes, groups: Groups, kept: Ints | slice
) -> dict[str, Ints]:
    key = fill_none(len(tree.parent))
    key[kept] = groups.group_ids
    once = tree.outermost(key)[kept]

    def sum_outermost(values: Ints) -> Ints:
        return groups.sum(np.where(once, values[kept], 0))

    return {
        "count": groups.count,
        "cpu_total_ns": sum_outermost(tree.length),
        "cpu_self_ns": groups.sum(tree.self_time[kept]),
        "device_total_ns": sum_outermost(tree.subtree(times.own)),
        "device_self_ns": groups.sum(times.own[kept]),
        "backward_device_ns": sum_outermost(tree.subtree(times.backward)),
        "kernels": sum_outermost(tree.subtree(times.kernels)),
        "launching_calls": groups.sum((times.kernels[kept] > 0).astype(np.int64)),
    }


def _told_apart(
    by: By, tree: CallTree, cpu_ops: pa.Table, op_callers: pa.Table, line_tables: TablesLater
) -> tuple[Ints, Callable[[Ints], list[str | None]]]:
    """Return a number for each call that tells calls of one operator apart, and a function that
    gives the text for some rows."""
    if by == "name":
        return np.zeros(len(tree.parent), np.int64), lambda rows: [None] * len(rows)
    if by == "thread":
        who = cpu_ops.select(["rank", "process", "thread"])
        return tree.thread, lambda rows: [
            "rank {rank} process {process} thread {thread}".format(**row)
            for row in who.take(pa.array(rows)).to_pylist()
        ]
    if by == "source":
        lines = lines_of_operators(line_tables)
        return lines.codes, lambda rows: [
            lines.texts[code] if code != NONE else None for code in lines.codes[rows].tolist()
        ]
    column = {
        "shape": cpu_ops["input_dims"],
        "module": op_callers["module"],
    }[by]
    if by == "module" and not mark_valid(column).any():
        raise MissingTable("no operator has an nn.Module", "modules")
    codes = codes_of(column)[0].astype(np.int64)
    if by == "shape":
        types = codes_of(cpu_ops["input_types"])[0].astype(np.int64)
        codes = Groups.by_keys([codes, types]).group_ids
    return codes, lambda rows: _texts_at(column, rows)


def _build_type_column(by: By, cpu_ops: pa.Table, rows: Ints) -> pa.Array:
    if by != "shape":
        return build_texts([None] * len(rows))
    return build_texts(_texts_at(cpu_ops["input_types"], rows))


def _texts_at(column: pa.ChunkedArray, rows: Ints) -> list[str | None]:
    values: list[str | None] = column.take(pa.array(rows)).to_pylist()
    return values


def _without_operator(
    who: Ints, kernel_links: pa.Table, times: DeviceTimes, selected: Mask
) -> pa.Table:
    """Return rows for the GPU time that belongs to no operator of the selection."""
    rows: list[dict[str, object]] = []
    for why, lost in without_operator(kernel_links, times, selected):
        groups = Groups.by_keys(who[lost])
        device = groups.sum(times.length[lost])
        kernels = groups.count
        for k, keys in enumerate(groups.keys.tolist()):
            rank, cycle, step = (key if key >= 0 else None for key in keys)
            row = {
                "rank": rank,
                "cycle": cycle,
                "step": step,
                "op": why,
                "device_total_ns": int(device[k]),
                "device_self_ns": int(device[k]),
                "device_time_pct": 100 * int(device[k]) / times.total if times.total else None,
                "kernels": int(kernels[k]),
            }
            rows.append(row)
    columns = [[row.get(f.name) for row in rows] for f in RETURNS]
    return pa.table(
        [
            build_texts(column) if f.type == TEXT else pa.array(column, f.type)  # type: ignore[arg-type]
            for column, f in zip(columns, RETURNS, strict=True)
        ],
        schema=RETURNS,
    )


def _rank_rows(rows: pa.Table) -> pa.Table:
    """Sort each rank, cycle and step by GPU time, then by CPU time, most first."""
    keys: list[NDArray[np.int64]] = [
        -read_numbers(rows["cpu_self_ns"]),
        -read_numbers(rows["device_self_ns"]),
        read_numbers(rows["step"], np.iinfo(np.int32).max).astype(np.int64),
        read_numbers(rows["cycle"], np.iinfo(np.int32).max).astype(np.int64),
        read_keys(rows["rank"]),
    ]
    return rows.take(pa.array(np.lexsort(keys)))
