"""Two recordings side by side: what became slower, faster, more, less, new or gone.

Counts and times are of a step, as means over ranks and complete steps, so that recordings of
different length compare; without steps on both sides they are totals of a rank. A difference is
significant where it exceeds twice its standard error, told from how much the steps of each side
differ among themselves.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from htk.columns.arrow import boolean, codes_of, number, numbers, texts, truths, valid
from htk.columns.groups import Groups, paired, unpaired
from htk.columns.types import Floats, Ints
from htk.core.analysis import with_coverage
from htk.core.label import Label
from htk.measures.breakdown import kind_times
from htk.measures.passes import phase_codes
from htk.names.phases import PHASES
from htk.schema import TEXT, table

Tables = Mapping[str, pa.Table]
By = Literal["time", "kernel", "op", "module", "phase"]
EACH: tuple[By, ...] = ("time", "phase", "kernel", "op", "module")
SIGMAS = 2.0

RETURNS = table(
    by=(TEXT, "time, phase, kernel, op or module."),
    name=(TEXT, "What is compared: GPU time, but of op the host's (callees included)."),
    change=(TEXT, "added, removed, slower, faster, or same: within the noise of the steps."),
    base_count=(pa.float64(), "How often in a step (without steps: in all), mean over ranks."),
    new_count=(pa.float64(), "The same, of the new recording."),
    base_ns=(pa.float64(), "Time in a step (without steps: in all), mean over ranks."),
    new_ns=(pa.float64(), "The same, of the new recording."),
    diff_ns=(pa.float64(), "New less base."),
    diff_pct=(pa.float64(), "That, of base; null where it is new."),
    noise_ns=(pa.float64(), "Twice the standard error of diff_ns; null with less than two steps."),
    significant=(pa.bool_(), "The difference exceeds the noise; null where that is unknown."),
)


class Items(NamedTuple):
    """Times of named things; sample: the (rank, step) of each, or -1."""

    names: list[str]
    code: Ints
    sample: Ints
    time: Ints


class _Stats(NamedTuple):
    often: Floats
    mean: Floats
    variance: Floats  # of the mean


class Side:
    """One recording and its steps."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.ranks = max(len(np.unique(numbers(tables["ranks"]["rank"], -1))), 1)
        self._steps = _complete_steps(tables)

    @property
    def steps(self) -> int:
        """Samples: complete steps of all ranks."""
        return len(self._steps)

    @property
    def samples(self) -> tuple[Ints, Ints]:
        """Rank and step of each sample."""
        rank, step = unpaired(self._steps)
        return rank - 1, step

    def sample(self, rank: Ints, step: Ints) -> Ints:
        """Number of each (rank, step); -1 where it is no complete step."""
        if not len(self._steps):
            return np.full(len(rank), -1, np.int64)
        wanted = _pair(rank, step)
        position = np.minimum(np.searchsorted(self._steps, wanted), len(self._steps) - 1)
        return np.where((self._steps[position] == wanted) & (step >= 0), position, -1)

    def stats(self, items: Items, by_step: bool) -> _Stats:
        """Mean and its variance of each named thing, over samples (or over ranks)."""
        many = len(items.names)
        if not by_step:
            count = np.bincount(items.code, minlength=many)[:many]
            total = np.bincount(items.code, items.time, minlength=many)[:many]
            return _Stats(count / self.ranks, total / self.ranks, np.full(many, np.nan))
        in_sample = items.sample >= 0
        groups = Groups.by_keys(np.stack([items.code[in_sample], items.sample[in_sample]], axis=1))
        code = groups.keys[:, 0]
        sums = groups.sum(items.time[in_sample]).astype(np.float64)
        count = np.bincount(items.code[in_sample], minlength=many)[:many]
        mean = np.bincount(code, sums, minlength=many)[:many] / self.steps
        absent = self.steps - np.bincount(code, minlength=many)[:many]
        around = np.bincount(code, (sums - mean[code]) ** 2, minlength=many)[:many]
        off = np.asarray(around + absent * mean**2, np.float64)  # and of steps without it
        free = self.steps - 1
        spread = off / free / self.steps if free else np.full(many, np.nan)
        return _Stats(count / self.steps, mean, spread)


def compare(base: Tables, new: Tables, by: tuple[By, ...] = EACH, n: int = 10) -> pa.Table:
    """What changed from base to new: n rows of each kind (0: all), largest differences first."""
    sides = Side(base), Side(new)
    by_step = all(side.steps for side in sides)
    parts = [_compared(kind, *sides, by_step, n) for kind in by]
    answer = pa.concat_tables(parts) if parts else RETURNS.empty_table()
    return with_coverage(
        answer,
        compared="a step" if by_step else "a rank",
        base_steps=sides[0].steps,
        new_steps=sides[1].steps,
        base_ranks=sides[0].ranks,
        new_ranks=sides[1].ranks,
    )


