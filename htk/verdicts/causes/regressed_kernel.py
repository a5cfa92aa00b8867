"""A kernel became slower while it was recorded: change points of kernels that others do not share.

A GPU that throttles changes all of its kernels at one step; that is none of one kernel's.
"""

from dataclasses import dataclass, replace

import numpy as np

from htk.analyses.time.change_points import StepSeries, find_shifts, step_series
from htk.base.columns.arrow import read_numbers
from htk.base.columns.types import NONE, Floats
from htk.base.core.humanize import format_duration, format_int_ranges, pluralize_count
from htk.base.errors import MissingTable
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import CauseEdit, shorter_activities
from htk.verdicts.causes.recorded import CauseEvidence
from htk.whatif.step_model import StepModel

FINDING = "a kernel became slower"
_LEAST = np.log(1.05)  # of its time, beyond what the rank's other kernels became slower by


@dataclass(frozen=True)
class _KernelChange:
    """A kernel that became slower from a step on."""

    name: str
    cycle: int
    step: int  # the first slow one
    ratios: dict[int, float]  # by rank, where it is slower
    before_ns: float  # of a step, mean over those
    after_ns: float
    steps: int  # from there on

    @property
    def lost_ns(self) -> float:
        return (self.after_ns - self.before_ns) * self.steps * len(self.ratios)


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    work = recorded.work
    computing = {work.names[k] for k in np.unique(work.name[work.compute]).tolist()}
    try:
        series = step_series(recorded["kernel_totals"], recorded["step_windows"])
    except MissingTable:  # too few steps
        return []
    changes = _find_changes(series, computing)
    if not changes:
        return []
    share = np.zeros(len(work.length))
    for change in changes:
        rows = work.name == work.names.index(change.name)
        rows &= np.isin(work.rank, list(change.ratios))
        share[rows] += change.lost_ns / max(int(work.length[rows].sum()), 1)
    worst = changes[0]
    cause = work.cause(
        (work.name == work.names.index(worst.name)) & np.isin(work.rank, list(worst.ratios)),
        work.take(share > 0, share),
        FINDING,
        _in_words(changes, len(series.ranks)),
        "see what changed at that step: sizes, data, algorithm (cudnn.benchmark), another process "
        "on the GPU; compare its shapes before and after",
        "kernel_top",
        _as_before(changes),
    )
    return [replace(cause, is_bound=False, is_change=True)]


def _find_changes(series: StepSeries, computing: set[str]) -> list[_KernelChange]:
    """Return the kernels that became slower, those that lose most first."""
    kernels = np.array([name in computing for name in series.names])
    shifted = find_shifts(series)
    names, row = np.unique(shifted["name"], return_index=True)
    cycles = shifted["cycle"][row].tolist()
    steps = shifted["step"][row].tolist()
    changes = []
    for name, cycle, step in zip(names.tolist(), cycles, steps, strict=True):
        first = int(np.flatnonzero((series.cycles == cycle) & (series.steps == step))[0])
        before = series.time[:, :, :first].mean(axis=2)
        after = series.time[:, :, first:].mean(axis=2)
        rise = np.log(np.maximum(after, 1)) - np.log(np.maximum(before, 1))
        others = np.median(rise[kernels], axis=0) if kernels.any() else 0.0
        slow = np.flatnonzero(np.minimum(rise[name], rise[name] - others) >= _LEAST)
        if not kernels[name] or not len(slow):
            continue
        ratios = dict(zip(series.ranks[slow].tolist(), np.exp(rise[name, slow]), strict=True))
        changes.append(
            _KernelChange(
                series.names[name], cycle, step, ratios,
                float(before[name, slow].mean()), float(after[name, slow].mean()),
                len(series.steps) - first,
            )
        )  # fmt: skip
    return sorted(changes, key=lambda change: -change.lost_ns)


def _in_words(changes: list[_KernelChange], every: int) -> str:
    worst = changes[0]
    others = len({c.name for c in changes}) - 1
    everywhere = len(worst.ratios) == every > 1
    where = "all ranks" if everywhere else f"rank {format_int_ranges(list(worst.ratios))}"
    cycle = f" of cycle {worst.cycle}" if worst.cycle else ""
    more = f"; {pluralize_count(others, 'other kernel')} too" if others else ""
    return (
        f"it takes {worst.after_ns / worst.before_ns:.2f}x as long from step {worst.step}{cycle} "
        f"on ({format_duration(worst.before_ns)} → {format_duration(worst.after_ns)} a step) on "
        f"{where}{more}"
    )


def _as_before(changes: list[_KernelChange]) -> CauseEdit:
    """Return the edit in which these kernels take what they did before."""

    def length_of(model: StepModel) -> Floats:
        acts = model.graph.activities
        length = model.lengths().astype(np.float64)
        links = model.facts.tables["kernel_links"]
        step = read_numbers(links["step"], NONE)[model.facts.rows]
        for change in changes:
            name = acts.names.index(change.name) if change.name in acts.names else NONE
            slow = (acts.name == name) & (step >= change.step)
            for rank, ratio in change.ratios.items():
                length[slow & (acts.rank == rank)] /= ratio
        return length

    return shorter_activities("replace", length_of)
