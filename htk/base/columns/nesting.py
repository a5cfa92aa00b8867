"""Which call encloses which: the parent and the depth of every span of a thread, and the span that
is open at a moment."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import codes_of, read_numbers, read_times
from htk.base.columns.groups import number_values
from htk.base.columns.order import are_ordered, order_by
from htk.base.columns.segments import SegmentTimes, mark_heads
from htk.base.columns.types import NONE, fill_none, take_or
from htk.base.core.engine import choose_engine, load_core
from htk.base.core.stated_counts import MOST_LEVELS

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Rows = Int64
FILE = "file_number"  # a column of tables that hold several files, one after the other
_CLIMB = 32  # levels; operators are seldom nested deeper


class Threads:
    """One number for each (process, thread), whichever table names it.

    In a table of several files (`derived.together`) the processes of each file are kept apart.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[str | None, str | None], int] = {}
        self._files: list[int] = []

    @property
    def file(self) -> Int64:
        """The file of each thread: its place among those of the tables, 0 where they are of one."""
        return np.array(self._files, np.int64)

    @property
    def names(self) -> list[tuple[str | None, str | None]]:
        """Process and name of each thread, by its number."""
        return [*self._numbers]

    def number_threads(self, table: pa.Table, rows: Rows | None = None) -> Int32:
        """Return the numbers of all rows of a table, or of some."""
        process, processes = codes_of(table["process"])
        thread, threads = codes_of(table["thread"])
        if rows is not None:
            process = process[rows]
            thread = thread[rows]
        process_names = [*processes.to_pylist(), None]
        thread_names = [*threads.to_pylist(), None]
        width = len(thread_names)
        pairs = (process.astype(np.int64) + 1) * width + (thread + 1)  # in the order of both codes
        distinct, pair_ids = number_values(pairs)
        numbers_of_pairs = [
            self._numbers.setdefault(
                (process_names[p // width - 1], thread_names[p % width - 1]), len(self._numbers)
            )
            for p in distinct.tolist()  # a handful of threads
        ]
        if len(self._numbers) > len(self._files):
            self._files += [0] * (len(self._numbers) - len(self._files))
            if FILE in table.column_names:
                file = files_of(table)
                of_pair = np.empty(len(distinct), np.int64)
                of_pair[pair_ids] = file if rows is None else file[rows]
                for number, own in zip(numbers_of_pairs, of_pair.tolist(), strict=True):
                    self._files[number] = own
        return np.array(numbers_of_pairs, np.int32)[pair_ids]


def files_of(table: pa.Table) -> Int64:
    """Return the file of each row, where a table holds those of several; else 0."""
    if FILE not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    return read_numbers(table[FILE])


@dataclass(frozen=True)
class Nested:
    """Spans of some threads, with the span round each."""

    thread: NDArray[np.integer]
    start: Rows
    end: Rows
    known_parent: Rows | None = None  # where it was found before
    ids: Rows | None = None  # that were given as spans began, where some were

    @cached_property
    def order(self) -> Rows:
        """Callers before what they call, thread after thread.

        Of spans that begin together on a thread the one with the lower id is first, where ids tell;
        else the longer, which holds the other.
        """
        return _sorted_rows(self.thread, self.start, self._began, -self.end)

    @cached_property
    def _began(self) -> Rows:
        """Numbers in whose order spans begin that begin at one time; 0 where nothing tells."""
        if self.ids is None:
            return np.zeros(len(self.start), np.int64)
        return _ids_in_time(self.ids, self.thread, self.start)

    @cached_property
    def _nest(self) -> tuple[Int32, Int32]:
        o = self.order
        return nest_spans(_number_threads(self.thread[o]), self.start[o], self.end[o])

    @cached_property
    def parent(self) -> Rows:
        """Row round each row, or NONE."""
        if self.known_parent is not None:
            return self.known_parent
        parents = take_or(self.order, self._nest[0])
        out = np.empty(len(self.order), np.int64)
        out[self.order] = parents
        return out

    @cached_property
    def depth(self) -> Int32:
        out = np.empty(len(self.order), np.int32)
        out[self.order] = self._nest[1]
        return out

    def around(self, thread: NDArray[np.integer], start: Rows) -> Rows:
        """Innermost row that is open on that thread at that time, or NONE."""
        if not len(self.order):
            return fill_none(len(start))
        innermost = SegmentTimes(self.thread, self.start, self.order).last(thread, start)
        closed = np.flatnonzero((innermost != NONE) & (self.end[innermost] <= start))
        for _ in range(_CLIMB):
            if not len(closed):
                return innermost
            innermost[closed] = self.parent[innermost[closed]]
            outer = innermost[closed]
            closed = closed[(outer != NONE) & (self.end[outer] <= start[closed])]
        innermost[closed] = self._nested_around(thread[closed], start[closed])
        return innermost

    def _nested_around(self, thread: NDArray[np.integer], start: Rows) -> Rows:
        """`around` for what many ended calls precede: as instants half a nanosecond later."""
        threads = np.append(self.thread, thread)
        halves = 2 * start + 1
        starts = np.append(2 * self.start, halves)
        ends = np.append(2 * self.end, halves)
        began = np.append(self._began, np.zeros(len(start), np.int64))
        o = order_by(threads, starts, began, -ends)
        parents = take_or(o, nest_spans(_number_threads(threads[o]), starts[o], ends[o])[0])
        innermost = np.empty(len(o), np.int64)
        innermost[o] = parents
        return innermost[len(self.thread) :]


def _sorted_rows(thread: NDArray[np.integer], *columns: Rows) -> Rows:
    """Return the rows by thread and columns; most files have those of a thread in order."""
    few = not len(thread) or (thread.min() >= 0 and thread.max() < 1 << 16)
    rows = np.argsort(thread.astype(np.uint16) if few else thread, kind="stable")  # by its digits
    if are_ordered([thread[rows], *(column[rows] for column in columns)]):
        return rows
    return order_by(thread, *columns)


def _ids_in_time(ids: Rows, thread: NDArray[np.integer], start: Rows) -> Rows:
    """Return the ids of the threads on which they never fall from one start to a later one, else 0.

    Profilers count operators as they begin, so that in whole microseconds the ids tell the order of
    those that begin together. Ids of another kind (reused, hashed, missing) tell nothing.
    """
    order = _sorted_rows(thread, start, ids)
    falls = ids[order][1:] < ids[order][:-1]
    falls &= ~mark_heads(thread[order])[1:]
    telling = np.ones(int(thread.max(initial=-1)) + 1, bool)
    telling[thread[order][1:][falls]] = False
    telling[thread[ids < 0]] = False
    return np.where(telling[thread], ids, 0)


def _number_threads(thread: NDArray[np.integer]) -> Int32:
    """Return threads, which are in order, numbered from 0."""
    return (np.cumsum(mark_heads(thread)) - 1).astype(np.int32)


def nest_rows(
    table: pa.Table,
    threads: Threads,
    rows: Rows | None = None,
    known_parent: Rows | None = None,
) -> Nested:
    """Return the spans of a table, or those of some of its rows."""
    counted = "python_id" if "python_id" in table.column_names else "external_id"
    start, end = read_times(table)
    ids = read_numbers(table[counted], NONE)
    if rows is not None:
        start = start[rows]
        end = end[rows]
        ids = ids[rows]
    return Nested(threads.number_threads(table, rows), start, end, known_parent, ids)


def nest_spans(threads: Int32, starts: Int64, ends: Int64) -> tuple[Int32, Int32]:
    """Return the row of each span's parent (-1: none), and its depth (0: no parent).

    The parent is the span of the same thread that began last before it and has not ended when it
    begins. Of two that begin together the earlier row is the parent. A
    child that, by rounding, ends after its parent is a child all the same. A span without length
    encloses nothing, and may begin where its parent ends: in whole microseconds `as_strided` takes
    no time at the end of the `transpose` that calls it. What is deeper than `MOST_LEVELS` begins
    anew: a file may hold millions of spans of one time.
    """
    threads = np.ascontiguousarray(threads, np.int32)
    starts = np.ascontiguousarray(starts, np.int64)
    ends = np.ascontiguousarray(ends, np.int64)
    compiled = load_core() if choose_engine() == "compiled" else None
    if compiled is None:
        return _without_chains(*nest_pure(threads, starts, ends))
    parents, depths = compiled.nest(threads, starts, ends)
    return _without_chains(np.frombuffer(parents, np.int32), np.frombuffer(depths, np.int32))


def _without_chains(parents: Int32, depths: Int32) -> tuple[Int32, Int32]:
    """Cut what is nested deeper than programs call: what is made of levels is made one by one."""
    if depths.max(initial=0) < MOST_LEVELS:
        return parents, depths
    return np.where(depths % MOST_LEVELS == 0, NONE, parents), depths % MOST_LEVELS


def nest_pure(threads: Int32, starts: Int64, ends: Int64) -> tuple[Int32, Int32]:
    """`nest_spans` without the compiled core."""
    order = np.lexsort((starts, threads))
    parents = np.full(len(threads), -1, np.int32)
    depths = np.zeros(len(threads), np.int32)
    parent_rows: list[int] = []
    deep: list[int] = []
    open_spans: list[tuple[int, int, int, int, bool]] = []  # thread, end, row, depth; any length
    # One span after the other: what is open depends on all that came before.
    spans = zip(
        order.tolist(),
        threads[order].tolist(),
        starts[order].tolist(),
        ends[order].tolist(),
        strict=True,
    )
    for row, thread, start, end in spans:
        instant = end <= start
        while open_spans and (open_spans[-1][0] != thread or open_spans[-1][1] <= start):
            if instant and open_spans[-1][:2] == (thread, start) and open_spans[-1][4]:
                break
            open_spans.pop()
        depth = open_spans[-1][3] + 1 if open_spans else 0
        parent_rows.append(open_spans[-1][2] if open_spans else -1)
        deep.append(depth)
        open_spans.append((thread, end, row, depth, end > start))
    parents[order] = parent_rows
    depths[order] = deep
    return parents, depths
