"""Which operator answers for each GPU activity, and what work its call was.

Leaf accounting: an activity counts for the innermost operator round its launch. Where that one is
not modelled (a backend's own operator), for the nearest caller that is, provided that no other
modelled operator launches inside that caller: nothing is counted twice. Kernels of a CUDA graph
count for the operators that were captured, where the capture was recorded.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    match_texts,
    read_booleans,
    read_lengths,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.mappings import NamedTables
from htk.physics import op_costs
from htk.physics.op_costs.call import FALLBACK, TYPES, Cost
from htk.physics.op_costs.serving import Tokens, is_served, tokens_of
from htk.quantities.derived.captures import captured_ops
from htk.quantities.measures.call_tree import CallTree, labels_of
from htk.quantities.measures.expert_buffers import with_buffers
from htk.quantities.measures.forward_calls import ToldBy, told_by
from htk.quantities.measures.launching import launched_within

# CUTLASS names the type of a product's operands unless it is TF32.
_TF32 = re.compile(r"tf32|tensorop_s1688gemm_\d", re.I)
_SAVING = re.compile(r"winograd|fft", re.I)
# What `OperatorWork.of` reads.
WORK_TABLES = ("cpu_ops", "op_links", "kernels", "kernel_links", "launches", "launch_links",
               "annotations", "op_passes")  # fmt: skip
WorkTables = Annotated[NamedTables, WORK_TABLES]
_DESCRIBED = ("name", "input_dims", "input_types", "concrete_inputs")


@dataclass(frozen=True)
class CallSignatures:
    """Calls that are alike, and what one of them costs."""

    kind: Ints  # kind of call of each operator, or NONE
    costs: list[op_costs.CostOrReason]
    signatures: list[tuple[str, str | None, str | None, str | None]]  # name, shapes, types, values
    unknown: str  # type of tensors that have none


@dataclass(frozen=True)
class OperatorWork:
    """GPU activities, the operator that answers for each, and the calls behind them."""

    row: Ints  # operator that answers for each activity, or NONE
    kind: Ints  # what it does, in `costs`, or NONE
    costs: list[op_costs.CostOrReason]
    replay: Ints  # the call that replays a captured operator, or NONE
    length: Ints
    recompute: Mask  # operators run once more in the backward pass
    modelled: Mask  # activities
    calls: CallSignatures

    @classmethod
    def from_tables(cls, tables: NamedTables) -> "OperatorWork":
        cpu_ops = tables["cpu_ops"]
        kernels = tables["kernels"]
        kernel_links = tables["kernel_links"]
        launches = tables["launches"]
        captured, replay = captured_ops(kernels, kernel_links, launches, tables["launch_links"])
        launcher = np.where(captured != NONE, captured, read_numbers(kernel_links["op_row"], NONE))
        length = read_lengths(kernels)
        tree = CallTree.from_calls(cpu_ops, tables["op_links"])
        launching = np.bincount(launcher[launcher != NONE], minlength=cpu_ops.num_rows) > 0
        cpu_ops = with_buffers(cpu_ops, tree, launcher, kernels["name"])
        calls = _build_signatures(
            cpu_ops, _with_callers(tree, launching), told_by(cpu_ops, tree.parent)
        )
        tokens, iteration = _find_iterations(tables["annotations"], kernels, kernel_links)
        modelled_kinds = np.array([isinstance(f, Cost) for f in calls.costs], bool)
        served = (
            np.array([bool(tokens) and is_served(t[0]) for t in calls.signatures], bool)
            & ~modelled_kinds
        )
        priced = modelled_kinds | served
        modelled = take_or(priced, calls.kind, False)
        comm = match_texts(kernels["kind"], lambda kind: kind == "comm")
        best = take_or(_find_answering(tree, launching, modelled), launcher)
        row = np.where((best != NONE) & ~comm, best, launcher)
        kind, costs = _cost_served(calls, take_or(calls.kind, row), served, iteration, tokens)
        costed = np.array([isinstance(f, Cost) for f in costs] + [False], bool)
        bears = costed[kind] & (row != NONE) & ~comm
        again = read_booleans(tables["op_passes"]["recomputed"])
        return cls(row, kind, costs, replay, length, again, bears, calls)

    def first_activity(self, chosen: Mask) -> tuple[Ints, Ints]:
        """Calls that answer for chosen activities, by their operator, and the first of these of
        each; a replayed operator is called once more."""
        activities = np.flatnonzero(chosen & (self.row != NONE))
        if (self.replay != NONE).any():
            pairs = np.column_stack([self.row[activities], self.replay[activities]])
            begun = activities[Groups.by_keys(pairs).first_row]
            return self.row[begun], begun
        first = fill_none(len(self.recompute))
        first[self.row[activities[::-1]]] = activities[::-1]  # the last one written is the first
        rows = np.flatnonzero(first != NONE)
        return rows, first[rows]

    def missing(self, kernels: pa.Table, kernel_links: pa.Table) -> dict[str, int]:
        """GPU time that no model covers, by reason."""
        comm = match_texts(kernels["kind"], lambda kind: kind == "comm")
        carried = read_booleans(kernel_links["carry_in"])
        graph = match_texts(kernel_links["launch_by"], lambda by: by == "graph")
        rest = ~self.modelled
        by_reason = {
            "communication": rest & comm,
            "launched before the recording": rest & ~comm & carried & (self.row == NONE),
            "in CUDA graphs": rest & ~comm & ~carried & (self.row == NONE) & graph,
            "launched outside operators": rest & ~comm & ~carried & (self.row == NONE) & ~graph,
        }
        sums = Counter({why: int(self.length[rows].sum()) for why, rows in by_reason.items()})
        left = np.flatnonzero(rest & ~comm & (self.row != NONE))
        kinds = np.bincount(self.kind[left], self.length[left])
        for k in np.flatnonzero(kinds).tolist():
            sums[str(self.costs[k])] += int(kinds[k])
        return {why: n for why, n in sums.most_common() if n}


def coverage_facts(
    work: OperatorWork, cpu_ops: pa.Table, kernels: pa.Table, kernel_links: pa.Table
) -> dict[str, object]:
    """Return how much of the GPU time is modelled, and why the rest is not."""
    total = int(work.length.sum())
    comm = match_texts(kernels["kind"], lambda kind: kind == "comm")
    carried = read_booleans(kernel_links["carry_in"])
    own = int(work.length[~comm & ~carried].sum())
    modelled = int(work.length[work.modelled].sum())
    left = work.missing(kernels, kernel_links)
    return {
        "modelled_pct_of_device_time": round(100 * modelled / total, 2) if total else None,
        "modelled_pct_of_time_launched_here_less_communication": (
            round(100 * modelled / own, 2) if own else None
        ),
        "not_modelled_ns": left,
        "counted_as_direct_convolutions_ns": int(
            work.length[saving_activities(work, kernels)].sum()
        ),
        "told_by_graph_captures_ns": int(work.length[work.replay != NONE].sum()),
        "operators_without_model_ns": _list_worst(work, cpu_ops),
    }


FEWER_OPERATIONS = (
    "Winograd or FFT: fewer operations than the direct count, how many is not recorded"
)
BEYOND_PEAK = "above the GPU's compute peak: the operations counted, or the peak, cannot be right"


def saving_activities(work: OperatorWork, kernels: pa.Table) -> Mask:
    """Return which activities are of convolutions with fewer operations than the direct count."""
    convolutions = [isinstance(c, Cost) and c.family == "convolution" for c in work.costs]
    of_convolutions = np.array([*convolutions, False], bool)[work.kind] & work.modelled
    return of_convolutions & match_texts(kernels["name"], lambda name: bool(_SAVING.search(name)))


def in_tf32_by_name(kernel: str) -> bool:
    """Return whether a kernel's name says that it multiplies in TF32."""
    return bool(_TF32.search(kernel))


