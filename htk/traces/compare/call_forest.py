"""What one step of one rank called: its threads, modules and operators as one forest, and the GPU
activities that each operator launched."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import match_texts, read_booleans, read_lengths, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.nesting import Threads, nest_spans
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.quantities.measures.call_tree import labels_of
from htk.traces.compare.items import Side, Tables
from htk.traces.compare.tree_alignment import Forest

_MODULE = "nn.Module: "
_INSTANCE = re.compile(r"_\d+$")  # of a module: equal layers are to be one place
_GENERATED = re.compile(r"\b(?=\w*\d)[0-9a-z]{24,}\b")  # the key of a compiled graph
_AUTOGRAD = "autograd::engine"
OUTSIDE = "(launched outside operators)"
THREAD = "thread"
AUTOGRAD_THREAD = "autograd thread"


@dataclass(frozen=True)
class CallForest:
    """The calls of a step, callers first, and what they launched."""

    names: list[str]
    name: Ints  # of each node
    parent: Ints
    depth: Ints
    kernel_node: Ints  # node that launched each GPU activity, in order of nodes; NONE comes first
    kernel_name: list[str]
    kernel_ns: Ints
    rank: int
    step: int | None
    has_gpu: bool  # GPU activities were recorded, of any step

    @classmethod
    def from_tables(cls, tables: Tables) -> "CallForest":
        """Return the steadiest step of the first rank; without steps, all of it."""
        rank, cycle, step = _chosen_step(tables)
        ops = tables["cpu_ops"]
        links = tables["op_links"]
        rows = np.flatnonzero(read_booleans(links["selected"]) & _mark_rank_rows(ops, rank, cycle))
        if step is not None:
            rows = rows[read_numbers(links["step"], NONE)[rows] == step]
        spans = _Spans.from_operators(
            ops.take(pa.array(rows)), _select_modules(tables, rank, cycle)
        )
        node_of_op = fill_none(ops.num_rows + 1)
        node_of_op[rows] = spans.node_of_op
        kernels = tables["kernels"]
        kernel_links = tables["kernel_links"]
        activities = _mark_rank_rows(kernels, rank, cycle)
        if step is not None:
            activities &= read_numbers(kernel_links["step"], NONE) == step
        chosen = np.flatnonzero(activities)
        node = node_of_op[read_numbers(kernel_links["op_row"], NONE)[chosen]]
        order = order_by(node, read_numbers(kernels["start_ns"])[chosen])
        launched = kernels.take(pa.array(chosen[order]))
        return cls(
            spans.names,
            spans.name,
            spans.parent,
            spans.depth,
            node[order],
            launched["name"].to_pylist(),
            read_lengths(launched),
            rank,
            step,
            bool(kernels.num_rows),
        )

    def kernels(self, node: Ints, end: Ints) -> tuple[Ints, Ints]:
        """Return the first and the last activity, exclusive, of nodes `node` to `end`."""
        return np.searchsorted(self.kernel_node, node), np.searchsorted(self.kernel_node, end)


def build_forests(base: CallForest, new: CallForest) -> tuple[Forest, Forest]:
    """Return both as forests whose names have the same numbers."""
    code: dict[str, int] = {}
    sides = []
    for side in (base, new):
        codes = np.array([code.setdefault(name, len(code)) for name in side.names], np.int64)
        sides.append(Forest(take_or(codes, side.name), side.parent, side.depth))
    return sides[0], sides[1]


@dataclass(frozen=True)
class _Spans:
    """Modules and operators of some threads as nodes, each thread a root."""

    names: list[str]
    name: Ints
    parent: Ints
    depth: Ints
    node_of_op: Ints

    @classmethod
    def from_operators(cls, ops: pa.Table, modules: pa.Table) -> "_Spans":
        threads = Threads()
        thread = np.append(threads.number_threads(modules), threads.number_threads(ops)).astype(
            np.int64
        )
        start = np.append(read_numbers(modules["start_ns"]), read_numbers(ops["start_ns"]))
        end = np.append(read_numbers(modules["end_ns"]), read_numbers(ops["end_ns"]))
        is_op = np.arange(len(start)) >= modules.num_rows
        kept = is_op | _mark_holding(thread, start, end, is_op)
        thread = thread[kept]
        start = start[kept]
        end = end[kept]
        is_op = is_op[kept]
        texts, codes = _name_calls(modules, ops)
        codes = codes[kept]
        roots, root_names = _find_roots(thread, start, codes, texts)
        order = order_by(roots, start, -end, is_op)  # of equal spans the module is round
        parent, depth = nest_spans(roots[order].astype(np.int32), start[order], end[order])
        count = len(root_names)
        # A thread's node stands before its calls.
        position = np.arange(len(order)) + roots[order] + 1
        first = np.searchsorted(roots[order], np.arange(count)) + np.arange(count)
        name = np.empty(len(order) + count, np.int64)
        above = np.empty(len(order) + count, np.int64)
        deep = np.empty(len(order) + count, np.int64)
        name[first] = np.arange(count) + len(texts)
        above[first] = NONE
        deep[first] = 0
        name[position] = codes[order]
        deep[position] = depth + 1
        above[position] = np.where(parent < 0, first[roots[order]], position[parent])
        node = np.empty(len(order), np.int64)
        node[order] = position
        return cls([*texts, *root_names], name, above, deep, node[is_op])


def _mark_holding(thread: Ints, start: Ints, end: Ints, is_op: Mask) -> Mask:
    """Return which spans have an operator's start inside them, on their thread."""
    holds = np.zeros(len(thread), bool)
    for number in np.unique(thread).tolist():  # a handful of threads
        on_thread = thread == number
        starts = np.sort(start[on_thread & is_op])
        inside = np.searchsorted(starts, [start[on_thread], end[on_thread]])
        holds[on_thread] = inside[1] > inside[0]
    return holds


