"""What each rank does in each step, apart from waiting: kernels, transfers, loading, allocation.

A kernel with communication beside it takes longer, however fast its GPU is. Its time is therefore
kept twice: as recorded, and as it would be alone (`alone = recorded / (1 + κ φ)`, see
`htk.whatif.contention`), so that a rank that waits longer for another is not taken for a slow one.
"""

import math
from dataclasses import dataclass
from functools import cached_property

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
from htk.base.columns.intervals import measure_covered, merge_spans, union_lengths
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Floats, Ints, Mask, take_or
from htk.base.mappings import NamedTables
from htk.base.names.kinds import kind_of
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.host_states import ALLOCATION, LOADING, call_state, span_state
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.host_steps import host_steps
from htk.traces.compare.items import Side, steps_of_events

Tables = NamedTables
TransferKind = tuple[str | None, int, int, tuple[int, ...]]  # type, bytes in and out, members
_WITH_SPANS = ("cpu_ops", "annotations", "python_calls")
_KIND_CODES = {"compute": 0, "comm": 1, "memory": 2}


@dataclass(frozen=True)
class RecordedWork:
    """The steps that every rank recorded whole, without the outlying ones.

    Arrays have an axis of ranks, then one of steps; those of kernels begin with one of names.
    """

    ranks: Ints
    steps: Ints  # cycle and number of each
    step_ns: Floats
    names: list[str]
    families: list[str]
    count: Floats  # calls of each kernel
    recorded_ns: Floats
    beside_ns: Floats  # of that, with communication beside it
    loading_ns: Floats
    allocation_ns: Floats
    transfers: dict[TransferKind, Floats]  # ns of a call in each step, by size and members

    def alone_ns(self, kappa: float) -> Floats:
        """Return what kernels would take with no communication beside them."""
        share = self.beside_ns / np.maximum(self.recorded_ns, 1)
        return np.asarray(self.recorded_ns / (1 + kappa * share))

    @cached_property
    def compute_ns(self) -> Floats:
        """The time of all kernels, by rank and step."""
        return np.asarray(self.recorded_ns.sum(axis=0))


def recorded_work(tables: Tables) -> RecordedWork | None:
    """Return the work of a recording; None: no step was recorded whole on every rank."""
    side = Side(tables)
    if not len(side.samples) or not tables["step_windows"].num_rows:
        return None
    cells = _Cells.from_side(side)
    if not len(cells.steps):
        return None
    names, kernels = _measure_kernels(tables, cells)
    return RecordedWork(
        cells.ranks,
        cells.steps,
        cells.added_up(cells.cell_of_sample, side.sample_ns),
        names,
        [kind_of(name, "kernel").family for name in names],
        *kernels,
        _measure_loading(tables, cells),
        _measure_allocation(tables, cells),
        _measure_transfers(tables, cells),
    )


@dataclass(frozen=True)
class _Cells:
    """One cell for each rank and usual step that every rank recorded whole."""

    side: Side
    ranks: Ints
    steps: Ints  # cycle and number of each
    cell_of_sample: Ints  # NONE: some rank lacks the step

    @classmethod
    def from_side(cls, side: Side) -> "_Cells":
        rank = side.samples[:, 0]
        ranks = np.unique(rank)
        steps = Groups.by_keys(side.samples[:, 1:])
        is_common = steps.distinct(rank) == len(ranks)
        column = np.where(is_common, np.cumsum(is_common) - 1, NONE)[steps.group_ids]
        cell = np.searchsorted(ranks, rank) * is_common.sum() + column
        return cls(side, ranks, steps.keys[is_common], np.where(column == NONE, NONE, cell))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.ranks), len(self.steps)

    def of_rows(self, table: pa.Table, step: Ints) -> Ints:
        """Return the cell of each row of a table, whose steps are given; NONE: none."""
        return take_or(self.cell_of_sample, self.side.sample(table, step))

    def added_up(self, cell: Ints, values: Ints | Floats) -> Floats:
        """Return the sum of each cell."""
        used = cell != NONE
        many = len(self.ranks) * len(self.steps)
        sums = np.bincount(cell[used], np.asarray(values, np.float64)[used], many)
        return np.asarray(sums.reshape(self.shape), np.float64)


def _measure_kernels(
    tables: Tables, cells: _Cells
) -> tuple[list[str], tuple[Floats, Floats, Floats]]:
    """Return the names of compute kernels and copies; calls, time, and that beside communication,
    by name, rank and step."""
    kernels = tables["kernels"]
    cell = cells.of_rows(kernels, read_numbers(tables["kernel_links"]["step"], NONE))
    kind, kinds = codes_of(kernels["kind"])
    to_kind = np.array([_KIND_CODES.get(k, 0) for k in kinds.to_pylist()] + [0], np.int64)[kind]
    code, names = codes_of(kernels["name"])
    rows = np.flatnonzero((cell != NONE) & (to_kind != _KIND_CODES["comm"]) & (code >= 0))
    beside = _measure_beside(kernels, to_kind)
    used, name = np.unique(code[rows], return_inverse=True)
    many = cells.shape[0] * cells.shape[1]
    cell_of = name.astype(np.int64) * many + cell[rows]
    length = read_lengths(kernels)

    def sum_cells(values: Ints | None) -> Floats:
        weights = None if values is None else values[rows].astype(np.float64)
        sums = np.bincount(cell_of, weights, len(used) * many)
        return np.asarray(sums.reshape(len(used), *cells.shape), np.float64)

    return names.take(pa.array(used)).to_pylist(), (
        sum_cells(None),
        sum_cells(length),
        sum_cells(beside),
    )


