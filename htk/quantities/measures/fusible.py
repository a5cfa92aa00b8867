"""Chains of memory-bound kernels that one kernel could be: each reads what one before it wrote.

Recordings do not name tensors. Within a step, and a pass of it, a call is taken to feed the next
one of its stream where that reads a tensor of as many bytes as it wrote; two copies of one kind do
not, nor two calls of one name that one operator makes, as for the gradients of a product. A fused
kernel reads each such tensor once less and, unless the call wrote in place, writes it once less,
which holds where nothing reads it later, as a backward pass may.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, match_texts, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none, take_or
from htk.base.mappings import NamedTables
from htk.physics.op_costs.call import Cost, Tensor, read_call
from htk.quantities.measures.op_work import WORK_TABLES, OperatorWork

ChainTables = Annotated[NamedTables, (*WORK_TABLES, "kernel_passes")]

_FUSIBLE = ("elementwise", "norm", "reduction", "softmax", "loss", "optimizer", "copy")
# Times its result: what a call writes, which dropout does with a mask, a norm with its statistics.
_SLACK = {"dropout": 1.5, "norm": 1.05}
_OF_COMMUNICATION = ("fsdp::", "c10d::")  # copies into and out of its buffers
_COPY = "aten::copy_"
_SCALAR = 8  # bytes
_ALIKE = 2.0  # times the bytes: calls whose rate tells that of another
_QUANTILES = (0.1, 0.5, 0.9)

Key = tuple[tuple[str, str | None, str | None], ...]  # name, shapes, types of each call


class _Moved(NamedTuple):
    """What a call moves, in bytes."""

    read: tuple[int, ...]
    written: int
    in_place: bool
    slack: float  # times its result: what it writes


class Saving(NamedTuple):
    """What the calls of a chain move, in bytes, and a fused kernel need not."""

    moved: int
    read: int
    written: int


@dataclass(frozen=True)
class Chains:
    """Chains of calls, alike ones under one key."""

    activity: Ints  # rows of activities, chain by chain
    chain: Ints  # of each of these
    is_first: Mask
    alike: Ints  # the key of each chain
    keys: list[Key]
    savings: list[Saving | None]  # of each key; None: no shapes were recorded
    around: list[tuple[str, str]]  # the operators before and behind the first chain of each key
    rates: "MemoryRates"


@dataclass(frozen=True)
class MemoryRates:
    """How long memory-bound calls took for the bytes that they move."""

    moved: Ints  # in order
    length: Ints

    @cached_property
    def _per_byte(self) -> Floats:
        return np.asarray(self.length / np.maximum(self.moved, 1), np.float64)

    def lengths_of(self, moved: float) -> tuple[float, float, float] | None:
        """Return what nine of ten calls of about as many bytes exceed, the median, and what one of
        ten exceeds, in ns for so many bytes; None: there are none."""
        low = np.searchsorted(self.moved, moved / _ALIKE)
        high = np.searchsorted(self.moved, moved * _ALIKE, side="right")
        if low == high:
            return None
        fast, usual, slow = moved * np.quantile(self._per_byte[low:high], _QUANTILES)
        return float(fast), float(usual), float(slow)


def find_chains(tables: NamedTables) -> Chains:
    """Return the chains of a recording, within its steps and streams."""
    work = OperatorWork.from_tables(tables)
    calls = _Calls.from_work(work, tables)
    chain = np.cumsum(np.append(True, ~calls.joined)[: len(calls.kind)]) - 1
    size = np.bincount(chain)
    lows = np.cumsum(size) - size
    numbered: dict[bytes, int] = {}
    keys: list[Key] = []
    savings: list[Saving | None] = []
    around: list[tuple[str, str]] = []
    alike = fill_none(len(size))
    for number in np.flatnonzero(size > 1).tolist():  # chains: a few of each layer
        low = int(lows[number])
        high = int(lows[number] + size[number])
        kinds = calls.kind[low:high]
        alike[number] = numbered.setdefault(kinds.tobytes(), len(keys))
        if alike[number] == len(keys):
            keys.append(tuple(work.calls.signatures[k][:3] for k in kinds.tolist()))
            moved = [calls.moved[k] for k in kinds.tolist()]
            savings.append(_compute_saving(moved) if calls.has_shapes else None)
            around.append((calls.name(low, -1), calls.name(high - 1, 1)))
    of_activity = np.repeat(chain, np.diff(np.append(calls.begins, len(calls.order))))
    inside = take_or(alike, of_activity) != NONE
    numbers_inside = of_activity[inside]
    is_first = ~np.append(False, _mark_repeats(numbers_inside))[: len(numbers_inside)]
    activity = calls.order[inside]
    return Chains(activity, numbers_inside, is_first, alike, keys, savings, around, calls.rates())


@dataclass(frozen=True)
class _Calls:
    """Calls of operators on the streams, in order, and which of them feed the next one."""

    work: OperatorWork
    moved: list[_Moved | None]  # by each kind of call
    order: Ints  # of activities
    begins: Ints  # where each call begins in that order
    kind: Ints
    is_fusible: Mask
    joined: Mask  # with the next one

    @classmethod
    def from_work(cls, work: OperatorWork, tables: NamedTables) -> "_Calls":
        kernels = tables["kernels"]
        moved = [_measure_moved(work, k) for k in range(len(work.calls.signatures))]
        has_shapes = any(moved)
        lane = [read_numbers(kernels[name], NONE) for name in ("rank", "cycle", "device", "stream")]
        lane.append(read_numbers(tables["kernel_links"]["step"], NONE))
        lane.append(codes_of(tables["kernel_passes"]["phase"])[0].astype(np.int64))
        stream = Groups.by_keys(lane).group_ids
        order = order_by(stream, read_numbers(kernels["start_ns"]))
        call = np.stack([stream, work.row, work.replay])[:, order]
        begins = np.flatnonzero(np.append(True, (call[:, 1:] != call[:, :-1]).any(axis=0)))
        begins = begins[: len(order)]
        kind = np.where(work.kind < len(moved), work.kind, NONE)[order][begins]
        is_fusible = _are_all(_fusible_kernels(kernels, has_shapes)[order], begins) & (kind != NONE)
        if has_shapes:
            is_fusible &= take_or(np.array([each is not None for each in moved], bool), kind, False)
        row = work.row[order][begins]
        name = take_or(codes_of(tables["cpu_ops"]["name"])[0], row)
        parent = take_or(read_numbers(tables["op_links"]["parent_row"], NONE), row)
        are_twins = _mark_repeats(name) & _mark_repeats(parent) & (parent[1:] != NONE)
        pair = np.flatnonzero(
            is_fusible[1:] & is_fusible[:-1] & _mark_repeats(call[0][begins]) & ~are_twins
        )
        pairs = Groups.by_keys([kind[pair], kind[pair + 1]])
        feeds = [
            not has_shapes or (_is_fed_by(moved[a], moved[b]) and not _is_copy_of(work, a, b))
            for a, b in pairs.keys.tolist()
        ]
        joined = np.zeros(max(len(begins) - 1, 0), bool)
        joined[pair] = np.array(feeds, bool)[pairs.group_ids]
        return cls(work, moved, order, begins, kind, is_fusible, joined)

    @property
    def has_shapes(self) -> bool:
        return any(self.moved)

    def name(self, call: int, direction: int) -> str:
        """Return the operator of the call before or behind one, whatever is copied between them;
        nothing where there is none."""
        name = _COPY
        while name == _COPY:
            call += direction
            kind = int(self.kind[call]) if 0 <= call < len(self.kind) else NONE
            name = self.work.calls.signatures[kind][0] if kind != NONE else ""
        return name

    def rates(self) -> MemoryRates:
        """Return what calls that could be fused took; without shapes of none."""
        if not self.has_shapes or not len(self.begins):
            return MemoryRates(np.empty(0, np.int64), np.empty(0, np.int64))
        length = np.add.reduceat(self.work.length[self.order], self.begins)
        costs = (each.bytes if isinstance(each, Cost) else 0 for each in self.work.costs)
        total = np.array([*costs], np.int64)[self.kind]
        timed = np.flatnonzero(self.is_fusible)
        timed = timed[order_by(total[timed])]
        return MemoryRates(total[timed], length[timed])


def _mark_repeats(values: Ints) -> Mask:
    return np.asarray(values[1:] == values[:-1])


def _are_all(chosen: Mask, begins: Ints) -> Mask:
    """Return which runs of rows are chosen whole."""
    return np.logical_and.reduceat(chosen, begins) if len(begins) else np.zeros(0, bool)


def _fusible_kernels(kernels: pa.Table, has_shapes: bool) -> Mask:
    """Return which activities are kernels of their operator's own, of no compiler; without shapes
    by the family that their names tell."""
    of_kernels = match_texts(kernels["activity"], "kernel".__eq__)
    compiled = match_texts(kernels["name"], lambda name: name.startswith("triton_"))
    computing = match_texts(kernels["kind"], "compute".__eq__)
    in_family = has_shapes or match_texts(kernels["family"], lambda family: family in _FUSIBLE)
    return np.asarray(of_kernels & computing & ~compiled & in_family)


def _measure_moved(work: OperatorWork, kind: int) -> _Moved | None:
    """Return what a call of that kind moves; None: not known, or no matter of memory."""
    cost = work.costs[kind]
    name, dims, types, values = work.calls.signatures[kind]
    if not isinstance(cost, Cost) or cost.matrix or cost.family not in _FUSIBLE:
        return None
    if name.startswith(_OF_COMMUNICATION):
        return None
    call = read_call(name, dims, types, values, work.calls.unknown) if dims else None
    if call is None:
        return None
    is_of_lists = "_foreach_" in name
    sizes: list[int] = []
    for argument in call.arguments:
        if isinstance(argument, Tensor):
            sizes.append(argument.bytes)
        elif argument:
            each = [tensor.bytes for tensor in argument]
            sizes += [sum(each)] if is_of_lists else each
    written = cost.bytes - sum(sizes)
    if written <= 0 and sizes:  # it writes its first argument, and does not read it
        written = sizes[0]
        sizes = sizes[1:]
    if written <= 0:
        return None
    slack = next((slack for word, slack in _SLACK.items() if word in name), 1.0)
    return _Moved(tuple(sizes), written, name.endswith("_"), slack)


def _is_read_of(size: int, by: _Moved) -> bool:
    return _SCALAR < size <= by.written <= by.slack * size


def _is_fed_by(first: _Moved | None, second: _Moved | None) -> bool:
    return (
        first is not None
        and second is not None
        and any(_is_read_of(size, first) for size in second.read)
    )


def _is_copy_of(work: OperatorWork, *kinds: int) -> bool:
    """Return whether calls are copies of one kind."""
    names = {work.calls.signatures[k][0] for k in kinds}
    costs = [work.costs[k] for k in kinds]
    return len(names) == 1 and all(isinstance(c, Cost) and c.family == "copy" for c in costs)


def _compute_saving(calls: Sequence[_Moved | None]) -> Saving:
    """Return what a chain moves, and what it need not: each tensor that a call wrote and a later
    one reads, once; in place it is written for others too, unless it is overwritten in place."""
    moved = read_less = written_less = 0
    waiting: list[_Moved] = []  # whose result is not yet read, the newest last
    for each in calls:
        assert each is not None
        moved += sum(each.read) + each.written
        for position, size in enumerate(each.read):
            held = next((w for w in reversed(waiting) if _is_read_of(size, w)), None)
            if held is None:
                continue
            waiting.remove(held)
            read_less += size
            is_overwritten = each.in_place and position == 0
            written_less += size if is_overwritten or not held.in_place else 0
        waiting.append(each)
    return Saving(moved, read_less, written_less)
