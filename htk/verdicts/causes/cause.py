"""A cause: what is wrong, what shows it, what to try, and the edit that takes it away."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import ordered
from htk.base.columns.types import Ints
from htk.verdicts.causes.changes import CauseEdit

_MOST = 0.4  # of a cost, where one rank or step is named for it
_EVENTS = 3  # names that a cause lists


@dataclass(frozen=True)
class Example:
    """The costliest instance, on its rank's own clock."""

    rank: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Cause:
    finding: str
    evidence: str
    advice: str
    recorded_ns: int | None  # of all GPUs together; None: not a matter of time
    analysis: str  # that shows it
    events: Sequence[str] = ()  # names, costliest first
    example: Example | None = None
    is_change: bool = False  # something became worse while it was recorded
    change: CauseEdit | None = None  # None: no replay tells what it costs
    is_lost: bool = False  # the recorded time: GPUs were idle, or waited for what nothing hides
    # Whether the edit is a bound that a design comes near, such as all communication hidden. What
    # it gains is told of the recording without faults: these are what it has to thank for the rest.
    is_bound: bool = False


def mostly(keys: Ints, cost: Ints, noun: str, of: Ints) -> str:
    """Return which key bears most of a cost, such as ", 81 % on rank 3"; "" for none, or where
    there is no other key in `of`."""
    groups = Groups.by_keys(keys[keys >= 0])
    if not len(groups) or len(np.unique(of[of >= 0])) < 2:
        return ""
    sums = groups.sum(cost[keys >= 0])
    most = int(sums.argmax())
    share = sums[most] / max(int(cost.sum()), 1)
    return f", {100 * share:.0f} % {noun} {groups.keys[most, 0]}" if share > _MOST else ""


def costliest(names: Sequence[str | None], code: Ints, cost: Ints) -> list[str]:
    """Return the names that bear most of a cost."""
    total = np.bincount(code[code >= 0], cost[code >= 0], minlength=len(names))
    order = ordered(-total)[:_EVENTS].tolist()
    return [name for k in order if total[k] > 0 and (name := names[k])]


def longest(rank: Ints, start: Ints, end: Ints) -> Example | None:
    """Return the longest of some spans."""
    if not len(start):
        return None
    row = int((end - start).argmax())
    return Example(int(rank[row]), int(start[row]), int(end[row]))
