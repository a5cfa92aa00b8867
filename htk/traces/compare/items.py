"""What the steps of a recording consist of: the time of each part, phase, kernel, operator, module.

A sample is one complete step of one rank; each time belongs to a sample, or to none (-1).
"""

from collections.abc import Callable
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import mark_valid, read_booleans, read_keys, read_lengths, read_numbers
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.types import NONE, Ints, Mask, fill_none
from htk.base.errors import MissingTable, UsageError
from htk.base.mappings import NamedTables
from htk.base.names.rows_by import WORDS
from htk.base.names.rows_by import By as RowsBy
from htk.quantities.derived.window_times import kind_times
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.gpu_callers import TextCodes
from htk.quantities.measures.host_steps import host_steps
from htk.quantities.measures.kernels_by import NAMING, tell_apart
from htk.traces.compare.outlying import usual_steps

Tables = NamedTables
By = Literal["time", "comm", RowsBy]
EACH: tuple[By, ...] = ("time", "phase", "kernel", "op", "module", "comm")  # unless one is chosen
KINDS: tuple[By, ...] = ("time", "comm", *WORDS)
_USUAL = "all"
TRANSFER, UNDETERMINED = "transfer", "undetermined"  # wait or transfer: ranks were not recorded


class Items(NamedTuple):
    """Times of named things; sample: the (rank, step) of each, or -1."""

    names: list[str]
    code: Ints
    sample: Ints
    time: Ints


class Side:
    """One recording and its steps; or without them, as it is compared with one that has none."""

    def __init__(self, tables: Tables, *, with_steps: bool = True) -> None:
        self.tables = tables
        self.with_steps = with_steps

    @cached_property
    def ranks(self) -> Ints:
        """Ranks that were recorded; without any that is named, one."""
        ranks = np.unique(read_numbers(self.tables["ranks"]["rank"], NONE))
        return ranks if len(ranks) else np.array([0])

    @cached_property
    def samples(self) -> Ints:
        """Rank, cycle and step of each sample, without outlying steps: a row for each."""
        return self._steps[0]

    @cached_property
    def outlying(self) -> list[tuple[int, float, float]]:
        """Steps that are left out since they take far longer or shorter: the number of each, its
        time and the median of all, in ns."""
        return self._steps[1]

    @cached_property
    def sample_ns(self) -> Ints:
        """How long each sample took."""
        return _step_lengths(self.tables, self.samples)

    @cached_property
    def _steps(self) -> tuple[Ints, list[tuple[int, float, float]]]:
        if not self.with_steps:
            return np.empty((0, 3), np.int64), []
        every = _complete_steps(self.tables)
        steps = Groups.by_keys(every[:, 1:])
        if not len(steps):
            return every, []
        length = np.bincount(steps.group_ids, _step_lengths(self.tables, every)) / steps.count
        usual = usual_steps(length)
        middle = float(np.median(length))
        outlying = [
            (int(steps.keys[k, 1]), float(length[k]), middle) for k in np.flatnonzero(~usual)
        ]
        return every[usual[steps.group_ids]], outlying

    @cached_property
    def recorded_ns(self) -> int:
        """Return how long ranks were recorded in all, in ns: by GPU work, else by operators."""
        gpu = self.tables["rank_windows"]
        spans = gpu if gpu.num_rows else self.tables["cpu_ops"]
        rank = Groups.by_keys(_read_rank_and_cycle(spans))
        ends = rank.max(read_numbers(spans["end_ns"]))
        starts = rank.min(read_numbers(spans["start_ns"]))
        return int((ends - starts).sum())

    def sample(self, table: pa.Table, step: Ints) -> Ints:
        """Sample of each row of a table, whose steps are given; -1 where it is in none."""
        keys = np.column_stack([*_read_rank_and_cycle(table), step.astype(np.int64)])
        return np.where(step >= 0, row_of(self.samples, keys), NONE)


def kinds_called(by: str) -> tuple[By, ...]:
    """Return the kind of a name, or the usual ones of `all`."""
    kinds = EACH if by == _USUAL else tuple(kind for kind in KINDS if kind == by)
    if not kinds:
        raise UsageError(f"by={by!r}: it is one of {', '.join((_USUAL, *KINDS))}")
    return kinds


def _list_times(side: Side) -> Items:
    """Return where the time of each GPU step goes; without steps, of each window."""
    by_step = len(side.samples) > 0
    if by_step and not side.tables["step_windows"].num_rows:
        return _host_steps(side)
    windows = side.tables["step_windows" if by_step else "rank_windows"]
    times = kind_times(side.tables["activities"], windows)
    parts = {
        "compute": times.any("compute"),
        "exposed communication": times.exposed("comm", "compute"),
        "exposed copies": times.exposed("memory", "compute", "comm"),
        "idle": times.idle,
    }
    whole_graphs = times.exactly("other")
    if whole_graphs.any():
        parts["whole CUDA graphs"] = whole_graphs
    if by_step:  # of a second recorded it is a second
        parts = {"total": times.total, **parts}
    sample = side.sample(windows, read_numbers(windows["step"], NONE))
    count = windows.num_rows
    return Items(
        list(parts),
        np.repeat(np.arange(len(parts)), count),
        np.tile(sample, len(parts)),
        np.concatenate(list(parts.values())),
    )


def _host_steps(side: Side) -> Items:
    """Without GPU work a step takes what it takes on the host."""
    notes = side.tables["annotations"]
    notes = notes.filter(pa.array(mark_valid(notes["step"]) & ~read_booleans(notes["on_gpu"])))
    sample = side.sample(notes, read_numbers(notes["step"], NONE))
    return Items(["total"], np.zeros(len(sample), np.int64), sample, _measure_lengths(notes))