def _measure_beside(kernels: pa.Table, kind: Ints) -> Ints:
    """Return how long each compute kernel has communication on its device beside it."""
    start, end = read_times(kernels)
    columns = (read_numbers(kernels["rank"], NONE), read_numbers(kernels["device"], NONE))
    device = Groups.by_keys([column.astype(np.int64) for column in columns])
    order = order_by(device.group_ids)
    bounds = np.append(0, np.cumsum(device.count))
    beside = np.zeros(len(start), np.int64)
    for k in range(len(device)):  # a device of each rank
        rows = order[bounds[k] : bounds[k + 1]]
        comm = rows[kind[rows] == _KIND_CODES["comm"]]
        own = rows[kind[rows] == _KIND_CODES["compute"]]
        running = merge_spans(start[comm], end[comm])
        if len(comm):
            beside[own] = measure_covered(running, end[own]) - measure_covered(running, start[own])
    return beside


def _measure_allocation(tables: Tables, cells: _Cells) -> Floats:
    """Return the time of calls that take memory from the GPU, or give it back."""
    launches = tables["launches"]
    chosen = match_texts(launches["name"], lambda name: call_state(name) == ALLOCATION)
    rows = pa.array(chosen)
    calls = launches.filter(rows)
    links = tables["launch_links"].filter(rows)
    length = read_lengths(calls)
    return cells.added_up(cells.of_rows(calls, read_numbers(links["step"], NONE)), length)


def _measure_loading(tables: Tables, cells: _Cells) -> Floats:
    """Return the time in which the host loads data, no instant counted twice."""
    begun, _ = host_steps(tables["step_marks"])
    spans = pa.concat_tables([_loading_spans(tables[name]) for name in _WITH_SPANS])
    start, end = read_times(spans)
    cell = cells.of_rows(spans, _steps_at(begun, spans, start))
    used = cell != NONE
    total = union_lengths(cell[used], start[used], end[used], math.prod(cells.shape))
    return np.asarray(total.reshape(cells.shape), np.float64)


def _loading_spans(table: pa.Table) -> pa.Table:
    """Return the spans of a table in which data is loaded."""
    chosen = match_texts(table["name"], lambda name: span_state(name) == LOADING)
    if "on_gpu" in table.column_names:
        chosen &= ~read_booleans(table["on_gpu"])
    return table.select(["rank", "cycle", "start_ns", "end_ns"]).filter(pa.array(chosen))


def _steps_at(begun: Ints, spans: pa.Table, time: Ints) -> Ints:
    """Return the step of each span's host that began last at a time; NONE: none. `begun`: rank,
    cycle, step, start."""
    whose = read_numbers(spans["rank"], NONE), read_numbers(spans["cycle"], 0)
    keys = np.column_stack(whose).astype(np.int64)
    host = Groups.by_keys(np.concatenate([begun[:, :2], keys])).group_ids
    last = SegmentTimes(host[: len(begun)], begun[:, 3]).last(host[len(begun) :], time)
    return take_or(begun[:, 2], last)


def _measure_transfers(tables: Tables, cells: _Cells) -> dict[TransferKind, Floats]:
    """Return what a collective transfers for, in ns, in each step: by type, sizes and members."""
    calls = CollectiveCalls.of_one_source(
        tables["collectives"], tables["aligned_matches"], tables["ranks"]
    )
    cell = cells.of_rows(calls.table, steps_of_events(calls.table, tables))
    transfer = calls.waits.transfer
    used = np.flatnonzero(calls.rows.timed & (transfer > 0) & ~calls.lacking & (cell != NONE))
    kinds, named = transfer_kinds(calls.rows, used)
    shape = len(kinds), len(cells.steps)
    cell_of = kinds.group_ids * shape[1] + cell[used] % max(shape[1], 1)
    total = np.bincount(cell_of, transfer[used].astype(np.float64), math.prod(shape)).reshape(shape)
    count = np.bincount(cell_of, None, math.prod(shape)).reshape(shape)
    mean = total / np.maximum(count, 1)
    everywhere: Mask = np.all(count > 0, axis=1)
    return {kind: mean[k] for k, kind in enumerate(named) if everywhere[k]}


def transfer_kinds(rows: CollectiveRows, chosen: Ints) -> tuple[Groups, list[TransferKind]]:
    """Return some collectives by what they have in common with those of another recording, and
    what that is of each group."""
    members, listed = rows.group_ranks
    sizes = (read_numbers(rows.table[name], NONE) for name in ("in_bytes", "out_bytes"))
    kinds = Groups.by_keys([c[chosen].astype(np.int64) for c in (rows.type, *sizes, members)])
    types = [*rows.types, None]
    groups = [*listed, ()]
    return kinds, [(types[t], i, o, groups[m]) for t, i, o, m in kinds.keys.tolist()]
