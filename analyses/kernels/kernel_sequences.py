"""Which sequences of kernels operators launch again and again."""

from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    match_texts,
    read_booleans,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NO_TIME, NONE, Ints, Mask, take_or
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.humanize import join_in_order, parse_pattern
from htk.base.schema import FLOAT64, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.call_tree import CallTree, labels_of

RETURNS = table(
    op=(TEXT, "Operator."),
    kernel_sequence=(TEXT, "What it launches, in the order of the calls."),
    length=(INT64, "GPU activities of the sequence."),
    count=(INT64, "Calls of the operator that launch just this sequence."),
    device_ns=(INT64, "Sum of the activities' durations."),
    device_ns_mean=(FLOAT64, "GPU time of one such call."),
    cpu_ns=(INT64, "Time of those calls on the CPU."),
    cpu_ns_mean=(FLOAT64, "Time of one such call on the CPU."),
    device_time_pct=(FLOAT64, "device_ns of all GPU time."),
)


@analysis(
    returns=RETURNS, chart=Bar("op", "device_ns", horizontal=True), needs=("cpu_ops", "kernels")
)
def kernel_sequences(
    cpu_ops: pa.Table,
    op_links: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    match: Annotated[str | None, "Regular expression that names must match: operators."] = None,
    min_length: Annotated[int, "Shortest sequence to count."] = 3,
    n: Annotated[int, "Rows to show, most GPU time first; 0: all."] = 20,
) -> pa.Table:
    """Which sequences of kernels do operators launch again and again?

    Each activity belongs to the outermost operator that matches. A sequence that comes often and
    takes longer on the CPU than on the GPU is one to fuse or to capture in a graph.
    """
    tree = CallTree.from_calls(cpu_ops, op_links)
    root = tree.roots(_mark_wanted(cpu_ops, match) & read_booleans(op_links["selected"]))
    op = read_numbers(kernel_links["op_row"], NONE)
    owner = take_or(root, op)
    start = read_numbers(kernel_links["launch_start_ns"], NO_TIME)
    began = read_numbers(kernels["start_ns"])
    rows = np.flatnonzero(owner != NONE)
    rows = rows[order_by(owner[rows], start[rows], began[rows])]
    calls = Groups.by_keys(owner[rows])
    name, labels = labels_of(kernels["name"])
    of_op, ops = labels_of(cpu_ops["name"])
    owners = calls.keys[:, 0] if len(calls) else np.empty(0, np.int64)
    long = np.flatnonzero(calls.count >= min_length)
    same = Groups.by_keys(
        np.column_stack([of_op[owners], calls.count, _fingerprint_calls(calls, name[rows])])[long]
    )
    length = read_numbers(kernels["end_ns"]) - began
    device = same.sum(calls.sum(length[rows])[long])
    cpu = same.sum(tree.length[owners][long])
    first = long[same.first_row]
    first_rows = np.cumsum(calls.count) - calls.count
    order = order_by(-device, -same.count)
    shown = order[:n] if n else order
    slices = [(int(first_rows[k]), int(calls.count[k])) for k in first[shown].tolist()]
    table = pa.table(
        [
            build_texts([ops[of_op[owners[k]]] for k in first[shown].tolist()]),
            build_texts(
                [
                    join_in_order([labels[k] for k in name[rows[low : low + size]].tolist()])
                    for low, size in slices
                ]
            ),
            build_numbers(calls.count[first[shown]], INT64),
            build_numbers(same.count[shown], INT64),
            build_numbers(device[shown], INT64),
            build_numbers(device[shown] / same.count[shown], FLOAT64),
            build_numbers(cpu[shown], INT64),
            build_numbers(cpu[shown] / same.count[shown], FLOAT64),
            build_percent(device[shown], np.full(len(shown), int(length.sum()))),
        ],
        schema=RETURNS,
    )
    return with_coverage(table, rows_left_out=len(order) - len(shown))


def _mark_wanted(cpu_ops: pa.Table, match: str | None) -> Mask:
    rule = parse_pattern(match or "", "match")
    return match_texts(cpu_ops["name"], lambda name: bool(rule.search(name)))


def _fingerprint_calls(calls: Groups, name: Ints) -> Ints:
    """Return a number for the names in their order: rows are grouped and ordered already.

    A sum of well mixed 64-bit products of name and place: two sequences that differ share it with
    a probability near 2**-62.
    """
    position = np.arange(len(name)) - (np.cumsum(calls.count) - calls.count)[calls.group_ids]
    mixed = _mix_bits(name.astype(np.uint64) + np.uint64(1)) * (
        _mix_bits(position.astype(np.uint64)) | np.uint64(1)
    )
    return calls.sum(_mix_bits(mixed).view(np.int64)) >> 2


def _mix_bits(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
