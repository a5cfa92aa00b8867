"""The rows of a job in the order of its steps, and the blocks that steps of equal kind become."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, decode_texts, read_numbers, read_times, with_column
from htk.base.columns.groups import number_values
from htk.base.columns.order import order_by
from htk.base.columns.segments import repeat_rows
from htk.base.columns.types import Ints, Mask
from htk.base.errors import AnalysisError, MissingTable
from htk.base.mappings import Fields
from htk.base.schema.operation_types import CALLS, CODES, OPERATION_TYPES, operation_type
from htk.quantities.straggler.job import Block
from htk.quantities.straggler.program import FORWARD, Program, program_of

_SAME_NS = 1_000  # between the times of one operation in two formats
_TWICE = 0.1  # of a step's forwards


@dataclass
class OperationRows:
    """The table's columns, and the rows of known operations by step; workers numbered from 0."""

    order: Ints
    bounds: Ints  # of each step in the order
    step: Ints
    replica: NDArray[Any]
    stage: NDArray[Any]
    type: NDArray[Any]
    call: Ints  # equal for the messages of one call of several; -1: a row of its own
    chunk: Ints
    micro_batch: Ints
    start: Ints
    end: Ints
    replicas: Ints
    stages: Ints
    ranks: Ints
    facts: Fields

    @classmethod
    def from_table(cls, table: pa.Table) -> "OperationRows":
        facts: Fields = {"operations": table.num_rows}
        table, call = _one_row_a_message(table)
        type_, chosen = _code_types(table, facts)
        columns = {
            name: read_numbers(table[name], -1)
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
            by_step = order_by(step)
            order = order[by_step]
            step = step[by_step]
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(step)) + 1, [len(step)]])
        replicas, replica = _number_densely(columns["dp_rank"], order)
        stages, stage = _number_densely(columns["stage"], order)
        ranks = np.full((len(replicas), len(stages)), -1, np.int64)
        ranks[replica[order], stage[order]] = columns["rank"][order]
        return cls(
            order,
            bounds,
            columns["step"],
            replica,
            stage,
            type_,
            call,
            columns["chunk"],
            columns["micro_batch"],
            *read_times(table),
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

    def bounds_within(self, low: int, high: int) -> Ints:
        """Return where steps from one number up to another begin in the order, and one end."""
        steps = self.step[self.order[self.bounds[:-1]]] if len(self.order) else self.order
        first, last = np.searchsorted(steps, (low, high)).tolist()
        return self.bounds[first : last + 1]

    def number_as(self, replicas: Ints, stages: Ints, ranks: Ints) -> None:
        """Number the workers as the job does of which these are some steps."""
        if len(self.order):
            self.replica = np.searchsorted(replicas, self.replicas)[self.replica]
            self.stage = np.searchsorted(stages, self.stages)[self.stage]
        self.replicas = replicas
        self.stages = stages
        self.ranks = ranks


def _one_row_a_message(table: pa.Table) -> tuple[pa.Table, Ints]:
    """Return the rows with one for each message of a call that has several, and a number for each
    such call."""
    codes, dictionary = codes_of(table["type"])
    names = dictionary.to_pylist()
    messages = [CALLS.get(operation_type(name), (name,)) for name in names]
    if all(len(each) == 1 for each in messages):  # as in most jobs: no memory for each row
        return table, np.broadcast_to(np.int64(-1), len(codes))
    count = np.array([*map(len, messages), 1])[codes]
    row, nth = repeat_rows(count)
    first = np.cumsum([0, *map(len, messages)])
    flat = [name for listed in messages for name in listed]
    type_ = np.where(codes[row] < 0, -1, first[codes[row]] + nth)
    table = with_column(table.take(pa.array(row)), "type", decode_texts(type_, pa.array(flat)))
    return table, np.where(count[row] > 1, row, -1)


def _number_densely(values: Ints, rows: Ints) -> tuple[Ints, NDArray[Any]]:
    """Return the distinct values of some rows, and the place of each row's value among them."""
    distinct, inverse = number_values(values[rows])
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


def _code_types(table: pa.Table, facts: Fields) -> tuple[NDArray[Any], Mask]:
    codes, dictionary = codes_of(table["type"])
    names = [operation_type(name) for name in dictionary.to_pylist()]
    code_of = np.array([*(CODES.get(name, -1) for name in names), -1], np.int8)
    type_ = code_of[codes]
    other = np.bincount(codes[type_ < 0], minlength=len(names))
    if other.any():
        facts["unknown_types"] = {names[k]: int(other[k]) for k in np.flatnonzero(other).tolist()}
    return type_, type_ >= 0


def _one_rank_a_worker(columns: dict[str, Ints], facts: Fields) -> Mask:
    """Ranks that share each layer run in step: of those of a worker the lowest speaks for all."""
    if columns["rank"].min(initial=0) < 0:  # not recorded
        return np.ones(len(columns["rank"]), bool)
    ranks, inverse = number_values(columns["rank"])
    replica = np.empty(len(ranks), np.int64)
    stage = np.empty(len(ranks), np.int64)
    replica[inverse] = columns["dp_rank"]
    stage[inverse] = columns["stage"]
    order = order_by(replica, stage, ranks)
    again = (np.diff(replica[order]) == 0) & (np.diff(stage[order]) == 0)
    others = order[1:][again]
    if not len(others):
        return np.ones(len(inverse), bool)
    facts["tensor_parallel_ranks_left_out"] = len(others)
    lowest = np.ones(len(ranks), bool)
    lowest[others] = False
    return np.asarray(lowest[inverse])


def blocks_of(rows: OperationRows, steps: tuple[int, int] | None = None) -> Iterator[Block]:
    """Yield blocks of steps that run the same operations on every replica, and count the others.

    `steps` chooses those from the first number up to the second.
    """
    bounds = rows.bounds if steps is None else rows.bounds_within(*steps)
    _refuse_rows_read_twice(rows, rows.order[slice(*bounds[:2])])
    kept: dict[bytes, list[Ints]] = {}
    dropped = 0
    for low, high in pairwise(bounds.tolist()):  # steps
        order, key = _arrange_step(rows, rows.order[low:high])
        if order is None:
            dropped += high > low
        else:
            kept.setdefault(key, []).append(order)
    for members in kept.values():
        yield _build_block(rows, members)
    counted = {"steps": sum(map(len, kept.values())), "steps_left_out": dropped}
    rows.facts |= {name: rows.facts.get(name, 0) + count for name, count in counted.items()}


def _refuse_rows_read_twice(rows: OperationRows, step: Ints) -> None:
    """Refuse a step in which a worker runs the same forward twice at once: copies of one file."""
    forward = step[rows.type[step] == FORWARD]
    order = forward[order_by(rows.replica[forward], rows.stage[forward], rows.start[forward])]
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


def _arrange_step(rows: OperationRows, chosen: Ints) -> tuple[Ints | None, bytes]:
    """A step's rows by replica, stage, type and start; None unless all replicas have the same."""
    replicas = len(rows.replicas)
    stages = len(rows.stages)
    replica = rows.replica[chosen]
    stage = rows.stage[chosen]
    type_ = rows.type[chosen]
    count = np.zeros((replicas, stages, len(OPERATION_TYPES)), np.int64)
    np.add.at(count, (replica, stage, type_), 1)
    if not len(chosen) or (count != count[:1]).any() or not count[0, :, :2].all():
        return None, b""
    return chosen[order_by(replica, stage, type_, rows.start[chosen])], count[0].tobytes()


def _build_block(rows: OperationRows, members: list[Ints]) -> Block:
    shape = (len(members), len(rows.replicas), -1)
    order = np.concatenate(members).reshape(shape).transpose(2, 0, 1)
    start = rows.start[order]
    end = rows.end[order]
    began = start.min(axis=(0, 2))
    start -= began[:, None]
    end -= began[:, None]
    sample = order[:, 0, 0]
    stage = rows.stage[sample].astype(np.int64)
    type_ = rows.type[sample].astype(np.int64)
    call = rows.call[sample].astype(np.int64)
    chunk = rows.chunk[sample].astype(np.int64)
    batch = rows.micro_batch[sample].astype(np.int64)
    program = program_of(stage, type_, call, chunk, batch, start, end)
    _end_messages(program, call, start, end)
    return Block(rows.step[order[0, :, 0]], began, program, start, end)


def _end_messages(program: Program, call: Ints, start: Ints, end: Ints) -> None:
    """End the messages of calls that have several: what was recorded is the end of the last one.

    That is the message whose two calls have both begun last. Another takes, from its own beginning,
    as long as those which end its two calls.
    """
    several = (call >= 0) & (program.meeting >= 0)
    meetings = np.unique(program.meeting[several]).tolist()  # of one replica
    ends = {m: np.flatnonzero(program.meeting == m) for m in meetings}
    began = {m: start[rows].max(axis=0) for m, rows in ends.items()}
    last: dict[int, Ints] = {}  # of each call, by its first row: when its last message began
    calls = {row: _first_of_call(call, row) for rows in ends.values() for row in rows.tolist()}
    for meeting, rows in ends.items():
        for row in rows.tolist():
            now = last.setdefault(calls[row], began[meeting])
            last[calls[row]] = np.maximum(now, began[meeting])
    over = {first: end[first].copy() for first in last}
    for meeting, rows in ends.items():
        firsts = [calls[row] for row in rows.tolist()]
        took = np.stack([over[f] - last[f] for f in firsts])
        is_last = np.stack([last[f] == began[meeting] for f in firsts])
        ending = np.where(is_last, took, np.iinfo(np.int64).max).min(axis=0)
        taken = np.where(is_last.any(axis=0), ending, took.min(axis=0))
        limit = np.min([over[f] for f in firsts], axis=0)
        end[rows] = np.maximum(np.minimum(began[meeting] + taken, limit), start[rows])


def _first_of_call(call: Ints, row: int) -> int:
    """Return the first message of a row's call; a row of its own is one."""
    return row if call[row] < 0 else int(np.argmax(call == call[row]))
