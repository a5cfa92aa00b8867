"""A cause: what is wrong, what shows it, what to try, and the edit that takes it away."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.verdicts.causes.changes import CauseEdit

_MOST = 0.4  # of a cost, where one rank or step is named for it
_OF_EVEN = 2.0  # and so many times what each would bear if all bore as much
_OF_TWO = 0.75  # of two, which cannot bear twice as much
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


def bearing_most(keys: Ints, cost: Ints, of: Ints) -> tuple[int, float] | None:
    """Return which key bears most of a cost, and which share; None where none does, or where there
    is no other key in `of`. Of few keys each bears much: one of two most where it has three
    quarters, one of three where it has two thirds."""
    groups = Groups.by_keys(keys[keys >= 0])
    others = len(np.unique(of[of >= 0]))
    if not len(groups) or others < 2:
        return None
    sums = groups.sum(cost[keys >= 0])
    most = int(sums.argmax())
    share = float(sums[most] / max(int(cost.sum()), 1))
    if share <= max(_MOST, min(_OF_EVEN / others, _OF_TWO)):
        return None
    return int(groups.keys[most, 0]), share


def describe_majority(keys: Ints, cost: Ints, noun: str, of: Ints) -> str:
    """Return in words which key bears most of a cost, such as ", 81 % on rank 3"; "" for none."""
    bearing = bearing_most(keys, cost, of)
    if bearing is None:
        return ""
    key, share = bearing
    return f", {100 * share:.0f} % {noun} {key}"


def find_costliest(names: Sequence[str | None], code: Ints, cost: Ints) -> list[str]:
    """Return the names that bear most of a cost."""
    total = np.bincount(code[code >= 0], cost[code >= 0], minlength=len(names))
    order = order_by(-total)[:_EVENTS].tolist()
    return [name for k in order if total[k] > 0 and (name := names[k])]


def find_longest(rank: Ints, start: Ints, end: Ints) -> Example | None:
    """Return the longest of some spans."""
    if not len(start):
        return None
    row = int((end - start).argmax())
    return Example(int(rank[row]), int(start[row]), int(end[row]))
