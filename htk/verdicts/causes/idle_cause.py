"""Causes that idle time of GPUs shows."""

import numpy as np

from htk.base.columns.arrow import read_booleans, read_numbers
from htk.base.columns.types import NONE, Ints
from htk.base.core.humanize import pluralize_count
from htk.quantities.derived.idle import CAUSES
from htk.verdicts.causes.cause import (
    Cause,
    bearing_most,
    describe_majority,
    find_costliest,
    find_longest,
)
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.recorded import CauseEvidence


def idle_cause(
    recorded: CauseEvidence,
    finding: str,
    cost: Ints,
    advice: str,
    change: CauseEdit | None,
    *,
    is_bound: bool = False,
    of_calls: bool = False,
    of_each_step: bool = False,
) -> list[Cause]:
    """Return the cause whose part of each piece of idle time is `cost`; none where it has none.
    `of_calls`: it is of calls that block, which otherwise have their own cause; `of_each_step`: it
    is a trait of every step, whichever shows it most."""
    idle = recorded.idle
    rows = cost > 0
    if not rows.any():
        return []
    names = np.where(idle.blocks[rows] & (not of_calls), NONE, idle.name[rows])
    events = find_costliest(idle.names, names, cost[rows])
    meanwhile = f"; meanwhile {', '.join(events)}" if events else ""
    start = idle.longest_start[rows]
    if change is not None and change.option and not of_each_step:
        change = _of_its_step(recorded, cost, change)
    analysis = "host_stalls" if of_calls else "idle_breakdown"
    cause = Cause(
        finding,
        f"GPU idle: {idle_in_words(recorded, cost)}{meanwhile}",
        advice,
        int(cost.sum()),
        analysis,
        events,
        find_longest(idle.rank[rows], start, start + idle.longest_ns[rows]),
        change=change,
        is_lost=True,
        is_bound=is_bound,
    )
    return [cause]


def _of_its_step(recorded: CauseEvidence, cost: Ints, change: CauseEdit) -> CauseEdit:
    """Return the edit with the what-if of the step that bears most of a cost: of itself `htk
    whatif` takes the steadiest step, which lacks it."""
    idle = recorded.idle
    bearing = bearing_most(idle.step, cost, idle.step)
    if bearing is None:
        return change
    windows = recorded["step_windows"]
    whole_steps = np.unique(
        read_numbers(windows["step"], NONE)[read_booleans(windows["complete"])]
    ).tolist()
    step, _ = bearing
    if step not in whole_steps:
        return change._replace(option="")
    if len(whole_steps) == 1:
        return change
    return change._replace(option=f"--steps {step} {change.option}")


def idle_in_words(recorded: CauseEvidence, cost: Ints) -> str:
    """Return the idle time of each cause, and the rank and step that bear most of it."""
    idle = recorded.idle
    rows = cost > 0
    parts = []
    for k in np.unique(idle.cause[rows]).tolist():  # of a dozen causes
        of_cause = rows & (idle.cause == k)
        gaps = pluralize_count(int(idle.pieces[of_cause].sum()), "gap")
        parts.append(f"{CAUSES[k]} {recorded.spent(int(cost[of_cause].sum()))} in {gaps}")
    where = describe_majority(idle.rank[rows], cost[rows], "on rank", idle.rank)
    where += describe_majority(idle.step[rows], cost[rows], "in step", idle.step)
    return f"{', '.join(parts)}{where}"
