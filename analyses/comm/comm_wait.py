"""Each rank: what it waited for others, and what others waited for it."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, read_booleans
from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import TWO_ROUNDS
from htk.base.schema import FLOAT64, INT32, INT64, table
from htk.quantities.derived.unrecorded import least_transfer_ns
from htk.quantities.measures.blame import blame_ranks
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.collective_calls import CollectiveCalls, match_facts
from htk.quantities.measures.comm_split import split_of

RETURNS = table(
    rank=(INT32, "Global rank."),
    collectives=(INT64, "Collectives with times."),
    matched=(INT64, "Of those: wait and transfer are known."),
    comm_ns=(INT64, "Sum of their durations."),
    wait_ns=(INT64, "Waiting for ranks that came later, in matched ones: time lost to others."),
    transfer_ns=(
        INT64,
        "The rest of matched ones; at least, where ranks are not recorded.",
    ),
    undetermined_ns=(INT64, "Wait or transfer, cannot be told: ranks or a match are missing."),
    wait_pct=(FLOAT64, "Wait, of the duration of matched ones; at least, where ranks are missing."),
    transfer_low_ns=(
        INT64,
        "Transfer of all, at least: of an unmatched one its bytes at the full rate of the links.",
    ),
    transfer_high_ns=(INT64, "Transfer of all, at most: of an unmatched one all of its duration."),
    arrived_last=(INT64, "Collectives that it came to last, and that all ranks' recordings hold."),
    times_blamed=(
        INT64,
        "Collectives in which the others waited for its own time, or for ranks that it held up.",
    ),
    lateness_ns=(
        INT64,
        "Its own time beyond the fastest rank's, where it is blamed, collective by collective; "
        "stragglers limits it to its excess in all.",
    ),
    cost_to_others_ns=(INT64, "What all others waited in those, added up over them."),
    exposed_wait_ns=(INT64, "Waiting while no compute ran."),
    exposed_transfer_ns=(INT64, "Transferring while no compute ran."),
    exposed_undetermined_ns=(
        INT64,
        "Waiting or transferring, cannot be told, without compute.",
    ),
    transfer_overlap_pct=(
        FLOAT64,
        "Transfer behind compute, of all transfer; null where most cannot be told from waiting.",
    ),
)


@analysis(
    returns=RETURNS,
    chart=Bar(
        "rank",
        ("wait_ns", "transfer_ns", "undetermined_ns", "cost_to_others_ns"),
        stacked=False,
    ),
    needs=("collectives",),
    null_without={"kernels": ("exposed_wait_ns", "exposed_transfer_ns", "exposed_undetermined_ns")},
    spread=TWO_ROUNDS,
)
def comm_wait(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    collective_shares: Later,
    activities: Later,
    own_times: Later,
    *,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """How long does each rank wait in collectives, and who makes the others wait?

    A late rank's collectives are short and its step looks short: it is found by its own time
    between collectives, and by what the others wait. Whom a wait is attributed to is as in
    `stragglers`: the first cause, not a rank that was held up itself; what began before some rank's
    recording is counted as wait and blamed on nobody. With one rank recorded, transfer is a
    range; where some ranks are unrecorded, what may be either is undetermined.
    """
    matches = aligned_matches if align else collective_matches
    calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
    split = split_of(calls, align, collective_shares, activities)
    timed = split.rows
    by_rank = Groups.by_keys(calls.rows.rank[timed])
    matched = calls.waits.has_wait[timed]
    blames = blame_ranks(calls, own_times)
    fair = ~read_booleans(calls.matches["before_window"])[timed] & blames.on_all_ranks[timed]
    last = (calls.waits.last_rank[timed] == calls.rows.rank[timed]) & matched & fair
    duration = calls.duration[timed]
    wait = calls.waits.wait[timed]
    transfer = calls.waits.transfer[timed]
    sums = {
        "collectives": by_rank.count,
        "matched": by_rank.sum(matched.astype(np.int64)),
        "comm_ns": by_rank.sum(duration),
        "wait_ns": by_rank.sum(wait),
        "transfer_ns": by_rank.sum(transfer),
        "undetermined_ns": by_rank.sum(calls.undetermined[timed]),
        "transfer_low_ns": by_rank.sum(np.where(matched, transfer, _at_least(calls)[timed])),
        "transfer_high_ns": by_rank.sum(
            np.where(matched, transfer + calls.waits.undetermined[timed], duration)
        ),
        "arrived_last": by_rank.sum(last.astype(np.int64)),
        "times_blamed": by_rank.sum(blames.collectives[timed]),
        "lateness_ns": by_rank.sum(np.where(blames.blamed, blames.lateness, 0)[timed]),
        "cost_to_others_ns": by_rank.sum(blames.cost[timed]),
        "exposed_wait_ns": by_rank.sum(split.exposed_wait),
        "exposed_transfer_ns": by_rank.sum(split.exposed_transfer),
        "exposed_undetermined_ns": by_rank.sum(split.exposed_undetermined),
    }
    on_gpu = by_rank.sum(split.transfer)
    matched_ns = by_rank.sum(np.where(matched, duration, 0))
    columns = {name: build_numbers(values, INT64) for name, values in sums.items()}
    columns["rank"] = build_numbers(by_rank.keys.ravel(), INT32)
    columns["wait_pct"] = build_percent(sums["wait_ns"], matched_ns)
    determined = on_gpu * (by_rank.sum(split.undetermined) <= on_gpu)
    columns["transfer_overlap_pct"] = build_percent(
        on_gpu - sums["exposed_transfer_ns"], determined
    )
    answer = pa.table(columns, schema=RETURNS)
    return with_coverage(answer, **match_facts(calls, align))


def _at_least(calls: CollectiveCalls) -> Ints:
    """Return what each call must have transferred: its bytes at the rate of its links."""
    pace = least_transfer_ns(calls.rows, calls.ranks)  # pyright: ignore[reportArgumentType]
    least = np.floor(pace).astype(np.int64)
    return np.minimum(np.maximum(calls.duration, 0), least)
