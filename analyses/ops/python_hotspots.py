"""Which Python functions take the time."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, build_texts, read_lengths
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.gpu_callers import python_of_kernels
from htk.quantities.measures.python_time import PythonTime

RETURNS = table(
    function=(TEXT, "Python function or nn.Module."),
    count=(INT64, "Calls."),
    total_ns=(INT64, "Time inside it; recursion counts once."),
    self_ns=(INT64, "That less the Python calls inside it; operators are still in it."),
    python_ns=(INT64, "self_ns less the operators that it calls: Python's own time."),
    operators_ns=(INT64, "CPU time of the operators that it calls, less Python inside them."),
    python_time_pct=(FLOAT64, "python_ns of that of all functions."),
    device_self_ns=(
        INT64,
        "GPU time launched in it and in no Python call inside it, by operators or without.",
    ),
    device_total_ns=(INT64, "GPU time launched inside it, at any depth."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("function", "python_ns", horizontal=True),
    needs=("python_calls",),
    null_without={"kernels": ("device_self_ns", "device_total_ns")},
)
def python_hotspots(
    python_calls: pa.Table,
    python_links: pa.Table,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_callers: pa.Table,
    launch_callers: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    n: Annotated[int, "Rows to show, most time first; 0: all."] = 20,
) -> pa.Table:
    """Which Python functions take the time?

    GPU work belongs to the functions that were open round its launch on that thread, whether an
    operator launched it, a CUDA graph's replay or a kernel called from Python. The profiler's own
    cost of recording each call is in these times.
    """
    spent = PythonTime.from_tables(python_calls, python_links, cpu_ops, op_links, op_callers)
    tree, groups = spent.tree, spent.functions
    once = tree.outermost(groups.group_ids)
    caller = python_of_kernels(kernel_links, launch_callers, op_callers)
    has_caller = caller != NONE
    length = read_lengths(kernels)
    device = np.zeros(python_calls.num_rows, np.int64)
    np.add.at(device, caller[has_caller], length[has_caller])
    own = tree.self_time
    python = groups.sum(spent.own)
    order = order_by(-python, -groups.sum(own))
    shown = order[:n] if n else order
    columns = [
        groups.count,
        groups.sum(np.where(once, tree.length, 0)),
        groups.sum(own),
        python,
        groups.sum(spent.operators),
    ]
    answer = pa.table(
        [
            build_texts([spent.names[k] for k in groups.keys[shown, 0].tolist()]),
            *(build_numbers(column[shown], INT64) for column in columns),
            build_percent(python[shown], np.full(len(shown), python.sum())),
            build_numbers(groups.sum(device)[shown], INT64),
            build_numbers(groups.sum(np.where(once, tree.subtree(device), 0))[shown], INT64),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, functions_left_out=len(order) - len(shown))
