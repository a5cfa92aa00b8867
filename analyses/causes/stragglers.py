"""Which rank holds the others up, by what, and what that costs them."""

from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa

from htk.columns.arrow import matching, number, numbers, text, truths, valid
from htk.columns.groups import Groups, paired
from htk.columns.intervals import Spans, covered, subtract, union
from htk.columns.types import Ints
from htk.core.analysis import analysis, with_coverage
from htk.core.chart import Bar
from htk.derived.match import CollectiveRows
from htk.errors import MissingTable
from htk.measures.collective_calls import clock_facts
from htk.schema import TEXT, table

RETURNS = table(
    rank=(pa.int32(), "Global rank."),
    collectives=(pa.int64(), "Matched collectives that it took part in."),
    arrived_last=(pa.int64(), "Of those it started last in."),
    blamed=(pa.int64(), "Of those the others waited for its own time."),
    cost_to_others_ns=(pa.int64(), "What the others waited for it, added up over them."),
    lateness_ns=(pa.int64(), "Its own time beyond the fastest rank's, where it is blamed."),
    late_in=(TEXT, "Where most of that went: compute, communication, memory, host; null: none."),
    compute_ns=(pa.int64(), "Of its lateness: more compute than the fastest rank."),
    comm_ns=(pa.int64(), "Of its lateness: more communication (of other groups)."),
    memory_ns=(pa.int64(), "Of its lateness: more copies and sets."),
    host_ns=(pa.int64(), "Of its lateness: more idle time."),
    wait_ns=(pa.int64(), "What it waited for others itself."),
    recorded_ns=(pa.int64(), "Its recorded window: a late rank's is often the shortest."),
)

_KINDS = ("compute", "comm", "memory")


class _Own(NamedTuple):
    """Time between collectives of a group on a rank."""

    start: Ints
    end: Ints
    lane: Ints
    known: np.ndarray


@analysis(
    returns=RETURNS,
    chart=Bar("rank", ("cost_to_others_ns", "wait_ns"), stacked=False),
    null_without={"kernels": ("compute_ns", "comm_ns", "memory_ns", "recorded_ns")},
)
def stragglers(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    activities: pa.Table,
    rank_windows: pa.Table,
    *,
    align: Annotated[bool, "Put ranks whose clocks are apart on one clock."] = True,
) -> pa.Table:
    """Which rank is late, in what, and how much does it cost the others?

    A rank is late at a collective by its own time since the group's previous one, less the
    smallest of the group. Its own collectives are short and its step looks short: what tells is
    what the others wait. What began before some rank's recording is blamed on nobody.
    """
    rows = CollectiveRows(collectives)
    matches = aligned_matches if align else collective_matches
    matched = valid(matches["wait_ns"])
    if not matched.any():
        raise MissingTable(
            "no collective was found on two ranks; stragglers need the traces of all ranks of the "
            "job, opened together"
        )
    own = _own_time(rows, collectives)
    parts = _parts(own, activities, collectives)
    match = numbers(matches["match"], -1)
    excess = _over_fastest(parts, own, match, matched)
    blamed = truths(matches["blamed"])
    taken = np.flatnonzero(matched)
    ranks = Groups.by_keys(rows.rank[taken])

    def summed(values: Ints, chosen: np.ndarray) -> Ints:
        return ranks.sum(np.where(chosen, values, 0)[taken])

    late = numbers(matches["lateness_ns"], 0)
    fair = ~truths(matches["before_window"])
    last = (numbers(matches["last_rank"], -1) == rows.rank) & fair
    sums = np.stack([summed(column, blamed) for column in excess.T], axis=1)
    cost = summed(numbers(matches["cost_ns"]), blamed)
    lateness = summed(late, blamed)
    most = np.where(sums.max(axis=1, initial=0) > 0, sums.argmax(axis=1), -1)
    rank = ranks.keys.ravel()
    columns = {
        "rank": number(rank, pa.int32(), rank >= 0),
        "collectives": number(ranks.count, pa.int64()),
        "arrived_last": number(summed(last.astype(np.int64), last), pa.int64()),
        "blamed": number(summed(blamed.astype(np.int64), blamed), pa.int64()),
        "cost_to_others_ns": number(cost, pa.int64()),
        "lateness_ns": number(lateness, pa.int64()),
        "late_in": text(most, pa.array(["compute", "communication", "memory", "host"])),
        "wait_ns": number(summed(numbers(matches["wait_ns"]), matched), pa.int64()),
        "recorded_ns": _recorded(rank, rank_windows),
    }
    for k, name in enumerate((*_KINDS, "host")):
        columns[f"{name}_ns"] = number(sums[:, k], pa.int64())
    answer = pa.table([columns[f.name] for f in RETURNS], schema=RETURNS)
    order = pa.array(np.lexsort((rank, -cost)))
    return with_coverage(answer.take(order), **_facts(matches, matched), **clock_facts(align))