def _name_calls(modules: pa.Table, ops: pa.Table) -> tuple[list[str], Ints]:
    """Return names and their codes, modules first, without what differs from run to run."""
    module, module_names = labels_of(modules["name"])
    op, op_names = labels_of(ops["name"])
    bare = [_INSTANCE.sub("", name) for name in module_names]
    bare += [_GENERATED.sub("…", name) for name in op_names]
    texts = sorted(set(bare))
    code_of = {text: code for code, text in enumerate(texts)}
    codes = np.array([code_of[text] for text in bare], np.int64)
    return texts, codes[np.append(module, op + len(module_names))]


def _find_roots(
    thread: Ints, start: Ints, code: Ints, names: Sequence[str]
) -> tuple[Ints, list[str]]:
    """Return the root of each span and the roots' names: those of the forward pass first."""
    threads = Groups.by_keys(thread[:, None].astype(np.int64))
    is_backward = np.array([name.startswith(_AUTOGRAD) for name in names], bool)[code]
    backward = np.bincount(threads.group_ids, is_backward, len(threads)) > 0
    order = order_by(backward, threads.min(start))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[threads.group_ids], [
        AUTOGRAD_THREAD if late else THREAD for late in backward[order].tolist()
    ]


def _select_modules(tables: Tables, rank: int, cycle: int) -> pa.Table:
    calls = tables["python_calls"]
    chosen = match_texts(calls["name"], lambda name: name.startswith(_MODULE))
    return calls.filter(pa.array(chosen & _mark_rank_rows(calls, rank, cycle)))


def _mark_rank_rows(table: pa.Table, rank: int, cycle: int) -> Mask:
    of_rank = read_numbers(table["rank"], NONE) == rank
    return np.asarray(of_rank & (read_numbers(table["cycle"], 0) == cycle))


def _chosen_step(tables: Tables) -> tuple[int, int, int | None]:
    """Return rank, cycle and number of the complete step of median length, of the first rank."""
    side = Side(tables)
    samples = side.samples
    if not len(samples):
        ops = tables["cpu_ops"].filter(pa.array(read_booleans(tables["op_links"]["selected"])))
        who = np.column_stack([read_numbers(ops["rank"], NONE), read_numbers(ops["cycle"], 0)])
        first = min(map(tuple, np.unique(who, axis=0).tolist()), default=(NONE, 0))
        return int(first[0]), int(first[1]), None
    of_first = (samples[:, :2] == samples[0, :2]).all(axis=1)
    order = order_by(side.sample_ns[of_first])
    rank, cycle, step = samples[of_first][order[len(order) // 2]].tolist()
    return rank, cycle, step
