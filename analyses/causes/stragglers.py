"""Which rank holds the others up, by what, and what that costs them."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.columns.arrow import number, numbers, text, truths
from htk.columns.groups import Groups
from htk.columns.types import Ints, Mask
from htk.core.analysis import analysis, with_coverage
from htk.core.chart import Bar
from htk.measures.blame import blame
from htk.measures.collective_calls import clock_facts
from htk.measures.own_time import KINDS
from htk.schema import TEXT, table

RETURNS = table(
    rank=(pa.int32(), "Global rank."),
    collectives=(pa.int64(), "Matched collectives that it took part in."),
    arrived_last=(pa.int64(), "Of those it started last in."),
    times_blamed=(pa.int64(), "Of those the others waited for its own time."),
    cost_to_others_ns=(pa.int64(), "What the others waited for it, added up over them."),
    lateness_ns=(pa.int64(), "Its own time beyond the fastest rank's, where it is blamed."),
    held_up_ns=(pa.int64(), "Late for other groups' collectives: slow links or peers, not blamed."),
    late_in=(TEXT, "Where most of that went: compute, communication, memory, host; null: none."),
    compute_ns=(pa.int64(), "Of its lateness: more compute than the fastest rank."),
    comm_ns=(pa.int64(), "Of its lateness: more communication (of other groups)."),
    memory_ns=(pa.int64(), "Of its lateness: more copies and sets."),
    host_ns=(pa.int64(), "Of its lateness: more idle time."),
    wait_ns=(pa.int64(), "What it waited for others itself."),
    recorded_ns=(pa.int64(), "Its recorded window: a late rank's is often the shortest."),
)


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
    what the others wait. What began before some rank's recording is blamed on nobody, nor is what
    the recording of some rank does not hold, as of a file that was cut; nor is a rank that
    collectives of other groups held up for most of that time: `slow_links` tells whether a link is
    slow, and whom it waited for is late there.
    """
    matches = aligned_matches if align else collective_matches
    blames = blame(collectives, matches, activities)
    rows, matched, blamed, excess = blames.rows, blames.matched, blames.blamed, blames.excess
    late, held_up = blames.lateness, blames.held_up
    common = blames.on_all_ranks
    taken = np.flatnonzero(matched)
    ranks = Groups.by_keys(rows.rank[taken])

    def summed(values: Ints, chosen: np.ndarray) -> Ints:
        return ranks.sum(np.where(chosen, values, 0)[taken])

    fair = ~truths(matches["before_window"]) & common
    last = (numbers(matches["last_rank"], -1) == rows.rank) & fair
    sums = np.stack([summed(column, blamed) for column in excess.T], axis=1)
    cost = summed(blames.cost, blamed)
    lateness = summed(late, blamed)
    most = np.where(sums.max(axis=1, initial=0) > 0, sums.argmax(axis=1), -1)
    rank = ranks.keys.ravel()
    columns = {
        "rank": number(rank, pa.int32(), rank >= 0),
        "collectives": number(ranks.count, pa.int64()),
        "arrived_last": number(summed(last.astype(np.int64), last), pa.int64()),
        "times_blamed": number(summed(blamed.astype(np.int64), blamed), pa.int64()),
        "cost_to_others_ns": number(cost, pa.int64()),
        "lateness_ns": number(lateness, pa.int64()),
        "held_up_ns": number(summed(late, held_up), pa.int64()),
        "late_in": text(most, pa.array(["compute", "communication", "memory", "host"])),
        "wait_ns": number(summed(numbers(matches["wait_ns"]), matched), pa.int64()),
        "recorded_ns": _recorded(rank, rank_windows),
    }
    for k, name in enumerate((*KINDS, "host")):
        columns[f"{name}_ns"] = number(sums[:, k], pa.int64())
    answer = pa.table([columns[f.name] for f in RETURNS], schema=RETURNS)
    order = pa.array(np.lexsort((rank, -cost)))
    facts = _facts(matches, matched, common, cost)
    return with_coverage(answer.take(order), **facts, **clock_facts(align))


def _facts(matches: pa.Table, matched: Mask, common: Mask, cost: Ints) -> dict[str, object]:
    waited = int(numbers(matches["wait_ns"], 0)[matched].sum())
    before = truths(matches["before_window"]) & matched
    return {
        "collectives": matches.num_rows,
        "matched": int(matched.sum()),
        "before_window": int(before.sum()),
        "wait_blamed_on_nobody_ns": waited - int(cost.sum()),
        "not_on_all_ranks": int((matched & ~common).sum()),
    }


def _recorded(rank: Ints, rank_windows: pa.Table) -> pa.Array:
    """Length of each rank's recorded window, over its devices and cycles."""
    whose = numbers(rank_windows["rank"], -1)
    length = numbers(rank_windows["end_ns"]) - numbers(rank_windows["start_ns"])
    total = np.array([int(length[whose == rank_id].sum()) for rank_id in rank.tolist()], np.int64)
    return number(total, pa.int64())