def _facts(matches: pa.Table, matched: np.ndarray) -> dict[str, object]:
    before = truths(matches["before_window"]) & matched
    return {
        "collectives": matches.num_rows,
        "matched": int(matched.sum()),
        "before_window": int(before.sum()),
    }


def _own_time(rows: CollectiveRows, collectives: pa.Table) -> _Own:
    """From the end of the group's previous collective on the rank to the start of this one."""
    lane = _lanes(rows.rank, collectives)
    order = np.lexsort((rows.start, rows.group, rows.cycle, lane))
    same = np.zeros(len(order), bool)
    for column in (lane, rows.cycle, rows.group):
        same[1:] |= column[order][1:] != column[order][:-1]
    first = np.append(True, same[1:])[: len(order)]
    before = np.append(-1, order[:-1])[: len(order)]
    begin = rows.start.copy()
    begin[order] = np.where(first, rows.start[order], rows.end[before])
    has_previous = np.zeros(len(order), bool)
    has_previous[order] = ~first
    return _Own(np.minimum(begin, rows.start), rows.start, lane, has_previous & rows.timed)


def _lanes(rank: Ints, table_: pa.Table) -> Ints:
    """One number for each device of each rank."""
    device = numbers(table_["device"], -1).astype(np.int64)
    return paired(rank, device)


def _parts(own: _Own, activities: pa.Table, collectives: pa.Table) -> Ints:
    """Compute, other communication, other copies, and idle time of each own time."""
    lane = _lanes(numbers(activities["rank"], -1), activities)
    start, end = numbers(activities["start_ns"]), numbers(activities["end_ns"])
    kinds = [matching(activities["kind"], kind.__eq__) for kind in _KINDS]
    parts = np.zeros((len(own.start), 4), np.int64)
    order = np.argsort(lane, kind="stable")
    for lane_id in np.unique(own.lane).tolist():  # a device of a rank each
        own_rows = np.flatnonzero((own.lane == lane_id) & own.known)
        activity_rows = order[slice(*np.searchsorted(lane[order], [lane_id, lane_id + 1]))]
        taken = Spans(np.empty(0, np.int64), np.empty(0, np.int64))
        for k, kind in enumerate(kinds):  # what runs beside an earlier kind is that kind's
            rows = activity_rows[kind[activity_rows]]
            alone = subtract(union(start[rows], end[rows]), taken)
            parts[own_rows, k] = covered(alone, own.end[own_rows]) - covered(
                alone, own.start[own_rows]
            )
            taken = union(*(np.concatenate(pair) for pair in zip(taken, alone, strict=True)))
        parts[own_rows, 3] = (
            own.end[own_rows] - own.start[own_rows] - parts[own_rows, :3].sum(axis=1)
        )
    return parts


def _over_fastest(parts: Ints, own: _Own, match: Ints, matched: np.ndarray) -> Ints:
    """The parts less those of the rank of the same collective with the least own time."""
    excess = np.zeros_like(parts)
    chosen = np.flatnonzero(matched & own.known)
    if not len(chosen):
        return excess
    members = Groups.by_keys(match[chosen])
    order = np.lexsort((own.end[chosen] - own.start[chosen], members.group_ids))
    first = np.searchsorted(members.group_ids[order], np.arange(len(members)))
    fastest = chosen[order[first]]
    excess[chosen] = parts[chosen] - parts[fastest[members.group_ids]]
    return excess


def _recorded(rank: Ints, rank_windows: pa.Table) -> pa.Array:
    """Length of each rank's recorded window, over its devices and cycles."""
    whose = numbers(rank_windows["rank"], -1)
    length = numbers(rank_windows["end_ns"]) - numbers(rank_windows["start_ns"])
    total = np.array([int(length[whose == rank_id].sum()) for rank_id in rank.tolist()], np.int64)
    return number(total, pa.int64())
