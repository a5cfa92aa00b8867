"""Time of Python functions, and of the operators that they call."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers, read_times
from htk.base.columns.groups import Groups
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.quantities.measures.call_tree import CallTree, functions_of


@dataclass(frozen=True)
class PythonTime:
    """Python calls, grouped by function."""

    tree: CallTree
    functions: Groups
    names: list[str]  # by the key of a group
    caller: Ints  # the Python call round each operator; NONE: none
    operators: Ints  # CPU time of the operators that each call makes, less Python inside them

    @classmethod
    def from_tables(
        cls,
        python_calls: pa.Table,
        python_links: pa.Table,
        cpu_ops: pa.Table,
        op_links: pa.Table,
        op_callers: pa.Table,
    ) -> "PythonTime":
        tree = CallTree.from_calls(python_calls, python_links)
        name, names = functions_of(python_calls["name"])
        caller, outer = _find_callers(op_links, op_callers)
        operators = _operator_time(tree, cpu_ops, caller, outer)
        return cls(tree, Groups.by_keys(name), names, caller, operators)

    @property
    def own(self) -> Ints:
        """Python's own time of each call, without operators and other Python calls."""
        return np.asarray(np.maximum(self.tree.self_time - self.operators, 0))


def _find_callers(op_links: pa.Table, op_callers: pa.Table) -> tuple[Ints, Mask]:
    """Return the Python call round each operator, and whether no operator lies between them."""
    row = read_numbers(op_callers["python_row"], NONE)
    parent = read_numbers(op_links["parent_row"], NONE)
    return row, (row != NONE) & (take_or(row, parent) != row)


def _operator_time(tree: CallTree, cpu_ops: pa.Table, row: Ints, outer: Mask) -> Ints:
    """Return the CPU time of each Python call's operators, less Python calls inside them, in ns."""
    total = np.zeros(len(tree.parent), np.int64)
    start, end = read_times(cpu_ops, outer)
    caller = row[outer]
    np.add.at(total, caller, end - start)
    inner = np.flatnonzero(tree.parent != NONE)
    inside = inner[_mark_inside(caller, start, end, tree.parent[inner], tree.start[inner])]
    np.subtract.at(total, tree.parent[inside], tree.length[inside])
    return np.maximum(total, 0)


def _mark_inside(caller: Ints, start: Ints, end: Ints, of: Ints, time: Ints) -> Mask:
    """Return whether each time lies in a span of its caller; a caller's spans are disjoint."""
    if not len(caller):
        return np.zeros(len(of), bool)
    lasting = end > start  # one that takes no time may begin with the next
    end = end[lasting]
    last = SegmentTimes(caller[lasting], start[lasting]).last(of, time)
    return np.asarray((last != NONE) & (take_or(end, last, 0) > time))
