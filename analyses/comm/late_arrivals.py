"""Each collective: the last rank to arrive, and how long the others waited."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    number_or_null,
    read_booleans,
    read_numbers,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, fill_none, take_or
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import BOOL, INT32, INT64, TEXT, table
from htk.quantities.measures.blame import blame_ranks
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts

RETURNS = table(
    match=(INT64, "Number of the collective over all ranks."),
    group=(TEXT, "Process group name."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    type=(TEXT, "all_reduce, all_gather, …"),
    in_bytes=(INT64, "Bytes in, of its first row."),
    members_expected=(INT32, "Ranks of the group."),
    members_present=(INT32, "Ranks that it was found on."),
    last_rank=(INT32, "The rank that started last."),
    blamed_rank=(
        INT32,
        "Whom the others waited for: the most own time since the last collective; or who held up "
        "that rank in another group.",
    ),
    held_up_rank=(INT32, "The rank that was late, but held up by other groups; null: by its own."),
    lateness_ns=(INT64, "The late rank's own time, less the smallest; null at the first one."),
    wait_total_ns=(INT64, "What all ranks waited."),
    wait_ns_max=(INT64, "What the first one waited."),
    span_ns=(INT64, "Last end less last start; null where ranks are not recorded."),
    wait_ns_sigma=(INT64, "Standard deviation of the first one's wait that the clocks leave."),
    start_ns=(INT64, "Start on the rank that started last, as recorded."),
    aligned_start_ns=(INT64, "The same on the common clock: the latest start."),
    before_window=(BOOL, "Began before the recording of some rank: blamed on nobody."),
)


@analysis(
    returns=RETURNS, chart=Bar("match", "wait_total_ns", "blamed_rank"), needs=("collectives",)
)
def late_arrivals(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    own_times: Later,
    *,
    n: Annotated[int, "Rows to show, costliest first; 0: all."] = 20,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """In which collectives did ranks wait longest, and for whom?

    A rank that collectives of other groups held up for most of its time is not blamed: whoever was
    late to the one that it waited in longest is, and so on to the first cause.
    """
    matches = aligned_matches if align else collective_matches
    calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
    chosen = np.flatnonzero(calls.waits.has_wait)
    members = Groups.by_keys(calls.match[chosen])
    first = chosen[members.first_row]
    wait = calls.waits.wait[chosen]
    straggler = fill_none(len(members))
    blames = blame_ranks(calls, own_times)
    blamed = (blames.late & blames.on_all_ranks)[chosen]
    straggler[members.group_ids[blamed]] = chosen[blamed]
    rank = np.append(calls.rows.rank, -1)
    who = rank[take_or(blames.cause, straggler)]
    late = np.where(take_or(blames.held_up, straggler, False), rank[straggler], -1)
    by = take_or(read_numbers(calls.matches["lateness_ns"], NONE), straggler)
    last = calls.waits.last_rank[first]
    span = calls.waits.span[first]
    total = members.sum(wait)
    aligned = calls.rows.start + calls.correction
    latest = _find_largest_rows(members, chosen, aligned[chosen])
    longest = _find_largest_rows(members, chosen, calls.waits.wait[chosen])
    sigma = read_numbers(calls.matches["wait_ns_sigma"], NONE)
    columns = {
        "match": build_numbers(calls.match[first], INT64),
        "group": calls.table["group"].take(pa.array(first)),
        "group_ranks": calls.table["group_ranks"].take(pa.array(first)),
        "type": calls.table["type"].take(pa.array(first)),
        "in_bytes": calls.table["in_bytes"].take(pa.array(first)),
        "members_expected": calls.matches["members_expected"].take(pa.array(first)),
        "members_present": calls.matches["members_present"].take(pa.array(first)),
        "last_rank": number_or_null(last, INT32),
        "blamed_rank": number_or_null(who, INT32),
        "held_up_rank": number_or_null(late, INT32),
        "lateness_ns": number_or_null(by, INT64),
        "wait_total_ns": build_numbers(total, INT64),
        "wait_ns_max": build_numbers(members.max(wait), INT64),
        "span_ns": number_or_null(span, INT64),
        "wait_ns_sigma": number_or_null(sigma[longest], INT64),
        "start_ns": build_numbers(calls.rows.start[latest], INT64),
        "aligned_start_ns": build_numbers(aligned[latest], INT64),
        "before_window": build_booleans(read_booleans(calls.matches["before_window"])[first]),
    }
    answer = pa.table(columns, schema=RETURNS)
    order = order_by(-read_numbers(answer["wait_total_ns"]))
    answer = answer.take(pa.array(order[:n] if n else order))
    return with_coverage(answer, **clock_facts(align))


def _find_largest_rows(members: Groups, rows: Ints, values: Ints) -> Ints:
    """Return the row with the largest value of each group."""
    order = order_by(members.group_ids, values)
    return rows[order][np.cumsum(members.count) - 1] if len(rows) else rows
