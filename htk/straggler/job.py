"""A job's operations as arrays: [operation, step, replica] for each program that it runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.columns.arrow import codes_of, numbers
from htk.columns.groups import numbered
from htk.columns.types import Ints, Mask
from htk.errors import AnalysisError, MissingTable
from htk.schema.operation_types import CODES, LABELS, OPERATION_TYPES, operation_type
from htk.straggler.lanes import LaneReplay
from htk.straggler.program import FORWARD, Program, program_of

_MOST_ROWS = 4_000_000  # of a block: what is made of one at a time stays small
NO_WHOLE_STEP = (
    "no step is whole: each worker (data-parallel rank and stage) has to log the same operations, "
    "with forward and backward among them; open the rows of all ranks together"
)
_DAMAGED_NS = -10_000_000  # a transfer that ends so long before it can begin: clocks or damage
_SAME_NS = 1_000  # between the times of one operation in two formats
_TWICE = 0.1  # of a step's forwards


@dataclass(frozen=True)
class Block:
    """Steps of one program; times in ns from the step's first start: [operation, step, replica]."""

    steps: Ints
    began: Ints  # of each step, ns
    program: Program
    start: Ints
    end: Ints

    @cached_property
    def replay(self) -> LaneReplay:
        return LaneReplay(self.program)

    @cached_property
    def recorded(self) -> Ints:
        """How long each step took, in ns."""
        return np.asarray(self.end.max(axis=(0, 2)))

    @cached_property
    def own(self) -> Ints:
        """What is each operation's own: its duration; where it meets others, its transfer."""
        duration = self.end - self.start
        meeting = self.program.meeting
        met = np.flatnonzero(meeting >= 0)
        order = met[np.argsort(meeting[met], kind="stable")]
        first = np.flatnonzero(np.diff(meeting[order], prepend=-1))
        last = np.maximum.reduceat(self.start[order], first) if len(order) else self.start[:0]
        over = self.program.over_replicas
        last[over] = last[over].max(axis=2, keepdims=True)
        transfer = self.end[met] - last[meeting[met]]
        duration[met] = np.where(transfer <= _DAMAGED_NS, 0, transfer)
        return duration

    @property
    def delay(self) -> Ints:
        """How long each operation starts after all that it waits for, in ns: the host was late."""
        ready = np.zeros_like(self.start)
        for tail, head, part in zip(
            self.program.tail, self.program.head, self.program.part, strict=True
        ):
            spared = (1 - part) * (self.end[tail] - self.start[tail])
            over = self.end[tail] - np.rint(spared).astype(np.int64)
            np.maximum(ready[head], over, out=ready[head])
        return np.asarray(np.maximum(self.start - ready, 0))

    @cached_property
    def replayed(self) -> Ints:
        """How long each step takes without launch delays, in ns."""
        return self.replay.step_times(self.own)


@dataclass(frozen=True)
class Job:
    """What the rows of a job say."""

    replicas: Ints  # data-parallel ranks
    stages: Ints
    rank: Ints  # of each [replica, stage]
    blocks: Sequence[Block]
    facts: dict[str, Any] = field(default_factory=dict)  # on what was left out

    @cached_property
    def steps(self) -> Ints:
        return np.concatenate([block.steps for block in self.blocks])

    @cached_property
    def usual(self) -> NDArray[np.float64]:
        """The usual duration of each type over the job, in ns: a mean; of transfers the median."""
        durations = np.zeros(len(OPERATION_TYPES))
        for code, type_ in enumerate(OPERATION_TYPES):
            parts = [b.own[b.program.type == code].ravel() for b in self.blocks]
            values = np.concatenate(parts)
            if len(values):
                durations[code] = np.median(values) if type_.communicates else values.mean()
        return durations

    def ideal(self, block: Block) -> Ints:
        """Return the usual duration of each operation of a block: [operation, 1, 1]."""
        return np.rint(self.usual[block.program.type]).astype(np.int64)[:, None, None]

    def by_step(self, of: Any) -> Ints:
        """Return a value of each step, block by block."""
        return np.concatenate([np.asarray(of(block), np.int64) for block in self.blocks])

    @cached_property
    def recorded(self) -> Ints:
        return self.by_step(lambda block: block.recorded)

    @cached_property
    def replayed(self) -> Ints:
        return self.by_step(lambda block: block.replayed)

    @cached_property
    def ideal_steps(self) -> Ints:
        """How long each step takes with no operation slower than its peers, in ns."""

        def of(block: Block) -> Ints:
            durations = self.ideal(block)
            return np.full(len(block.steps), block.replay.step_times(durations)[0])

        return self.by_step(of)


