"""Waits for ranks whose recording had not begun: for their start-up, or for what nothing tells.

Such collectives are blamed on nobody. But a host is recorded before its GPU's first work: where it
creates contexts or loads modules while the others wait, they wait for that.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, numbers, truths
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import covered, union
from htk.base.columns.types import NONE, Ints
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.verdicts.causes.advice.idle import finding_of

START_UP = finding_of("host_start_up", long=True)


class StartUpWaits(NamedTuple):
    """A row for each rank that others wait for at the beginning."""

    row: Ints  # of `collectives`: the last rank's
    rank: Ints
    wait_ns: Ints  # while it starts up, of all others
    unrecorded_ns: int  # the rest


def start_up_waits(calls: CollectiveCalls, exposed: Ints, stalls: pa.Table) -> StartUpWaits:
    """Return the exposed waits, of `exposed` by each row, in collectives before some recording."""
    rows = np.flatnonzero((calls.match != NONE) & truths(calls.matches["before_window"]))
    begin = calls.rows.start + calls.correction
    members = Groups.by_keys(calls.match[rows])
    order = np.lexsort((begin[rows], members.group_ids))
    last = rows[order[np.cumsum(members.count) - 1]] if len(rows) else rows
    last_of = last[members.group_ids]
    own_clock = calls.correction[last_of]
    during = _while_starting(
        calls.rows.rank[last_of], begin[rows] - own_clock, begin[last_of] - own_clock, stalls
    )
    waited = np.minimum(exposed[rows], during)
    total = members.sum(waited)
    late = total > 0
    rest = int(exposed[rows].sum() - waited.sum())
    return StartUpWaits(last[late], calls.rows.rank[last[late]], total[late], rest)


def _while_starting(rank: Ints, start: Ints, end: Ints, stalls: pa.Table) -> Ints:
    """Return how much of each span its rank's host spends in its start-up."""
    code, causes = codes_of(stalls["cause"])
    starts_up = [finding_of(cause, long=True) == START_UP for cause in causes.to_pylist()]
    chosen = np.array([*starts_up, False], bool)[code]
    host = numbers(stalls["rank"], NONE)
    begin, finish = numbers(stalls["start_ns"]), numbers(stalls["end_ns"])
    during = np.zeros(len(rank), np.int64)
    for number in np.unique(rank).tolist():  # ranks that came last to a first collective
        own, rows = rank == number, chosen & (host == number)
        spans = union(begin[rows], finish[rows])
        during[own] = covered(spans, end[own]) - covered(spans, start[own])
    return during