def tf32_rows(kernels: pa.Table, work: OperatorWork, operators: int) -> Mask:
    """Return the operators of which some kernel computes in TF32."""
    in_tf32 = np.zeros(operators + 1, bool)
    in_tf32[work.row[match_texts(kernels["name"], in_tf32_by_name)]] = True
    return in_tf32[:-1]


def _list_worst(work: OperatorWork, cpu_ops: pa.Table, most: int = 5) -> dict[str, int]:
    name, names = labels_of(cpu_ops["name"])
    rows = np.flatnonzero(~work.modelled & (work.row != NONE))
    times = np.bincount(name[work.row[rows]], work.length[rows])
    order = np.argsort(-times)[:most]
    return {names[k]: int(times[k]) for k in order.tolist() if times[k] > 0}


def _with_callers(tree: CallTree, chosen: Mask) -> Ints:
    """Return the chosen calls and all that called them."""
    marked = chosen.copy()
    for rows in reversed(tree.levels[1:]):
        inside = rows[marked[rows]]
        marked[tree.parent[inside]] = True
    return np.flatnonzero(marked)


def _build_signatures(cpu_ops: pa.Table, rows: Ints, told_by_calls: ToldBy) -> CallSignatures:
    kind = fill_none(cpu_ops.num_rows)
    sources = (told_by_calls.first[rows], told_by_calls.second[rows])
    codes = {c: codes_of(cpu_ops[c])[0].astype(np.int64) for c in _DESCRIBED}
    described = [codes["name"][rows], *(codes[c][sources[0]] for c in _DESCRIBED[1:])]
    linked = sources[1] != NONE
    described += [np.where(linked, codes[c][sources[1]], NONE - 1) for c in _DESCRIBED[1:]]
    groups = Groups.by_keys(described)
    kind[rows] = groups.group_ids
    unknown = _usual_type(cpu_ops)
    begun = [source[groups.first_row] for source in sources]
    signatures: list[Any] = [
        (name, *map(_join_lists, first, second)) if link else (name, *first)
        for name, first, second, link in zip(
            cpu_ops["name"].take(pa.array(rows[groups.first_row])).to_pylist(),
            _describe_calls(cpu_ops, begun[0]),
            _describe_calls(cpu_ops, np.maximum(begun[1], 0)),
            linked[groups.first_row].tolist(),
            strict=True,
        )
    ]
    costs = [
        op_costs.compute_call_cost(n, d, t, v, unknown) for n, d, t, v in signatures
    ]  # one a kind
    return CallSignatures(kind, costs, signatures, unknown)