def label_codes(program: Program) -> Ints:
    """Return the label under which each operation of a program is listed, as a place in LABELS."""
    label_of = np.array([LABELS.index(type_.label) for type_ in OPERATION_TYPES])
    return np.asarray(label_of[program.type])


def job_of(operations: pa.Table) -> Job:
    """Arrange the rows of `job_operations`; what does not fit is left out and counted."""
    rows = OperationRows.of(operations)
    check_workers(rows.replicas, rows.stages, len(rows.order))
    blocks = tuple(blocks_of(rows))
    if not blocks:
        raise MissingTable(NO_WHOLE_STEP)
    return Job(rows.replicas, rows.stages, rows.ranks, blocks, rows.facts)


@dataclass
class OperationRows:
    """The table's columns, and the rows of known operations by step; workers numbered from 0."""

    order: Ints
    bounds: Ints  # of each step in the order
    step: Ints
    replica: NDArray[Any]
    stage: NDArray[Any]
    type: NDArray[Any]
    chunk: Ints
    micro_batch: Ints
    start: Ints
    end: Ints
    replicas: Ints
    stages: Ints
    ranks: Ints
    facts: dict[str, Any]

    @classmethod
    def of(cls, table: pa.Table) -> "OperationRows":
        facts: dict[str, Any] = {"operations": table.num_rows}
        type_, chosen = _types(table, facts)
        columns = {
            name: numbers(table[name], -1)
            for name in ("rank", "dp_rank", "stage", "chunk", "micro_batch", "step")
        }
        for name in ("step", "stage", "dp_rank"):
            if columns[name].min(initial=0) < 0:
                chosen &= columns[name] >= 0
        chosen &= _one_rank_a_worker(columns, facts)
        facts["operations_left_out"] = int(len(chosen) - chosen.sum())
        order = np.flatnonzero(chosen)
        step = columns["step"][order]
        if (np.diff(step) < 0).any():
            by_step = np.argsort(_narrow(step), kind="stable")
            order, step = order[by_step], step[by_step]
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(step)) + 1, [len(step)]])
        replicas, replica = _dense(columns["dp_rank"], order)
        stages, stage = _dense(columns["stage"], order)
        ranks = np.full((len(replicas), len(stages)), -1, np.int64)
        ranks[replica[order], stage[order]] = columns["rank"][order]
        return cls(
            order,
            bounds,
            columns["step"],
            replica,
            stage,
            type_,
            columns["chunk"],
            columns["micro_batch"],
            numbers(table["start_ns"]),
            numbers(table["end_ns"]),
            replicas,
            stages,
            ranks,
            facts,
        )

    @property
    def workers(self) -> Ints:
        """Return replica, stage and rank of each worker that has rows."""
        present = np.zeros(self.ranks.shape, bool)
        present[self.replica[self.order], self.stage[self.order]] = True
        replica, stage = np.nonzero(present)
        columns = self.replicas[replica], self.stages[stage], self.ranks[replica, stage]
        return np.column_stack(columns)

    def number_as(self, replicas: Ints, stages: Ints, ranks: Ints) -> None:
        """Number the workers as the job does of which these are some steps."""
        if len(self.order):
            self.replica = np.searchsorted(replicas, self.replicas)[self.replica]
            self.stage = np.searchsorted(stages, self.stages)[self.stage]
        self.replicas, self.stages, self.ranks = replicas, stages, ranks


def _dense(values: Ints, rows: Ints) -> tuple[Ints, NDArray[Any]]:
    """Return the distinct values of some rows, and the place of each row's value among them."""
    distinct, inverse = numbered(values[rows])
    codes = np.zeros(len(values), np.int32)
    codes[rows] = inverse
    return distinct, codes


def check_workers(replicas: Ints, stages: Ints, rows: int) -> None:
    """Neighbours of a pipeline have to be there; each worker needs rows."""
    missing = np.setdiff1d(np.arange(len(stages)), stages)
    if len(missing):
        raise MissingTable(
            f"rows of pipeline stage {missing[0]} are missing (there are {stages[:8].tolist()}); "
            "open the rows of all ranks together"
        )
    if len(replicas) * len(stages) > rows:
        raise MissingTable(
            f"{len(replicas)} data-parallel ranks by {len(stages)} stages, and only {rows} rows; "
            "open the rows of all ranks together"
        )


def _narrow(values: Ints) -> NDArray[Any]:
    """Return the values of a small range as 16 bits, which NumPy sorts by their digits."""
    low = values.min(initial=0)
    return (values - low).astype(np.uint16) if values.max(initial=0) - low < 1 << 16 else values