def _compared(kind: By, base: Side, new: Side, by_step: bool, n: int) -> pa.Table:
    items = [READERS[kind](side) for side in (base, new)]
    names = list(dict.fromkeys(items[0].names + items[1].names))
    stats = [s.stats(_renamed(i, names), by_step) for s, i in zip((base, new), items, strict=True)]
    was, now = stats
    present = np.flatnonzero((was.often > 0) | (now.often > 0) | (was.mean > 0) | (now.mean > 0))
    diff = now.mean - was.mean
    noise = SIGMAS * np.sqrt(was.variance + now.variance)
    has_noise = ~np.isnan(noise)
    certain = has_noise & (np.abs(diff) > np.nan_to_num(noise))
    rows = present[np.argsort(-np.abs(diff[present]), kind="stable")][: n or None]
    share = np.divide(100 * diff, was.mean, out=np.zeros(len(diff)), where=was.mean > 0)
    change = [
        _change(was, now, diff, bool(certain[k] or not has_noise[k]), k) for k in rows.tolist()
    ]
    columns = [
        texts([kind] * len(rows)),
        texts([names[k] for k in rows.tolist()]),
        texts(change),
        *(number(v[rows], pa.float64()) for v in (was.often, now.often, was.mean, now.mean, diff)),
        number(share[rows], pa.float64(), was.mean[rows] > 0),
        number(np.nan_to_num(noise)[rows], pa.float64(), has_noise[rows]),
        boolean(certain[rows], has_noise[rows]),
    ]
    return pa.table(columns, schema=RETURNS)


def _change(was: _Stats, now: _Stats, diff: Floats, certain: bool, k: int) -> str:
    if not was.often[k] and not was.mean[k]:
        return "added"
    if not now.often[k] and not now.mean[k]:
        return "removed"
    if not certain or not diff[k]:
        return "same"
    return "slower" if diff[k] > 0 else "faster"


def _renamed(items: Items, names: list[str]) -> Items:
    """Codes into the names of both sides."""
    code_of = {name: k for k, name in enumerate(names)}
    new = np.array([*(code_of[name] for name in items.names), -1], np.int64)[items.code]
    keep = new >= 0
    return Items(names, new[keep], items.sample[keep], items.time[keep])


def _times(side: Side) -> Items:
    """Where the time of each GPU step goes; without steps, of each window."""
    by_step = side.steps > 0
    windows = side.tables["step_windows" if by_step else "rank_windows"]
    times = kind_times(side.tables["activities"], windows)
    parts = {
        "total": times.total,
        "compute": times.any("compute"),
        "exposed communication": times.exposed("comm", "compute"),
        "exposed copies": times.exposed("memory", "compute", "comm"),
        "idle": times.idle,
    }
    sample = side.sample(numbers(windows["rank"], -1), numbers(windows["step"], -1))
    count = windows.num_rows
    return Items(
        list(parts),
        np.repeat(np.arange(len(parts)), count),
        np.tile(sample, len(parts)),
        np.concatenate(list(parts.values())),
    )


def _kernels(side: Side) -> Items:
    return _of_kernels(side, *_text_codes(side.tables["kernels"]["name"]))


def _of_kernels(side: Side, code: Ints, names: list[str]) -> Items:
    """GPU activities under any names."""
    kernels, links = side.tables["kernels"], side.tables["kernel_links"]
    sample = side.sample(numbers(kernels["rank"], -1), numbers(links["step"], -1))
    return Items(names, code, sample, _length(kernels))


def _ops(side: Side) -> Items:
    ops, links = side.tables["cpu_ops"], side.tables["op_links"]
    chosen = truths(links["selected"])
    code, names = _text_codes(ops["name"])
    sample = side.sample(numbers(ops["rank"], -1), numbers(links["step"], -1))
    return Items(names, code[chosen], sample[chosen], _length(ops)[chosen])


def _modules(side: Side) -> Items:
    """GPU time by the module that launched it."""
    code, names = _text_codes(side.tables["op_callers"]["module"])
    named = np.array([bool(name) for name in names] + [False])
    code = np.where(named[code], code, -1)
    op = numbers(side.tables["kernel_links"]["op_row"], -1)
    return _of_kernels(side, np.append(code, -1)[op], names)


def _phases(side: Side) -> Items:
    """GPU time by the phase that launched it."""
    return _of_kernels(side, phase_codes(side.tables["kernel_passes"]), list(PHASES))


READERS: dict[str, Callable[[Side], Items]] = {
    "time": _times,
    "phase": _phases,
    "kernel": _kernels,
    "op": _ops,
    "module": _modules,
}


def _text_codes(column: pa.ChunkedArray) -> tuple[Ints, list[str]]:
    codes, dictionary = codes_of(column)
    return codes.astype(np.int64), dictionary.to_pylist()


def _length(spans: pa.Table) -> Ints:
    return np.asarray(numbers(spans["end_ns"]) - numbers(spans["start_ns"]))


def _complete_steps(tables: Tables) -> Ints:
    """(rank, step) of each complete step, in order: of the GPU, else of the host."""
    windows = tables["step_windows"]
    if windows.num_rows:
        complete = valid(windows["step"]) & truths(windows["complete"])
    else:
        windows = tables["annotations"]
        complete = valid(windows["step"]) & ~truths(windows["on_gpu"])
    rank, step = numbers(windows["rank"], -1)[complete], numbers(windows["step"], -1)[complete]
    steps = np.unique(_pair(rank, step))
    if windows is tables["step_windows"] or not tables["cpu_ops"].num_rows:
        return steps
    ops, links = tables["cpu_ops"], tables["op_links"]  # ranges are not narrowed, operators are
    chosen = truths(links["selected"])
    ours = _pair(numbers(ops["rank"], -1), numbers(links["step"], -1))[chosen]
    return np.intersect1d(steps, ours)


def _pair(rank: Ints, step: Ints) -> Ints:
    return paired(rank + 1, step)


DIFF = Label("diff", "What changed between two recordings, or two ranks?")
