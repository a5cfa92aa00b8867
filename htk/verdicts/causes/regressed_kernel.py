"""A kernel became slower while it was recorded."""

from dataclasses import replace

import numpy as np

from htk.base.columns.arrow import numbers
from htk.base.columns.types import NONE, Floats
from htk.base.core.humanize import format_duration, format_int_ranges, pluralize
from htk.quantities.measures.kernel_changes import KernelChange, kernel_changes
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import CauseEdit, shorter_activities
from htk.verdicts.causes.recorded import CauseEvidence
from htk.whatif.step_model import StepModel

FINDING = "a kernel became slower"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    work = recorded.work
    changes = kernel_changes(recorded["kernel_totals"], recorded["step_windows"])
    if not changes:
        return []
    slow = np.zeros(len(work.length), bool)
    share = np.zeros(len(work.length))
    for change in changes:
        rows = (work.name == work.names.index(change.name)) & (work.rank == change.rank)
        slow |= rows
        share[rows] += change.lost_ns / max(int(work.length[rows].sum()), 1)
    worst = changes[0]
    cause = work.cause(
        slow & (work.rank == worst.rank) & (work.name == work.names.index(worst.name)),
        work.take(slow, share),
        FINDING,
        _in_words(changes, set(work.rank[work.compute].tolist())),
        "see what changed at that step: sizes, data, algorithm (cudnn.benchmark), another process "
        "on the GPU; compare its shapes before and after",
        "kernel_top",
        _as_before(changes),
    )
    return [replace(cause, is_bound=False, is_change=True)]


def _in_words(changes: list[KernelChange], all_ranks: set[int]) -> str:
    worst = changes[0]
    begun = worst.name, worst.cycle, worst.step
    ranks = sorted({c.rank for c in changes if (c.name, c.cycle, c.step) == begun})
    others = len({c.name for c in changes}) - 1
    everywhere = set(ranks) >= all_ranks and len(ranks) > 1
    where = "all ranks" if everywhere else f"rank {format_int_ranges(ranks)}"
    cycle = f" of cycle {worst.cycle}" if worst.cycle else ""
    more = f"; {pluralize(others, 'other kernel')} too" if others else ""
    return (
        f"it takes {worst.ratio:.2f}x as long from step {worst.step}{cycle} on "
        f"({format_duration(worst.before_ns)} → {format_duration(worst.after_ns)} a call) on "
        f"{where}{more}"
    )


def _as_before(changes: list[KernelChange]) -> CauseEdit:
    """Return the edit in which these kernels take what they did before."""

    def length_of(model: StepModel) -> Floats:
        acts = model.graph.activities
        length = model.lengths().astype(np.float64)
        links = model.facts.tables["kernel_links"]
        step = numbers(links["step"], NONE)[model.facts.rows]
        for change in changes:
            name = acts.names.index(change.name) if change.name in acts.names else NONE
            slow = (acts.name == name) & (acts.rank == change.rank) & (step >= change.step)
            length[slow] /= change.ratio
        return length

    return shorter_activities("replace", length_of)