def _list_activities(by: RowsBy, side: Side) -> Items:
    """Return the time of GPU activities by what their rows stand for; without what nothing tells,
    and nothing where it was not recorded, unless it alone was asked for."""
    kernels = side.tables["kernels"]
    links = side.tables["kernel_links"]
    tables = {name: partial(side.tables.__getitem__, name) for name in NAMING}
    try:
        rows_by, is_told = tell_apart(by, tables)
    except MissingTable:
        if by not in EACH:
            raise
        nothing = fill_none(kernels.num_rows)
        rows_by = TextCodes(nothing, [])
        is_told = nothing != NONE
    sample = side.sample(kernels, read_numbers(links["step"], NONE))
    code = np.where(is_told, rows_by.codes, NONE)
    names = rows_by.texts[: int(code.max(initial=NONE)) + 1]
    return Items(names, code, sample, _measure_lengths(kernels))


def _list_operators(side: Side) -> Items:
    ops = side.tables["cpu_ops"]
    links = side.tables["op_links"]
    chosen = read_booleans(links["selected"])
    named = TextCodes.from_column(ops["name"])
    sample = side.sample(ops, read_numbers(links["step"], NONE))
    return Items(named.texts, named.codes[chosen], sample[chosen], _measure_lengths(ops)[chosen])


def _list_collectives(side: Side) -> Items:
    """Return what collectives wait and transfer, by their type; waiting is for late ranks."""
    tables = side.tables
    calls = CollectiveCalls.of_one_source(
        tables["collectives"], tables["aligned_matches"], tables["ranks"]
    )
    timed = np.flatnonzero(calls.rows.timed)
    type_code = calls.rows.type[timed]
    table = calls.table.take(pa.array(timed))
    sample = side.sample(table, steps_of_events(table, tables))
    parts = {
        TRANSFER: calls.waits.transfer,
        "wait": calls.waits.wait,
        UNDETERMINED: calls.waits.undetermined,
    }
    types = [*calls.rows.types, None]
    names = [f"{kind or 'collective'} {part}" for part in parts for kind in types]
    code = [k * len(types) + type_code % len(types) for k in range(len(parts))]
    codes = np.concatenate(code)
    time = np.concatenate([part[timed] for part in parts.values()])
    some = time > 0
    return Items(names, codes[some], np.tile(sample, len(parts))[some], time[some])


def steps_of_events(table: pa.Table, tables: Tables) -> Ints:
    """Step of the GPU activity, or of the operator, that each row speaks of."""
    events = event_keys(table)
    step = fill_none(len(events))
    for spans, links in (("cpu_ops", "op_links"), ("kernels", "kernel_links")):
        row = row_of(event_keys(tables[spans]), events)
        steps = np.append(read_numbers(tables[links]["step"], NONE), NONE).astype(np.int64)
        step = np.where(row != NONE, steps[row], step)
    return step


READERS: dict[str, Callable[[Side], Items]] = {
    **{by: partial(_list_activities, by) for by in WORDS},
    "time": _list_times,
    "op": _list_operators,
    "comm": _list_collectives,
}


def _measure_lengths(spans: pa.Table) -> Ints:
    return np.asarray(read_lengths(spans))


def _complete_steps(tables: Tables) -> Ints:
    """Rank, cycle and step of each complete step, in order: of the GPU, else of the host.

    Of steps that some rank holds a part of the other ranks tell something else, so they are left
    out, as long as others remain.
    """
    windows = tables["step_windows"]
    if windows.num_rows:
        is_step = mark_valid(windows["step"])
        is_whole = read_booleans(windows["complete"])
        uncut = _find_distinct(windows, is_step & is_whole)
        cut = Groups.by_keys(_find_distinct(windows, is_step & ~is_whole)[:, 1:])
        common = uncut[row_of(cut.keys, uncut[:, 1:]) == NONE]
        return common if len(common) else uncut
    keys, complete = host_steps(tables["step_marks"])
    steps = keys[complete, :3]
    if not tables["cpu_ops"].num_rows:
        return steps
    # ranges are not narrowed, operators are
    ops = tables["cpu_ops"]
    links = tables["op_links"]
    chosen = read_booleans(links["selected"])
    keys = np.column_stack([*_read_rank_and_cycle(ops), read_keys(links["step"])])
    return np.asarray(steps[row_of(keys[chosen], steps) != NONE])


def _step_lengths(tables: Tables, steps: Ints) -> Ints:
    """Return how long each of some steps of a rank took: on the GPU, else on the host."""
    windows = tables["step_windows"]
    if not windows.num_rows:
        keys, _ = host_steps(tables["step_marks"])
        row = row_of(keys[:, :3], steps)
        return np.asarray(keys[row, 4] - keys[row, 3])
    keys = np.column_stack([*_read_rank_and_cycle(windows), read_keys(windows["step"])])
    row = row_of(steps, keys)
    length = np.zeros(len(steps), np.int64)
    np.maximum.at(length, row[row != NONE], _measure_lengths(windows)[row != NONE])
    return length


def _find_distinct(table: pa.Table, chosen: Mask) -> Ints:
    table = table.filter(pa.array(chosen))
    keys = np.column_stack([*_read_rank_and_cycle(table), read_keys(table["step"])])
    return Groups.by_keys(keys).keys


def _read_rank_and_cycle(table: pa.Table) -> tuple[Ints, Ints]:
    """Rank and cycle of each row."""
    rank = read_numbers(table["rank"], NONE)
    cycle = read_numbers(table["cycle"], 0)
    return rank.astype(np.int64), cycle.astype(np.int64)
