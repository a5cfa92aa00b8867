"""A job with more rows than memory should hold: its steps are arranged and replayed some at a time.

Each step is replayed by itself. Of all steps together only the usual durations are made: of sums,
and of transfers of a median, for which their times go into a temporary file. The rows of each file
have to be in the order of their steps, as they are logged, and each worker has to log by one rank;
otherwise all rows are held.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import IO, Any, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.columns.types import Ints
from htk.errors import MissingTable
from htk.schema.operation_types import OPERATION_TYPES
from htk.straggler.job import (
    NO_WHOLE_STEP,
    Block,
    Job,
    OperationRows,
    blocks_of,
    check_workers,
    job_of,
)

HELD_ROWS = 16_000_000  # of a job that is held whole
_ROWS_AT_ONCE = 1_000_000  # of steps that are looked at together
_WINDOW = 1 << 20  # values looked at together
_BINS = 16  # bits


def job_of_any_size(
    operations: pa.Table, held_rows: int = HELD_ROWS, rows_at_once: int = _ROWS_AT_ONCE
) -> Job:
    """Arrange the rows of `job_operations`, held whole where they are not too many."""
    if operations.num_rows <= held_rows:
        return job_of(operations)
    batches = StepBatches.of(operations, rows_at_once)
    job = None if batches is None else _streamed(batches)
    return job_of(operations) if job is None else job


@dataclass(frozen=True)
class StepBatches:
    """Tables of a few whole steps each, cut from the files when they are asked for."""

    batches: list[pa.RecordBatch]
    schema: pa.Schema
    steps: list[Ints]  # of each batch, in order
    starts: list[Ints]  # their first rows, and the number of rows
    bounds: Ints  # first steps of the tables, and one more

    @classmethod
    def of(cls, table: pa.Table, rows_at_once: int) -> "StepBatches | None":
        """Return them; None where rows are not in the order of their steps."""
        batches = [batch for batch in table.to_batches() if batch.num_rows]
        starts = [_starts(batch["step"]) for batch in batches]
        ordered = [each for each in starts if each is not None]
        if len(ordered) < len(starts):
            return None
        steps = [
            batch["step"].take(pa.array(first)).to_numpy().astype(np.int64)
            for batch, first in zip(batches, ordered, strict=True)
        ]
        ends = [
            np.append(first, batch.num_rows) for batch, first in zip(batches, ordered, strict=True)
        ]
        return cls(batches, table.schema, steps, ends, _bounds(steps, ends, rows_at_once))

    def __iter__(self) -> Iterator[pa.Table]:
        for low, high in pairwise(self.bounds.tolist()):
            slices = []
            for batch, steps, starts in zip(self.batches, self.steps, self.starts, strict=True):
                first, last = starts[np.searchsorted(steps, (low, high))].tolist()
                slices.append(batch.slice(first, last - first))
            yield pa.Table.from_batches(slices, self.schema)


def _starts(column: pa.Array) -> Ints | None:
    """Return where each step begins; None where steps are missing or out of order."""
    if column.null_count:
        return None
    step, starts = column.to_numpy(), [np.zeros(1, np.int64)]
    for low in range(0, len(step), _WINDOW):
        change = np.diff(step[low : low + _WINDOW + 1])
        if (change < 0).any():
            return None
        starts.append(low + 1 + np.flatnonzero(change))
    return np.unique(np.concatenate(starts))


def _bounds(steps: list[Ints], starts: list[Ints], rows_at_once: int) -> Ints:
    """Return the steps with which tables of about so many rows begin, and one after the last."""
    numbers, inverse = np.unique(np.concatenate(steps), return_inverse=True)
    rows = np.bincount(inverse, np.concatenate([np.diff(each) for each in starts]))
    table = (np.cumsum(rows) - rows) // rows_at_once
    first = np.flatnonzero(np.diff(table, prepend=-1))
    return np.append(numbers[first], numbers[-1] + 1)


@dataclass(frozen=True)
class _Workers:
    """The workers of a job, each with its one rank."""

    replicas: Ints
    stages: Ints
    rank: Ints  # of each [replica, stage]


class StreamedBlocks(Sequence[Block]):
    """Blocks of steps, arranged anew each time that they are asked for."""

    def __init__(self, batches: StepBatches, workers: _Workers) -> None:
        self._batches, self._workers = batches, workers

    def __iter__(self) -> Iterator[Block]:
        for _, block in self.with_facts():
            if block is not None:
                yield block

    def with_facts(self) -> Iterator[tuple[dict[str, Any], Block | None]]:
        """Yield each block; after those of a table its facts, without one."""
        for table in self._batches:
            rows = OperationRows.of(table)
            rows.number_as(self._workers.replicas, self._workers.stages, self._workers.rank)
            for block in blocks_of(rows):
                yield {}, block
            yield rows.facts, None

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...
    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        return list(self)[index] if isinstance(index, slice) else next(islice(self, index, None))


def _streamed(batches: StepBatches) -> Job | None:
    """Look at every step once; None where ranks share a worker."""
    workers = _workers(batches)
    if workers is None:
        return None
    blocks = StreamedBlocks(batches, workers)
    facts: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    steps, recorded, replayed = [], [], []
    with _Usual() as usual:
        for counted, block in blocks.with_facts():
            unknown.update(counted.pop("unknown_types", {}))
            facts.update(counted)
            if block is not None:
                steps.append(block.steps)
                recorded.append(block.recorded)
                replayed.append(block.replayed)
                usual.add(block)
        if not steps:
            raise MissingTable(NO_WHOLE_STEP)
        durations = usual.durations()
    job = Job(
        workers.replicas,
        workers.stages,
        workers.rank,
        blocks,
        {**facts, **({"unknown_types": dict(unknown)} if unknown else {})},
    )
    # What every question asks first was made on the way.
    vars(job).update(
        steps=np.concatenate(steps),
        recorded=np.concatenate(recorded),
        replayed=np.concatenate(replayed),
        usual=durations,
    )
    return job


def _workers(batches: StepBatches) -> _Workers | None:
    """Return the workers that any step names; None where one of them has several ranks."""
    named: list[Ints] = []
    count = 0
    for table in batches:
        rows = OperationRows.of(table)
        if "tensor_parallel_ranks_left_out" in rows.facts:
            return None
        named.append(rows.workers)
        count += len(rows.order)
    distinct = np.unique(np.concatenate(named), axis=0)
    replicas, replica = np.unique(distinct[:, 0], return_inverse=True)
    stages, stage = np.unique(distinct[:, 1], return_inverse=True)
    check_workers(replicas, stages, count)
    if len(np.unique(distinct[:, :2], axis=0)) < len(distinct):
        return None
    ranks = np.full((len(replicas), len(stages)), -1, np.int64)
    ranks[replica, stage] = distinct[:, 2]
    return _Workers(replicas, stages, ranks)


class _Usual:
    """The usual duration of each type: a mean of computations, a median of transfers."""

    def __init__(self) -> None:
        self._sums = [0] * len(OPERATION_TYPES)
        self._counts = [0] * len(OPERATION_TYPES)
        self._transfers = {k: _Times() for k, t in enumerate(OPERATION_TYPES) if t.communicates}

    def __enter__(self) -> "_Usual":
        return self

    def __exit__(self, *_: object) -> None:
        for times in self._transfers.values():
            times.close()

    def add(self, block: Block) -> None:
        """Count the operations of a block."""
        for code in np.unique(block.program.type).tolist():
            own = block.own[block.program.type == code]
            self._sums[code] += int(own.sum())
            self._counts[code] += own.size
            if code in self._transfers:
                self._transfers[code].append(own.ravel())

    def durations(self) -> NDArray[np.float64]:
        """Return the usual duration of each type, in ns; 0 where there is none of it."""
        usual = np.zeros(len(OPERATION_TYPES))
        for code, count in enumerate(self._counts):
            if count:
                times = self._transfers.get(code)
                usual[code] = self._sums[code] / count if times is None else times.median()
        return usual


class _Times:
    """Whole numbers in a temporary file; memory does not grow with them."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="htk-")  # noqa: SIM115 (see close)
        self._count = 0
        self._low, self._high = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def close(self) -> None:
        self._file.close()

    def append(self, values: Ints) -> None:
        self._file.write(np.ascontiguousarray(values, np.int64).tobytes())
        self._count += len(values)
        self._low = min(self._low, int(values.min(initial=self._low)))
        self._high = max(self._high, int(values.max(initial=self._high)))

    def median(self) -> float:
        """Return the middle value, or the mean of the two middle ones."""
        middle = self._ordered((self._count - 1) // 2), self._ordered(self._count // 2)
        return (middle[0] + middle[1]) / 2

    def _ordered(self, k: int) -> int:
        """Return the k-th smallest value: each pass leaves a part of the range that holds it."""
        low, high = int(self._low), int(self._high)
        while low < high:
            shift = max((high - low).bit_length() - _BINS, 0)
            counts = np.zeros(((high - low) >> shift) + 1, np.int64)
            for values in self._windows():
                inside = values[(values >= low) & (values <= high)]
                counts += np.bincount((inside - low) >> shift, minlength=len(counts))
            upto = np.cumsum(counts)
            part = int(np.searchsorted(upto, k, side="right"))
            k -= int(upto[part - 1]) if part else 0
            low += part << shift
            high = min(high, low + (1 << shift) - 1)
        return low

    def _windows(self) -> Iterator[Ints]:
        self._file.seek(0)
        while content := self._file.read(8 * _WINDOW):
            yield np.frombuffer(content, np.int64)
