"""What the steps of a recording consist of: the time of each part, phase, kernel, operator, module.

A sample is one complete step of one rank; each time belongs to a sample, or to none (-1).
"""

from collections.abc import Callable
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, numbers, read_keys, read_lengths, truths, valid
from htk.base.columns.groups import Groups, event_keys, row_of
from htk.base.columns.types import NONE, Ints, Mask, fill_none, take_or
from htk.base.mappings import NamedTables
from htk.base.names.phases import PHASES
from htk.quantities.derived.window_times import kind_times
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.host_steps import host_steps
from htk.quantities.measures.passes import phase_codes
from htk.traces.compare.outlying import usual_steps

Tables = NamedTables
By = Literal["time", "phase", "kernel", "op", "module", "comm"]
EACH: tuple[By, ...] = ("time", "phase", "kernel", "op", "module", "comm")
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
        ranks = np.unique(numbers(self.tables["ranks"]["rank"], NONE))
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
        rank = Groups.by_keys(_who(spans))
        ends = rank.max(numbers(spans["end_ns"]))
        starts = rank.min(numbers(spans["start_ns"]))
        return int((ends - starts).sum())

    def sample(self, table: pa.Table, step: Ints) -> Ints:
        """Sample of each row of a table, whose steps are given; -1 where it is in none."""
        keys = np.column_stack([*_who(table), step.astype(np.int64)])
        return np.where(step >= 0, row_of(self.samples, keys), NONE)


def _times(side: Side) -> Items:
    """Return where the time of each GPU step goes; without steps, of each window."""
    by_step = len(side.samples) > 0
    if by_step and not side.tables["step_windows"].num_rows:
        return _host_steps(side)
    windows = side.tables["step_windows" if by_step else "rank_windows"]
    times = kind_times(side.tables["activities"], windows)
    parts = {
        "total": times.total,
        "compute": times.any("compute"),
        "exposed communication": times.exposed("comm", "compute"),
        "exposed copies": times.exposed("memory", "compute", "comm"),
        "idle": times.idle,
    }
    sample = side.sample(windows, numbers(windows["step"], NONE))
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
    notes = notes.filter(pa.array(valid(notes["step"]) & ~truths(notes["on_gpu"])))
    sample = side.sample(notes, numbers(notes["step"], NONE))
    return Items(["total"], np.zeros(len(sample), np.int64), sample, _length(notes))


def _kernels(side: Side) -> Items:
    return _of_kernels(side, *_text_codes(side.tables["kernels"]["name"]))


def _of_kernels(side: Side, code: Ints, names: list[str]) -> Items:
    """GPU activities under any names."""
    kernels = side.tables["kernels"]
    links = side.tables["kernel_links"]
    sample = side.sample(kernels, numbers(links["step"], NONE))
    return Items(names, code, sample, _length(kernels))


def _ops(side: Side) -> Items:
    ops = side.tables["cpu_ops"]
    links = side.tables["op_links"]
    chosen = truths(links["selected"])
    code, names = _text_codes(ops["name"])
    sample = side.sample(ops, numbers(links["step"], NONE))
    return Items(names, code[chosen], sample[chosen], _length(ops)[chosen])


def _modules(side: Side) -> Items:
    """GPU time by the module that launched it."""
    code, names = _text_codes(side.tables["op_callers"]["module"])
    named = np.array([bool(name) for name in names] + [False])
    code = np.where(named[code], code, -1)
    op = numbers(side.tables["kernel_links"]["op_row"], NONE)
    return _of_kernels(side, take_or(code, op), names)


def _phases(side: Side) -> Items:
    """GPU time by the phase that launched it."""
    return _of_kernels(side, phase_codes(side.tables["kernel_passes"]), list(PHASES))


def _collectives(side: Side) -> Items:
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
        steps = np.append(numbers(tables[links]["step"], NONE), NONE).astype(np.int64)
        step = np.where(row != NONE, steps[row], step)
    return step


READERS: dict[str, Callable[[Side], Items]] = {
    "time": _times,
    "phase": _phases,
    "kernel": _kernels,
    "op": _ops,
    "module": _modules,
    "comm": _collectives,
}


def _text_codes(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    codes, dictionary = codes_of(column)
    return codes.astype(np.int64), dictionary.to_pylist()


def _length(spans: pa.Table) -> Ints:
    return np.asarray(read_lengths(spans))


def _complete_steps(tables: Tables) -> Ints:
    """Rank, cycle and step of each complete step, in order: of the GPU, else of the host.

    Of steps that some rank holds a part of the other ranks tell something else, so they are left
    out, as long as others remain.
    """
    windows = tables["step_windows"]
    if windows.num_rows:
        is_step = valid(windows["step"])
        is_whole = truths(windows["complete"])
        uncut = _distinct(windows, is_step & is_whole)
        cut = Groups.by_keys(_distinct(windows, is_step & ~is_whole)[:, 1:])
        common = uncut[row_of(cut.keys, uncut[:, 1:]) == NONE]
        return common if len(common) else uncut
    keys, complete = host_steps(tables["step_marks"])
    steps = keys[complete, :3]
    if not tables["cpu_ops"].num_rows:
        return steps
    ops, links = tables["cpu_ops"], tables["op_links"]  # ranges are not narrowed, operators are
    chosen = truths(links["selected"])
    keys = np.column_stack([*_who(ops), read_keys(links["step"])])
    return np.asarray(steps[row_of(keys[chosen], steps) != NONE])


def _step_lengths(tables: Tables, steps: Ints) -> Ints:
    """Return how long each of some steps of a rank took: on the GPU, else on the host."""
    windows = tables["step_windows"]
    if not windows.num_rows:
        keys, _ = host_steps(tables["step_marks"])
        row = row_of(keys[:, :3], steps)
        return np.asarray(keys[row, 4] - keys[row, 3])
    keys = np.column_stack([*_who(windows), read_keys(windows["step"])])
    row = row_of(steps, keys)
    length = np.zeros(len(steps), np.int64)
    np.maximum.at(length, row[row != NONE], _length(windows)[row != NONE])
    return length


def _distinct(table: pa.Table, chosen: Mask) -> Ints:
    table = table.filter(pa.array(chosen))
    keys = np.column_stack([*_who(table), read_keys(table["step"])])
    return Groups.by_keys(keys).keys


def _who(table: pa.Table) -> tuple[Ints, Ints]:
    """Rank and cycle of each row."""
    rank = numbers(table["rank"], NONE)
    cycle = numbers(table["cycle"], 0)
    return rank.astype(np.int64), cycle.astype(np.int64)
