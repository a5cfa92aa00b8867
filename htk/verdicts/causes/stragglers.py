"""Which rank holds the others up, by what, and what that costs them."""

from collections.abc import Iterable
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    decode_texts,
    number_or_null,
    read_booleans,
    read_lengths,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import TWO_ROUNDS
from htk.base.mappings import Facts
from htk.base.schema import INT32, INT64, TEXT, table
from htk.quantities.derived.own_time import KINDS
from htk.quantities.derived.window_times import KindTimes
from htk.quantities.measures.blame import blame_ranks, need_waits, parts_of
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts
from htk.traces.trace.trace import Trace
from htk.verdicts.causes.changes import like_other_ranks
from htk.verdicts.causes.clocks import describe_lower_clock
from htk.verdicts.causes.replayed import Gain, replay_if_trusted

_REPLAYED = 4  # ranks, costliest first, whose lateness is taken away in a replay

RETURNS = table(
    rank=(INT32, "Global rank."),
    collectives=(INT64, "Matched collectives that it took part in."),
    arrived_last=(INT64, "Of those it started last in."),
    times_blamed=(
        INT64,
        "Collectives in which the others waited for its own time, or for ranks that it held up.",
    ),
    cost_to_others_ns=(
        INT64,
        "What all others waited in those, added up over them, behind compute of theirs or not.",
    ),
    lateness_ns=(
        INT64,
        "Its own time beyond the fastest rank's, where it is blamed; no more than all of its own "
        "time is beyond theirs.",
    ),
    held_up_ns=(
        INT64,
        "Late for other groups' collectives: slow links, late peers.",
    ),
    step_gain_ns=(
        INT64,
        "What a step gains if its kernels and its host take no longer than the others', by replay, "
        "mean over ranks; null: not replayed.",
    ),
    step_gain_ns_lo90=(INT64, "Lower end of the 90 % interval of that."),
    step_gain_ns_hi90=(INT64, "Upper end of the 90 % interval of that."),
    late_in=(TEXT, "Where most of that went: compute, communication, memory, host; null: none."),
    compute_ns=(INT64, "Of its lateness: more compute than the fastest rank."),
    comm_ns=(INT64, "Of its lateness: more communication (of other groups)."),
    memory_ns=(INT64, "Of its lateness: more copies and sets."),
    host_ns=(INT64, "Of its lateness: more idle time."),
    wait_ns=(INT64, "What it waited for others itself."),
    recorded_ns=(INT64, "Its recorded window: a late rank's is often the shortest."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", ("cost_to_others_ns", "wait_ns"), stacked=False),
    null_without={"kernels": ("compute_ns", "comm_ns", "memory_ns", "recorded_ns")},
    spread=TWO_ROUNDS,
)
def stragglers(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    own_times: Later,
    rank_window_times: pa.Table,
    *,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
    recording: Trace | None = None,
) -> pa.Table:
    """Which rank is late, in what, and how much does it cost the others?

    A rank is late at a collective by its own time since the group's previous one, less the
    smallest of the group. Its own collectives are short and its step looks short: what tells is
    what the others wait. Where collectives of other groups took most of that time, the wait is
    attributed to whom it waited for there, and so on to the first cause: `late_arrivals` names
    both. Nobody is blamed where that ends at no rank (`slow_links` tells whether a link is slow),
    for what began before some rank's recording, and for what some rank's recording does not hold,
    as of a file that was cut.
    """
    calls = CollectiveCalls.of_one_source(
        collectives, aligned_matches if align else collective_matches, ranks
    )
    need_waits(calls)
    blames = blame_ranks(calls, own_times)
    matched, common = calls.waits.has_wait, blames.on_all_ranks
    rank_of = calls.rows.rank
    taken = np.flatnonzero(matched)
    by_rank = Groups.by_keys(rank_of[taken])

    def sum_by_rank(values: Ints, chosen: np.ndarray) -> Ints:
        return by_rank.sum(np.where(chosen, values, 0)[taken])

    fair = ~read_booleans(calls.matches["before_window"]) & common
    last = (calls.waits.last_rank == rank_of) & fair
    blamed = blames.blamed
    sums = np.stack([sum_by_rank(column, blamed) for column in blames.excess.T], axis=1)
    rank = by_rank.keys.ravel()
    sums = np.minimum(sums, _own_excess(calls, own_times, rank, rank_window_times))
    cost = sum_by_rank(blames.cost, blamed)
    most = np.where(sums.max(axis=1, initial=0) > 0, sums.argmax(axis=1), -1)
    late = np.minimum(sum_by_rank(blames.lateness, blamed), sums.sum(axis=1))
    costliest = rank[order_by(-np.where(late > 0, cost, 0))][: min(_REPLAYED, (late > 0).sum())]
    gains, why = _measure_gains(recording, costliest.tolist())
    recorded = read_lengths(rank_window_times)
    columns = {
        "rank": number_or_null(rank, INT32),
        "collectives": build_numbers(by_rank.count, INT64),
        "arrived_last": build_numbers(sum_by_rank(last.astype(np.int64), last), INT64),
        "times_blamed": build_numbers(sum_by_rank(blames.collectives, blamed), INT64),
        "cost_to_others_ns": build_numbers(cost, INT64),
        "lateness_ns": build_numbers(late, INT64),
        "held_up_ns": build_numbers(sum_by_rank(blames.lateness, blames.held_up), INT64),
        "late_in": decode_texts(most, pa.array(["compute", "communication", "memory", "host"])),
        "wait_ns": build_numbers(sum_by_rank(calls.waits.wait, matched), INT64),
        "recorded_ns": build_numbers(_of_ranks(rank, rank_window_times, recorded), INT64),
    }
    for k, name in enumerate(("step_gain_ns", "step_gain_ns_lo90", "step_gain_ns_hi90")):
        of_ranks = [gains[r][k] if r in gains else None for r in rank.tolist()]
        columns[name] = pa.array(of_ranks, INT64)
    for k, name in enumerate((*KINDS, "host")):
        columns[f"{name}_ns"] = build_numbers(sums[:, k], INT64)
    answer = pa.table(columns, schema=RETURNS)
    order = pa.array(order_by(-cost, rank))
    facts = {**_collect_facts(calls, common, cost), "replay": why}
    if recording is not None and len(costliest):
        costs_most = int(costliest[0])
        if clock := describe_lower_clock(recording.tables, costs_most):
            facts["clock"] = f"rank {costs_most}: {clock}"
    return with_coverage(answer.take(order), **facts, **clock_facts(align))


def _measure_gains(recording: Trace | None, ranks: list[int]) -> tuple[dict[int, Gain], str]:
    """Return what a step gains without the lateness of each rank, and what was replayed."""
    replayed, why = replay_if_trusted(recording) if ranks else (None, "nobody is late")
    if replayed is None:
        return {}, why
    gains = {
        rank: replayed.gain((like_other_ranks(rank),))
        for rank in ranks
        if rank in replayed.model.graph.ranks
    }
    return {rank: gain for rank, gain in gains.items() if gain is not None}, why


def _own_excess(
    calls: CollectiveCalls, own_times: Later, ranks: Ints, window_times: pa.Table
) -> Ints:
    """Return of each rank its own time of each kind beyond the least of a group that it is in, all
    collectives together: who is late now and ahead later is late by no more than that. Of compute
    that is all of a rank's: others compute while they wait for it."""
    matched = np.flatnonzero(calls.waits.has_wait)
    parts = parts_of(calls, own_times)[matched]
    members = Groups.by_keys([calls.rows.group[matched], calls.rows.rank[matched]])
    group, rank = members.keys.T
    groups = Groups.by_keys(group)
    row = np.searchsorted(ranks, rank)

    def beyond_least(total: Ints) -> Ints:
        most = np.zeros(len(ranks), np.int64)
        np.maximum.at(most, row, total - groups.min(total)[groups.group_ids])
        return most

    excess = np.stack([beyond_least(members.sum(column)) for column in parts.T], axis=1)
    computed = KindTimes.from_windows(window_times).any("compute")
    in_all = beyond_least(_of_ranks(ranks, window_times, computed)[row])
    compute = KINDS.index("compute")
    excess[:, compute] = np.minimum(excess[:, compute], in_all)
    return excess


def _collect_facts(calls: CollectiveCalls, common: Mask, cost: Ints) -> dict[str, object]:
    matched = calls.waits.has_wait
    waited = int(calls.waits.wait[matched].sum())
    before = read_booleans(calls.matches["before_window"]) & matched
    return {
        "collectives": calls.rows.length,
        "matched": int(matched.sum()),
        "before_window": int(before.sum()),
        "wait_blamed_on_nobody_ns": waited - int(cost.sum()),
        "not_on_all_ranks": int((matched & ~common).sum()),
    }


def _of_ranks(ranks: Ints, windows: pa.Table, length: Ints) -> Ints:
    """Return the sum of each rank over its windows: its devices and cycles."""
    whose = read_numbers(windows["rank"], NONE)
    return np.array([int(length[whose == rank].sum()) for rank in ranks.tolist()], np.int64)


def find_most_waited_for(rows: Iterable[Facts]) -> Facts | None:
    """Return the row of the rank that costs the others most waiting; None: nobody waits."""
    worst = max(rows, key=lambda row: row["cost_to_others_ns"] or 0, default=None)
    return worst if worst is not None and worst["cost_to_others_ns"] else None