def _describe_calls(cpu_ops: pa.Table, rows: Ints) -> list[tuple[Any, ...]]:
    """Return the shapes, types and values of calls."""
    columns = [cpu_ops[c].take(pa.array(rows)).to_pylist() for c in _DESCRIBED[1:]]
    return list(zip(*columns, strict=True))


def _join_lists(first: str | None, second: str | None) -> str | None:
    """Return one JSON list followed by another."""
    if not first or not second or min(len(first), len(second)) <= 2:
        return first
    return f"{first[:-1]},{second[1:]}"


def _find_iterations(
    annotations: pa.Table, kernels: pa.Table, kernel_links: pa.Table
) -> tuple[list[Tokens], Ints]:
    """Iterations of a server that tell their tokens, and that of each activity (or NONE)."""
    codes, names = codes_of(annotations["name"])
    by_name = [tokens_of(str(name)) for name in names.to_pylist()]
    with_tokens = np.array([t is not None for t in by_name] + [False], bool)[codes]
    rows = np.flatnonzero(with_tokens & ~read_booleans(annotations["on_gpu"]))
    start, end = read_times(annotations, rows)
    rank = read_numbers(annotations["rank"], NONE)[rows]
    iteration = launched_within(rank, start, end, kernels, kernel_links)
    return [t for k in codes[rows].tolist() if (t := by_name[k])], iteration


def _cost_served(
    calls: CallSignatures, kind: Ints, served: Mask, iteration: Ints, tokens: list[Tokens]
) -> tuple[Ints, list[op_costs.CostOrReason]]:
    """Kinds of calls, a server's attention told apart by iteration."""
    rows = np.flatnonzero(take_or(served, kind, False))
    if not len(rows):
        return kind, calls.costs
    groups = Groups.by_keys([kind[rows], iteration[rows]])
    costs = []
    for k, step in groups.keys.tolist():  # as many as there are shapes and iterations
        name, dims, types, values = calls.signatures[k]
        there = tokens[step] if step != NONE else None
        costs.append(op_costs.served_cost(name, dims, types, values, there, calls.unknown))
    refined = kind.copy()
    refined[rows] = len(calls.costs) + groups.group_ids
    return refined, [*calls.costs, *costs]


def _usual_type(cpu_ops: pa.Table) -> str:
    """The floating type that most calls have first: what lists of tensors, whose types are not
    recorded, most likely hold."""
    codes, dictionary = codes_of(cpu_ops["input_types"])
    counts = np.bincount(codes[codes >= 0], minlength=len(dictionary))
    seen: Counter[str] = Counter()
    for kinds, count in zip(dictionary.to_pylist(), counts.tolist(), strict=True):
        first = kinds.split('"')[1] if kinds and kinds.count('"') > 1 else ""
        if TYPES.get(first, (0, ""))[1] in ("bf16", "fp16", "fp32"):
            seen[first] += count
    return seen.most_common(1)[0][0] if seen else FALLBACK


def _find_answering(tree: CallTree, launching: Mask, modelled: Mask) -> Ints:
    """Return the operator that answers for what each operator launches, or NONE."""
    leaves = (launching & modelled).astype(np.int64)
    alone = modelled & (tree.subtree(leaves) - leaves == 0)
    above = fill_none(len(tree.parent))
    for rows in tree.levels[1:]:
        parent = tree.parent[rows]
        above[rows] = np.where(alone[parent], parent, above[parent])
    return np.where(modelled, np.arange(len(modelled)), above)