def _types(table: pa.Table, facts: dict[str, Any]) -> tuple[NDArray[Any], Mask]:
    codes, dictionary = codes_of(table["type"])
    names = [operation_type(name) for name in dictionary.to_pylist()]
    code_of = np.array([*(CODES.get(name, -1) for name in names), -1], np.int8)
    type_ = code_of[codes]
    other = np.bincount(codes[type_ < 0], minlength=len(names))
    if other.any():
        facts["unknown_types"] = {names[k]: int(other[k]) for k in np.flatnonzero(other).tolist()}
    return type_, type_ >= 0


def _one_rank_a_worker(columns: dict[str, Ints], facts: dict[str, Any]) -> Mask:
    """Ranks that share each layer run in step: of those of a worker the lowest speaks for all."""
    if columns["rank"].min(initial=0) < 0:  # not recorded
        return np.ones(len(columns["rank"]), bool)
    ranks, inverse = numbered(columns["rank"])
    replica, stage = np.empty(len(ranks), np.int64), np.empty(len(ranks), np.int64)
    replica[inverse], stage[inverse] = columns["dp_rank"], columns["stage"]
    order = np.lexsort((ranks, stage, replica))
    again = (np.diff(replica[order]) == 0) & (np.diff(stage[order]) == 0)
    others = order[1:][again]
    if not len(others):
        return np.ones(len(inverse), bool)
    facts["tensor_parallel_ranks_left_out"] = len(others)
    lowest = np.ones(len(ranks), bool)
    lowest[others] = False
    return np.asarray(lowest[inverse])


def blocks_of(rows: OperationRows) -> Iterator[Block]:
    """Blocks of steps that run the same operations on every replica."""
    _refuse_rows_read_twice(rows, rows.order[slice(*rows.bounds[:2])])
    kept: dict[bytes, list[Ints]] = {}
    kept_steps = dropped = 0
    for low, high in pairwise(rows.bounds.tolist()):  # steps
        order, key = _arranged(rows, rows.order[low:high])
        if order is None:
            dropped += high > low
            continue
        kept_steps += 1
        members = kept.setdefault(key, [])
        members.append(order)
        if sum(map(len, members)) >= _MOST_ROWS:
            yield _block(rows, kept.pop(key))
    for members in kept.values():
        yield _block(rows, members)
    rows.facts |= {"steps": kept_steps, "steps_left_out": dropped}


def _refuse_rows_read_twice(rows: OperationRows, step: Ints) -> None:
    """Refuse a step in which a worker runs the same forward twice at once: copies of one file."""
    forward = step[rows.type[step] == FORWARD]
    order = forward[np.lexsort((rows.start[forward], rows.stage[forward], rows.replica[forward]))]
    columns = (rows.replica, rows.stage), (rows.start, rows.end)
    alike, close = (
        np.stack([np.abs(np.diff(c[order].astype(np.int64))) for c in cs]) for cs in columns
    )
    twice = int(((alike == 0).all(axis=0) & (close <= _SAME_NS).all(axis=0)).sum())
    if twice > _TWICE * len(order):
        raise AnalysisError(
            f"the same operations were read twice ({twice} of the {len(order)} forwards of step "
            f"{rows.step[order[0]]} are there again on the same worker): these files are copies of "
            "one job, or its rows and its timeline; name one of them"
        )


def _arranged(rows: OperationRows, chosen: Ints) -> tuple[Ints | None, bytes]:
    """A step's rows by replica, stage, type and start; None unless all replicas have the same."""
    replicas, stages = len(rows.replicas), len(rows.stages)
    replica, stage, type_ = rows.replica[chosen], rows.stage[chosen], rows.type[chosen]
    count = np.zeros((replicas, stages, len(OPERATION_TYPES)), np.int64)
    np.add.at(count, (replica, stage, type_), 1)
    if not len(chosen) or (count != count[:1]).any() or not count[0, :, :2].all():
        return None, b""
    keys = (rows.start[chosen], type_, _narrow(stage), _narrow(replica))
    return chosen[np.lexsort(keys)], count[0].tobytes()


def _block(rows: OperationRows, members: list[Ints]) -> Block:
    shape = (len(members), len(rows.replicas), -1)
    order = np.concatenate(members).reshape(shape).transpose(2, 0, 1)
    start, end = rows.start[order], rows.end[order]
    began = start.min(axis=(0, 2))
    start -= began[:, None]
    end -= began[:, None]
    sample = order[:, 0, 0]
    stage, type_, chunk, batch = (
        column[sample].astype(np.int64)
        for column in (rows.stage, rows.type, rows.chunk, rows.micro_batch)
    )
    program = program_of(stage, type_, chunk, batch, start, end)
    return Block(rows.step[order[0, :, 0]], began, program, start, end)
