"""The forward call of a backward node that records no sizes of its own.

Autograd numbers nodes as forward calls make them, and every operator bears the number that the
next node will have. So a call's node has the call's own number; where a call in C++ bears none, it
is one less than the number of the next operator on its thread.
"""

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers
from htk.columns.groups import Groups, row_of
from htk.columns.types import NONE, Ints
from htk.measures.call_tree import labels_of
from htk.models.op_costs import forward_name


def forward_calls(cpu_ops: pa.Table) -> Ints:
    """Return the forward call of each operator whose work is told by that alone, or NONE."""
    calls = np.full(cpu_ops.num_rows, NONE, np.int64)
    name, names = labels_of(cpu_ops["name"])
    code_of = {label: k for k, label in enumerate(names)}
    wanted = np.array([code_of.get(forward_name(n) or "", NONE) for n in names], np.int64)[name]
    nodes = np.flatnonzero(wanted != NONE)
    if not len(nodes):
        return calls
    rank = numbers(cpu_ops["rank"], NONE).astype(np.int64)
    forward = np.flatnonzero(np.isin(name, wanted[nodes]))
    number = _node_numbers(cpu_ops, rank)[forward]
    forward = forward[number != NONE]
    keys = np.column_stack([rank[forward], number[number != NONE], name[forward]])
    groups = Groups.by_keys(keys)
    if not len(groups):
        return calls
    only = np.where(groups.count == 1, forward[groups.first_row], NONE)
    sequence = numbers(cpu_ops["sequence"], NONE).astype(np.int64)
    keys = np.column_stack([rank[nodes], sequence[nodes], wanted[nodes]])
    calls[nodes] = np.append(only, NONE)[row_of(groups.keys, keys)]
    return calls


def _node_numbers(cpu_ops: pa.Table, rank: Ints) -> Ints:
    """Return the number of the node that each operator makes, if it makes one, or NONE."""
    sequence = numbers(cpu_ops["sequence"], NONE).astype(np.int64)
    sequence[numbers(cpu_ops["forward_thread"], 0) != 0] = NONE  # of the node that it runs
    thread, _ = labels_of(cpu_ops["thread"])
    order = np.lexsort((numbers(cpu_ops["start_ns"]), thread, rank))
    ordered, length = sequence[order], len(order)
    following = np.where(ordered != NONE, np.arange(length), length)
    following = np.append(np.minimum.accumulate(following[::-1])[::-1], length)[1:]  # after it
    there = np.append(order, 0)[following]
    alike = (following < length) & (rank[there] == rank[order]) & (thread[there] == thread[order])
    number = np.where(alike, sequence[there] - 1, NONE)
    number = np.where(ordered != NONE, ordered, number)
    numbers_ = np.empty(length, np.int64)
    numbers_[order] = number
    return numbers_
