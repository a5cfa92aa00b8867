"""Phases of a training step, on the host: data loading, forward, backward, optimizer, other.

A user range of the stepping thread that names a phase decides for its time (of nested ones the
innermost), on every thread. Elsewhere the phase is inferred: what the autograd engine evaluates is
backward, optimizer operators are optimizer, what precedes a backward of its step is forward.
"""

import re
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.columns.arrow import codes_of, matching, numbers, truths, valid
from htk.columns.groups import Groups, paired
from htk.columns.nesting import Nested
from htk.columns.types import Ints

PHASES = ("dataloader", "forward", "backward", "optimizer", "other")
DATALOADER, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(len(PHASES))

_RANGES = (
    (DATALOADER, re.compile(r"dataloader|data_?load|(load|next|get|wait_for|copy)_batch", re.I)),
    (OPTIMIZER, re.compile(r"optimizer|optim\b|zero_grad", re.I)),
    (BACKWARD, re.compile(r"backward|\bbwd", re.I)),
    (FORWARD, re.compile(r"forward|\bfwd", re.I)),
)
_OPTIMIZER_OP = re.compile(r"_fused_(adam|adamw|sgd|adagrad)|_multi_tensor|^Optimizer\.")
_BACKWARD_OP = re.compile(r"^autograd::engine|Backward\d*$|^torch::autograd::(AccumulateGrad|Copy)")


class Phased(NamedTuple):
    phase: Ints
    inferred: NDArray[np.bool_]


def phase_of_range(name: str) -> int:
    return next((phase for phase, rule in _RANGES if rule.search(name)), OTHER)


class Phases:
    """Which phase a rank's host is in; ask by rank, cycle and time."""

    def __init__(self, annotations: pa.Table, cpu_ops: pa.Table, op_links: pa.Table) -> None:
        self._ranges = _ranges(annotations)
        self._ops = _op_phases(cpu_ops, op_links)

    @property
    def of_ops(self) -> Phased:
        """Of each operator."""
        return self._ops

    @property
    def ranges(self) -> "_Ranges":
        return self._ranges

    def at(self, host: Ints, time: Ints, inferred: Ints) -> Phased:
        """The phase of each (host, time): that of a range, else the inferred one."""
        named = self._ranges.at(host, time)
        told = named >= 0
        return Phased(np.where(told, named, inferred), ~told)


class _Ranges(NamedTuple):
    """User ranges that name a phase."""

    nested: Nested
    phase: Ints

    def at(self, host: Ints, time: Ints) -> Ints:
        """Phase of the innermost one of that host at that time, or -1."""
        found = self.nested.around(host, time)
        return np.append(self.phase, -1)[found]

    def segments(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Host, start, end and phase of the time that ranges cover, cut at every edge."""
        host = np.tile(self.nested.thread.astype(np.int64), 2)
        edge = np.concatenate([self.nested.start, self.nested.end])
        order = np.lexsort((edge, host))
        host, edge = host[order], edge[order]
        real = np.flatnonzero((host[1:] == host[:-1]) & (edge[1:] > edge[:-1]))
        phase = self.at(host[real], edge[real])
        inside = phase >= 0
        real = real[inside]
        return host[real], edge[real], edge[real + 1], phase[inside]


def recomputed(cpu_ops: pa.Table, op_links: pa.Table) -> NDArray[np.bool_]:
    """Operators that run forward work a second time, inside backward (activation checkpointing).

    Autograd numbers operators only while it records: inside backward, only what will be
    differentiated again.
    """
    numbered = (numbers(cpu_ops["sequence"], -1) >= 0) & (numbers(cpu_ops["forward_thread"]) == 0)
    numbered &= ~matching(cpu_ops["name"], lambda n: bool(_BACKWARD_OP.search(n)))
    again = (_op_phases(cpu_ops, op_links).phase == BACKWARD) & numbered
    marks = np.where(again, BACKWARD, OTHER)
    _inherit(marks, op_links)
    return np.asarray(marks == BACKWARD)


def hosts(table: pa.Table) -> Ints:
    """Return one number for each (rank, cycle), the same in every table."""
    return paired(numbers(table["rank"], -1), numbers(table["cycle"], 0))


def _ranges(annotations: pa.Table) -> _Ranges:
    codes, names = codes_of(annotations["name"])
    phases = np.array([*(phase_of_range(n) for n in names.to_pylist()), OTHER], np.int64)[codes]
    host = hosts(annotations)
    mine = (phases != OTHER) & ~valid(annotations["step"]) & ~truths(annotations["on_gpu"])
    mine &= _on_stepping_thread(annotations, host)
    rows = np.flatnonzero(mine)
    start, end = (numbers(annotations[c])[rows] for c in ("start_ns", "end_ns"))
    return _Ranges(Nested(host[rows], start, end), phases[rows])


def _on_stepping_thread(annotations: pa.Table, host: Ints) -> NDArray[np.bool_]:
    """Ranges of the thread that holds the steps; without steps, of any."""
    steps = np.flatnonzero(valid(annotations["step"]) & ~truths(annotations["on_gpu"]))
    thread = codes_of(annotations["thread"])[0].astype(np.int64)
    stepping = dict(zip(host[steps].tolist(), thread[steps].tolist(), strict=True))
    mine = np.ones(len(host), bool)
    for one, its in stepping.items():  # a rank each
        mine &= (host != one) | (thread == its)
    return mine


def _op_phases(cpu_ops: pa.Table, op_links: pa.Table) -> Phased:
    """Inferred from operators: their own name, or that of one round them."""
    length = cpu_ops.num_rows
    phase = np.full(length, OTHER, np.int64)
    names = cpu_ops["name"]
    backward = matching(names, lambda n: bool(_BACKWARD_OP.search(n)))
    backward |= numbers(cpu_ops["forward_thread"]) > 0
    backward |= valid(op_links["forward_row"])
    optimizer = matching(names, lambda n: bool(_OPTIMIZER_OP.search(n)))
    phase[backward] = BACKWARD
    phase[optimizer] = OPTIMIZER
    _inherit(phase, op_links)
    return Phased(_forward(phase, cpu_ops, op_links), np.ones(length, bool))


def _inherit(phase: Ints, op_links: pa.Table) -> None:
    """Operators inside others share their phase."""
    parent, depth = numbers(op_links["parent_row"], -1), numbers(op_links["depth"])
    order = np.argsort(depth, kind="stable")
    levels = np.searchsorted(depth[order], np.arange(int(depth.max(initial=0)) + 2))
    for level in range(1, len(levels) - 1):  # as often as operators are nested
        rows = order[levels[level] : levels[level + 1]]
        above = np.append(phase, OTHER)[parent[rows]]
        phase[rows] = np.where(above != OTHER, above, phase[rows])


def _forward(phase: Ints, cpu_ops: pa.Table, op_links: pa.Table) -> Ints:
    """What comes before the last backward of its step; everything, where nothing is trained."""
    host, start = hosts(cpu_ops), numbers(cpu_ops["start_ns"])
    step = numbers(op_links["step"], -1).astype(np.int64)
    if not (phase == BACKWARD).any():
        return np.where(phase == OTHER, FORWARD, phase)
    groups = Groups.by_keys(np.stack([host, step], axis=1))
    back = np.where(phase == BACKWARD, start, np.iinfo(np.int64).min)
    last = groups.max(back)[groups.group_ids]
    return np.where((phase == OTHER) & (start < last), FORWARD, phase)
