"""Which nn.Modules take the time."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    mark_valid,
    match_texts,
    read_booleans,
    read_lengths,
    read_numbers,
)
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.derived.captures import CaptureTables, links_of_captures
from htk.quantities.derived.op_ancestors import MODULE
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.call_tree import CallTree
from htk.quantities.measures.gpu_callers import TextCodes, modules_of_kernels

RETURNS = table(
    module=(TEXT, "Path of nn.Modules; null: in none."),
    depth=(INT32, "0 for the outermost."),
    count=(INT64, "Calls of the module; null where the trace records none (no with_stack)."),
    cpu_total_ns=(INT64, "Time inside those calls; null as above."),
    operators=(INT64, "Outermost operators that ran in it and in the modules inside it."),
    operators_cpu_ns=(INT64, "CPU time of operators in it and in the modules inside it."),
    device_total_ns=(INT64, "GPU time of it and of the modules inside it, both passes."),
    device_self_ns=(INT64, "GPU time launched in it, and in no module inside it."),
    backward_device_ns=(
        INT64,
        "The part of device_total_ns that backward operators launched.",
    ),
    device_time_pct=(FLOAT64, "device_self_ns of all GPU time."),
    kernels=(INT64, "GPU activities in it and in the modules inside it."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("module", "device_self_ns", horizontal=True, instead="cpu_total_ns"),
    needs=("cpu_ops",),
    null_without={
        "kernels": ("device_total_ns", "device_self_ns", "backward_device_ns", "kernels")
    },
)
def module_breakdown(
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_callers: pa.Table,
    launch_callers: pa.Table,
    python_calls: pa.Table,
    python_links: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    captured: CaptureTables,
    *,
    n: Annotated[int, "Rows to show, most GPU time first; 0: all."] = 20,
) -> pa.Table:
    """Which modules take the time, in forward and in backward?

    The module of an operator is recorded with it, or told from the Python calls round it; a
    backward operator belongs to the module of its forward one. GPU work belongs to the module
    whose call was open round its launch, so that CUDA graphs and kernels launched from Python
    count; where none was, to that of its operator. Kernels of a graph whose capture was recorded
    belong to the module that captured them.
    """
    kernel_links = links_of_captures(kernels, kernel_links, captured)
    operators = TextCodes.from_column(op_callers["module"])
    launched = modules_of_kernels(kernels, kernel_links, launch_callers, op_callers)
    modules = [*dict.fromkeys([*operators.used, *launched.used])]
    if not modules:
        raise MissingTable("no operator has an nn.Module", "modules")
    tree = CallTree.from_calls(cpu_ops, op_links)
    names, above = _with_outer(modules)
    of_operator = operators.among(names)
    of_kernel = launched.among(names)
    kept = read_booleans(op_links["selected"])
    op = read_numbers(kernel_links["op_row"], NONE)
    backward = take_or(mark_valid(op_links["forward_row"]), op, False)
    length = read_lengths(kernels)

    def sum_direct(module: Ints, values: Ints) -> Ints:
        total = np.zeros(len(names) + 1, np.int64)  # the last entry for no module
        np.add.at(total, module, values)
        return total

    own = sum_direct(of_kernel, length)
    calls, inside = _count_calls(names, python_calls, python_links)
    columns = {
        "operators": _with_inner(sum_direct(of_operator, kept & (tree.parent == NONE)), above),
        "operators_cpu_ns": _with_inner(sum_direct(of_operator, kept * tree.self_time), above),
        "device_total_ns": _with_inner(own, above),
        "device_self_ns": own,
        "backward_device_ns": _with_inner(sum_direct(of_kernel, backward * length), above),
    }
    order = order_by(-columns["device_total_ns"], -columns["operators_cpu_ns"])
    many = _with_inner(sum_direct(of_kernel, np.ones(len(length), np.int64)), above)
    order = order[(order != len(names)) | bool(columns["operators"][-1] or many[-1])]
    shown = order[:n] if n else order
    depth = np.array([name.count(".") for name in names] + [0])
    missing = len(names)
    recorded = calls[shown] > 0
    answer = pa.table(
        [
            build_texts([names[k] if k != missing else None for k in shown.tolist()]),
            build_numbers(depth[shown], INT32, shown != missing),
            build_numbers(calls[shown], INT64, recorded),
            build_numbers(inside[shown], INT64, recorded),
            *(build_numbers(column[shown], INT64) for column in columns.values()),
            build_percent(own[shown], np.full(len(shown), int(length.sum()))),
            build_numbers(many[shown], INT64),
        ],
        schema=RETURNS,
    )
    return with_coverage(
        answer, modules_left_out=len(order) - len(shown), device_time_without_module_ns=int(own[-1])
    )


def _with_outer(names: list[str]) -> tuple[list[str], Ints]:
    """Return the modules and those that hold them, and the one that holds each (`NONE`: none)."""
    code_of = {name: k for k, name in enumerate(names)}
    above = []
    k = 0
    while k < len(names):  # grows by the outer modules that no operator ran directly in
        outer = names[k].rpartition(".")[0]
        if outer and outer not in code_of:
            code_of[outer] = len(names)
            names.append(outer)
        above.append(code_of[outer] if outer else NONE)
        k += 1
    return names, np.array(above, np.int64)


def _with_inner(own: Ints, above: Ints) -> Ints:
    """Return the sum over each module and the modules inside it (the last entry: no module)."""
    total = own.copy()
    holder = above.copy()
    reached = np.arange(len(above))
    while len(reached):  # as often as modules are deep
        inner = holder != NONE
        reached = reached[inner]
        holder = holder[inner]
        np.add.at(total, holder, own[reached])
        holder = above[holder]
    return total


def _count_calls(
    names: list[str], python_calls: pa.Table, python_links: pa.Table
) -> tuple[Ints, Ints]:
    """Return how often each module was called, and for how long."""
    count = np.zeros(len(names) + 1, np.int64)
    inside = np.zeros(len(names) + 1, np.int64)
    module, paths = codes_of(python_links["module"])
    own = match_texts(python_calls["name"], lambda name: name.startswith(MODULE))
    code_of = {name: k for k, name in enumerate(names)}
    module_of = np.array([code_of.get(p, NONE) for p in paths.to_pylist()] + [NONE], np.int64)
    rows = np.flatnonzero(own & (module_of[module] != NONE))
    length = read_lengths(python_calls)
    np.add.at(count, module_of[module[rows]], 1)
    np.add.at(inside, module_of[module[rows]], length[rows])
    return count, inside
