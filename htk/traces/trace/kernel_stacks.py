"""Stacks and annotations of kernels that stand in files beside the profiler's trace.

Nodes of CUDA graphs are told by the graph's number and their own, of which some profilers write
both in one; what a compiler made is told by its name.
"""

from collections import defaultdict

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, map_texts, mark_valid, read_numbers
from htk.base.columns.groups import row_of
from htk.base.columns.types import NONE, Ints
from htk.base.schema import INT64
from htk.traces.trace.execution import fill_column

FORMAT = "kernel_stacks"
OF_FORMATS = ("kineto", "kineto_perfetto")
_NODE_BITS = 32


def filled_kernels(kernels: pa.Table, stacks: pa.Table) -> pa.Table:
    """Return GPU activities with what a file says of their nodes and names."""
    is_node = mark_valid(stacks["graph_node"])
    nodes = stacks.filter(pa.array(is_node))
    if nodes.num_rows and kernels["graph_node"].null_count < len(kernels):
        row = row_of(_tell_nodes(nodes), _tell_nodes(kernels))
        row[~mark_valid(kernels["graph_node"])] = NONE
        rows = build_numbers(np.maximum(row, 0), INT64, row != NONE)
        for name in ("graph_annotation", "call_stack"):
            kernels = fill_column(kernels, name, nodes[name].take(rows))
    by_name: dict[str, list[str]] = defaultdict(list)
    named = stacks.filter(pa.array(~is_node))
    for name, stack in zip(*(named[c].to_pylist() for c in ("name", "call_stack")), strict=True):
        by_name[name] += [stack] if stack else []
    if not by_name:
        return kernels
    joined = {name: "\n".join(dict.fromkeys(of_name)) for name, of_name in by_name.items()}
    return fill_column(kernels, "call_stack", map_texts(kernels["name"], joined.get))


def _tell_nodes(table: pa.Table) -> Ints:
    """Return the graph and the node of each row."""
    node = read_numbers(table["graph_node"], 0)
    graph = np.where(
        mark_valid(table["graph_id"]), read_numbers(table["graph_id"]), node >> _NODE_BITS
    )
    return np.column_stack([graph, node & ((1 << _NODE_BITS) - 1)])
