"""Kernels that take longer from some step on, while others do not.

The series of a kernel (name, grid and block) on a rank is its mean duration in each step. A change
is a shift of it by more than chance explains, and by more than the rank's other kernels shift at
the same step: a GPU that throttles changes all of them.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, matching, numbers, truths
from htk.base.columns.groups import Groups, row_of, rows_by_number
from htk.base.columns.types import NONE, Floats, Ints
from htk.quantities.measures.chance import shared
from htk.quantities.measures.change_points import LEAST_STEPS, shifts

FALSE_ALARMS = 0.01  # chance that a rank without any change shows one
_LEAST_RATIO = 1.05


@dataclass(frozen=True)
class KernelChange:
    """A kernel that became slower on a rank."""

    name: str
    rank: int
    cycle: int
    step: int  # the first slow one
    before_ns: float  # of a call
    after_ns: float
    lost_ns: int  # in all steps from there on

    @property
    def ratio(self) -> float:
        return self.after_ns / self.before_ns


def kernel_changes(kernel_totals: pa.Table, step_windows: pa.Table) -> list[KernelChange]:
    """Return the compute kernels that became slower, those that lose most first."""
    changes = []
    totals_of, windows_of = (
        rows_by_number(numbers(t["rank"], NONE)) for t in (kernel_totals, step_windows)
    )
    for rank in np.unique(numbers(step_windows["rank"], NONE)).tolist():
        totals = kernel_totals.take(pa.array(totals_of(rank)))
        changes += _of_rank(rank, totals, step_windows.take(pa.array(windows_of(rank))))
    return sorted(changes, key=lambda c: -c.lost_ns)


def _of_rank(rank: int, totals: pa.Table, step_windows: pa.Table) -> list[KernelChange]:
    complete = truths(step_windows["complete"])
    recorded = _cycle_and_step(step_windows, step_windows["step"])
    steps = np.unique(recorded[complete & (recorded[:, 1] >= 0)], axis=0)
    if len(steps) < LEAST_STEPS:
        return []
    chosen = matching(totals["kind"], "compute".__eq__)
    step = row_of(steps, _cycle_and_step(totals, totals["step"]))
    rows = np.flatnonzero(chosen & (step != NONE))
    calls_of, length = (numbers(totals[c])[rows] for c in ("count", "total_ns"))
    code, names = codes_of(totals["name"])
    shape = [codes_of(totals[c])[0][rows].astype(np.int64) for c in ("grid", "block")]
    kinds = Groups.by_keys([code[rows].astype(np.int64), *shape])
    cells = Groups.by_keys([kinds.group_ids, step[rows]])
    total = np.zeros((len(kinds), len(steps)))
    count = np.zeros((len(kinds), len(steps)))
    total[cells.keys[:, 0], cells.keys[:, 1]] = cells.sum(length)
    count[cells.keys[:, 0], cells.keys[:, 1]] = cells.sum(calls_of)
    steady = (count > 0).all(axis=1) & (total > 0).all(axis=1)
    mean = total[steady] / count[steady]
    changes = []
    for k, split in _changed(np.log(mean)):
        kind = np.flatnonzero(steady)[k]
        calls = count[kind]
        before = float(total[kind, :split].sum() / calls[:split].sum())
        after = float(total[kind, split:].sum() / calls[split:].sum())
        lost = round(float(total[kind, split:].sum()) - before * float(calls[split:].sum()))
        if lost > 0:
            name = str(names[int(kinds.keys[kind, 0])])
            cycle, first = steps[split].tolist()
            changes.append(KernelChange(name, rank, cycle, first, before, after, lost))
    return changes


def _cycle_and_step(rows: pa.Table, step: pa.ChunkedArray) -> Ints:
    return np.column_stack([numbers(rows["cycle"], 0), numbers(step, NONE)]).astype(np.int64)


def _changed(series: Floats) -> list[tuple[int, int]]:
    """Return the row and the first slow column of each series (logarithms) that rises."""
    if not len(series):
        return []
    shift = shifts(series)
    sure, _ = shared(shift.p, FALSE_ALARMS)
    rows = np.flatnonzero(sure & (shift.after - shift.before >= np.log(_LEAST_RATIO)))
    changed = []
    for row in rows.tolist():  # a few kernels
        split = int(shift.split[row])
        before = series[:, :split].mean(axis=1)
        after = series[:, split:].mean(axis=1)
        others = float(np.median(after - before))
        if after[row] - before[row] - others >= np.log(_LEAST_RATIO):
            changed.append((row, split))
    return changed
