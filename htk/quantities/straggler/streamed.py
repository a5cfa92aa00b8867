"""The blocks of a job: in memory, or arranged some steps at a time, here or on workers elsewhere.

Each step is replayed by itself, so that only what is known of each step has to stay in memory. What
is looked at together, about a million rows of whole steps, does not depend on where that is done,
and so the answers do not. A job is not in memory where it would take more than it may, or where
the work is to be done elsewhere. For that rows of one step have to stand together in each file, as
they are logged, and each worker has to log by one rank; otherwise all rows are held.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_numbers
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.errors import MissingTable
from htk.base.mappings import Fields
from htk.base.spread.mapper import every_result
from htk.base.spread.workplace import Errand, current_errand
from htk.quantities.straggler.job import Block, Job, Value
from htk.quantities.straggler.rows import OperationRows, blocks_of, check_workers

NO_WHOLE_STEP = (
    "no step is whole: each worker (data-parallel rank and stage) has to log the same operations, "
    "with forward and backward among them; open the rows of all ranks together"
)
HELD_ROWS = 16_000_000  # of a job that is held, at most
_BYTES_PER_ROW = 150  # of a job that is held
_ROWS_AT_ONCE = 1_000_000  # of steps that are looked at together
_WINDOW = 1 << 20  # values looked at together
_LEAST_RUN = 4  # neighbouring rows of one step, on average: fewer are in no order


def job_of_any_size(operations: pa.Table) -> Job:
    """Arrange the rows of `job_operations`, where the question at hand is worked on and in the
    memory that it may take."""
    errand = current_errand()
    elsewhere = errand is not None and errand.work.is_elsewhere
    if not elsewhere and operations.num_rows <= _held_rows(errand):
        return job_of(operations)
    tables = StepTables.from_table(operations, errand if elsewhere else None)
    job = None if tables is None else _stream_job(tables)
    return job_of(operations) if job is None else job


def _held_rows(errand: Errand | None) -> int:
    """Return how many rows of a job may be held."""
    if errand is None or errand.work.memory_bytes is None:
        return HELD_ROWS
    return min(HELD_ROWS, errand.work.limit_bytes // _BYTES_PER_ROW)


def job_of(operations: pa.Table) -> Job:
    """Arrange the rows of `job_operations`; what does not fit is left out and counted."""
    rows = OperationRows.from_table(operations)
    check_workers(rows.replicas, rows.stages, len(rows.order))
    blocks: list[Block] = []
    for steps in pairwise(_rows_by_step(read_numbers(operations["step"], -1)).bounds.tolist()):
        blocks += blocks_of(rows, steps)
    if not blocks:
        raise MissingTable(NO_WHOLE_STEP)
    return Job(rows.replicas, rows.stages, rows.ranks, HeldBlocks(blocks, rows.facts))


@dataclass(frozen=True)
class HeldBlocks:
    """Blocks in memory."""

    blocks: list[Block]
    facts: Fields

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    def map(self, function: Callable[[Block], Value]) -> Iterator[Value]:
        """Yield what a function makes of each block."""
        return map(function, self.blocks)


@dataclass(frozen=True)
class _Runs:
    """Neighbouring rows of equal step, and the steps that are looked at together."""

    step: Ints
    first: Ints  # rows
    length: Ints

    @cached_property
    def bounds(self) -> Ints:
        """Return the steps with which tables of about so many rows begin, one after the last."""
        steps, inverse = np.unique(self.step, return_inverse=True)
        rows = np.zeros(len(steps), np.int64)
        np.add.at(rows, inverse, self.length)
        table = (np.cumsum(rows) - rows) // _ROWS_AT_ONCE
        first = np.flatnonzero(np.diff(table, prepend=-1))
        return np.append(steps[first], steps[-1] + 1) if len(steps) else steps

    @property
    def slices(self) -> Iterator["_Slices"]:
        """Yield the rows of each table; runs that follow each other are one slice."""
        table = np.searchsorted(self.bounds, self.step, side="right") - 1
        begins = np.flatnonzero(np.diff(table, prepend=-1))
        first = self.first[begins]
        length = np.diff(first, append=self.first[-1] + self.length[-1])
        for rows in _positions_of_each(table[begins]):
            yield _Slices(first[rows], length[rows])


def _rows_by_step(*columns: Ints) -> _Runs:
    """Return the runs of rows of equal step, of columns one after the other."""
    steps = []
    starts = []
    rows = 0
    for step in columns:
        for low in range(0, len(step), _WINDOW):
            change = np.flatnonzero(np.diff(step[low : low + _WINDOW + 1])) + 1
            first = np.append(0, change[change < _WINDOW]) + low
            steps.append(step[first].astype(np.int64))
            starts.append(first + rows)
        rows += len(step)
    if not starts:
        return _Runs(*(np.empty(0, np.int64) for _ in range(3)))
    begins = np.concatenate(starts)
    return _Runs(np.concatenate(steps), begins, np.diff(begins, append=rows))


def _positions_of_each(codes: Ints) -> Iterator[Ints]:
    """Yield where each code stands, from the least on."""
    order = order_by(codes)
    yield from np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)


@dataclass(frozen=True)
class _Slices:
    """Rows of a table, by their numbers: a few whole steps."""

    first: Ints
    length: Ints

    def build_slice(self, batches: "_Batches") -> pa.Table:
        """Return the rows, as they are in memory or on disk."""
        slices: list[pa.RecordBatch] = []
        for first, length in zip(self.first.tolist(), self.length.tolist(), strict=True):
            slices += batches.rows(first, length)
        return pa.Table.from_batches(slices, batches.schema)


class _Batches:
    """A table's rows by their numbers."""

    def __init__(self, table: pa.Table) -> None:
        self.schema = table.schema
        self.batches = [batch for batch in table.to_batches() if batch.num_rows]
        self.offsets = np.cumsum([0, *(batch.num_rows for batch in self.batches)])

    def rows(self, first: int, length: int) -> Iterator[pa.RecordBatch]:
        """Yield these rows, cut where batches end."""
        last = first + length
        k = int(np.searchsorted(self.offsets, first, side="right")) - 1
        while first < last:
            start = int(self.offsets[k])
            end = int(self.offsets[k + 1])
            yield self.batches[k].slice(first - start, min(last, end) - first)
            first = min(last, end)
            k = k + 1


