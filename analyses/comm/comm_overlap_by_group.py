"""How much of each group's communication hides behind compute."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, codes_of, number_or_null, rank_alphabetically
from htk.base.columns.groups import Groups
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import TWO_ROUNDS
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.collective_calls import CollectiveCalls, match_facts
from htk.quantities.measures.comm_split import split_of

RETURNS = table(
    rank=(INT32, "Global rank."),
    group=(TEXT, "Process group name; null where the trace names none."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    group_size=(INT32, "Number of its ranks."),
    type=(TEXT, "all_reduce, all_gather, …"),
    count=(INT64, "Calls."),
    comm_ns=(INT64, "Sum of durations."),
    shared_ns=(INT64, "The same, where an instant with several active is shared between them."),
    exposed_ns=(INT64, "Of that: no compute ran."),
    overlap_pct=(FLOAT64, "Behind compute, of shared time."),
    exposed_wait_ns=(INT64, "Exposed, and waiting for other ranks."),
    exposed_transfer_ns=(INT64, "Exposed, and transferring."),
    exposed_undetermined_ns=(INT64, "Exposed; waiting or transferring, cannot be told."),
    transfer_overlap_pct=(
        FLOAT64,
        "Transfer behind compute, of all transfer; null where most cannot be told from waiting.",
    ),
)


@analysis(
    returns=RETURNS,
    chart=Bar("group", ("exposed_wait_ns", "exposed_transfer_ns", "exposed_undetermined_ns")),
    needs=("collectives",),
    null_without={
        "kernels": (
            "shared_ns",
            "exposed_ns",
            "exposed_wait_ns",
            "exposed_transfer_ns",
            "exposed_undetermined_ns",
        )
    },
    spread=TWO_ROUNDS,
)
def comm_overlap_by_group(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    collective_shares: Later,
    activities: Later,
    *,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """Which group's communication hides behind compute, and which is exposed?

    Rows of a rank add up to its communication and exposed communication of `time_breakdown`.
    """
    matches = aligned_matches if align else collective_matches
    calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
    split = split_of(calls, align, collective_shares, activities)
    rows = split.rows
    name = rank_alphabetically(*codes_of(calls.table["group"]))
    key = np.column_stack([calls.rows.rank, name, calls.rows.group, calls.rows.type])
    groups = Groups.by_keys(key[rows].astype(np.int64))
    first = pa.array(rows[groups.first_row])
    size = calls.size[rows[groups.first_row]]
    transfer = groups.sum(split.transfer)
    shared = groups.sum(split.shared)
    exposed = groups.sum(split.exposed)
    moving = groups.sum(split.exposed_transfer)
    determined = transfer * (groups.sum(split.undetermined) <= transfer)
    columns = {
        "rank": number_or_null(groups.keys[:, 0], INT32),
        "group": calls.table["group"].take(first),
        "group_desc": calls.table["group_desc"].take(first),
        "group_ranks": calls.table["group_ranks"].take(first),
        "group_size": build_numbers(size, INT32, size > 0),
        "type": calls.table["type"].take(first),
        "count": build_numbers(groups.count, INT64),
        "comm_ns": build_numbers(groups.sum(calls.duration[rows]), INT64),
        "shared_ns": build_numbers(shared, INT64),
        "exposed_ns": build_numbers(exposed, INT64),
        "overlap_pct": build_percent(shared - exposed, shared),
        "exposed_wait_ns": build_numbers(groups.sum(split.exposed_wait), INT64),
        "exposed_transfer_ns": build_numbers(moving, INT64),
        "exposed_undetermined_ns": build_numbers(groups.sum(split.exposed_undetermined), INT64),
        "transfer_overlap_pct": build_percent(transfer - moving, determined),
    }
    answer = pa.table(columns, schema=RETURNS)
    return with_coverage(answer, **match_facts(calls, align))
