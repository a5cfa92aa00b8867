"""Which Python functions take the time."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.analysis import analysis, with_coverage
from htk.arrow import number, numbers, texts
from htk.breakdown import percent
from htk.calltree import NONE, CallTree, DeviceTimes, labels_of
from htk.chart import Bar
from htk.groups import Groups, Ints
from htk.schema import TEXT, table

RETURNS = table(
    function=(TEXT, "Python function or nn.Module."),
    calls=(pa.int64(), "Calls."),
    total_ns=(pa.int64(), "Time inside it; recursion counts once."),
    self_ns=(pa.int64(), "That less the Python calls that it makes; operators are still in it."),
    python_ns=(pa.int64(), "self_ns less the operators that it calls: Python's own time."),
    operators_ns=(pa.int64(), "CPU time of the operators that it calls directly."),
    pct_of_python_time=(pa.float64(), "python_ns of that of all functions."),
    device_self_ns=(pa.int64(), "GPU time launched by those operators."),
    device_total_ns=(pa.int64(), "GPU time launched inside it, at any depth."),
)


@analysis(
    returns=RETURNS, chart=Bar("function", "python_ns", horizontal=True), needs=("python_calls",)
)
def python_hotspots(
    python_calls: pa.Table,
    python_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_callers: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    n: Annotated[int | None, "Most functions to give, those with most time; all when 0."] = 30,
) -> pa.Table:
    """Which Python functions take the time?

    The profiler's own cost of recording each call is in these times.
    """
    tree = CallTree.of(python_calls, python_links)
    times = DeviceTimes.of(cpu_ops.num_rows, kernels, kernel_links, op_links)
    name, names = labels_of(python_calls["name"])
    groups = Groups.of(name)
    once = tree.outermost(groups.which)
    operators, device = _of_operators(python_calls.num_rows, cpu_ops, op_links, op_callers, times)
    own = tree.self_time
    python = groups.sum(np.maximum(own - operators, 0))
    order = np.lexsort((-groups.sum(own), -python))
    shown = order[:n] if n else order
    columns = [
        groups.count,
        groups.sum(np.where(once, tree.length, 0)),
        groups.sum(own),
        python,
        groups.sum(operators),
    ]
    found = pa.table(
        [
            texts([names[k] for k in groups.keys[shown, 0].tolist()]),
            *(number(column[shown], pa.int64()) for column in columns),
            percent(python[shown], np.full(len(shown), python.sum())),
            number(groups.sum(device)[shown], pa.int64()),
            number(groups.sum(np.where(once, tree.subtree(device), 0))[shown], pa.int64()),
        ],
        schema=RETURNS,
    )
    return with_coverage(found, functions_left_out=len(order) - len(shown))


def _of_operators(
    calls: int, cpu_ops: pa.Table, op_links: pa.Table, op_callers: pa.Table, times: DeviceTimes
) -> tuple[Ints, Ints]:
    """CPU time of the outermost operators in each Python call, and what they launched."""
    row = numbers(op_callers["python_row"], NONE)
    parent = numbers(op_links["parent_row"], NONE)
    length = numbers(cpu_ops["end_ns"]) - numbers(cpu_ops["start_ns"])
    # An operator may call Python, which calls operators: each counts where it was called.
    outer = (row != NONE) & (np.append(row, NONE)[parent] != row)
    cpu, device = np.zeros(calls, np.int64), np.zeros(calls, np.int64)
    np.add.at(cpu, row[outer], length[outer])
    inside = row != NONE
    np.add.at(device, row[inside], times.own[inside])
    return cpu, device