@dataclass(frozen=True)
class _Task:
    """What a worker elsewhere does with some rows."""

    read: Callable[[str], pa.Table]
    function: Callable[[OperationRows], Any]

    def __call__(self, slices: _Slices) -> Any:
        table = self.read("job_operations")
        return self.function(OperationRows.from_table(slices.build_slice(_Batches(table))))


@dataclass(frozen=True)
class StepTables:
    """Tables of a few whole steps each, cut from the files when they are asked for."""

    batches: _Batches
    slices: list[_Slices]
    errand: Errand | None  # whose workers look at them; None: this process

    @classmethod
    def from_table(cls, table: pa.Table, errand: Errand | None) -> "StepTables | None":
        """Return them; None where rows of one step do not stand together."""
        if table["step"].null_count:
            return None
        batches = _Batches(table)
        runs = _rows_by_step(*(batch["step"].to_numpy() for batch in batches.batches))
        if len(runs.first) * _LEAST_RUN > table.num_rows:
            return None
        slices = list(runs.slices)
        return cls(batches, slices, errand)

    def map(self, function: Callable[[OperationRows], Value]) -> Iterator[Value]:
        """Yield what a function makes of the rows of each table, in order."""
        if self.errand is None:
            for slices in self.slices:
                yield function(OperationRows.from_table(slices.build_slice(self.batches)))
            return
        task = _Task(self.errand.read, function)
        missing = "some steps of the job were not looked at"
        yield from every_result(self.errand.work.mapper, task, self.slices, missing)


@dataclass(frozen=True)
class _Workers:
    """The workers of a job, each with its one rank."""

    replicas: Ints
    stages: Ints
    rank: Ints  # of each [replica, stage]


@dataclass(frozen=True)
class _OfBlocks:
    """Makes something of each block of some rows, and counts what was left out."""

    workers: _Workers
    function: Callable[[Block], Any]

    def __call__(self, rows: OperationRows) -> tuple[list[Any], Fields]:
        rows.number_as(self.workers.replicas, self.workers.stages, self.workers.rank)
        return [self.function(block) for block in blocks_of(rows)], rows.facts


@dataclass
class StreamedBlocks:
    """Blocks of steps, arranged anew each time that they are asked for."""

    tables: StepTables
    workers: _Workers
    facts: Fields = field(default_factory=dict)

    def __iter__(self) -> Iterator[Block]:
        return self.map(_pass_block)

    def map(self, function: Callable[[Block], Value]) -> Iterator[Value]:
        """Yield what a function makes of each block, in order."""
        facts: Counter[str] = Counter()
        unknown: Counter[str] = Counter()
        for values, counted in self.tables.map(_OfBlocks(self.workers, function)):
            unknown.update(counted.pop("unknown_types", {}))
            facts.update(counted)
            yield from values
        self.facts = {**facts, **({"unknown_types": dict(unknown)} if unknown else {})}


def _pass_block(block: Block) -> Block:
    return block


def _stream_job(tables: StepTables) -> Job | None:
    """Look at every step once; None where ranks share a worker."""
    workers = _collect_workers(tables)
    if workers is None:
        return None
    blocks = StreamedBlocks(tables, workers)
    job = Job(workers.replicas, workers.stages, workers.rank, blocks)
    if not job.overviews:
        raise MissingTable(NO_WHOLE_STEP)
    return job


def _workers_of(rows: OperationRows) -> tuple[Ints, int, bool]:
    """Return the workers that have rows, how many rows, and whether each has one rank."""
    return rows.workers, len(rows.order), "tensor_parallel_ranks_left_out" not in rows.facts


def _collect_workers(tables: StepTables) -> _Workers | None:
    """Return the workers that any step names; None where one of them has several ranks."""
    named, counts, alone = zip(*tables.map(_workers_of), strict=True)
    if not all(alone):
        return None
    distinct = np.unique(np.concatenate(named), axis=0)
    replicas, replica = np.unique(distinct[:, 0], return_inverse=True)
    stages, stage = np.unique(distinct[:, 1], return_inverse=True)
    check_workers(replicas, stages, sum(counts))
    if len(np.unique(distinct[:, :2], axis=0)) < len(distinct):
        return None
    ranks = np.full((len(replicas), len(stages)), -1, np.int64)
    ranks[replica, stage] = distinct[:, 2]
    return _Workers(replicas, stages, ranks)
