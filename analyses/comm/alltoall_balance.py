"""How evenly all-to-alls spread their bytes."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, mark_valid, number_or_null, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Floats, Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.breakdown import build_ratio
from htk.quantities.measures.collective_calls import (
    CollectiveCalls,
    build_bandwidth,
    clock_facts,
    size_facts,
)

RETURNS = table(
    match=(INT64, "Number of the collective over all ranks; null: one rank's call, unmatched."),
    rank=(INT32, "The rank of an unmatched call."),
    group=(TEXT, "Process group name."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    members_present=(INT32, "Ranks that it was found on."),
    sent_bytes=(INT64, "Bytes sent by all of them."),
    sent_bytes_max=(INT64, "By the one that sends most."),
    send_imbalance=(FLOAT64, "Most over mean: 1 is even."),
    heaviest_sender=(INT32, "Who sends most."),
    received_bytes_max=(INT64, "By the one that receives most."),
    receive_imbalance=(FLOAT64, "Most over mean: 1 is even."),
    heaviest_receiver=(INT32, "Who receives most."),
    peer_imbalance=(FLOAT64, "Largest part to one peer over the mean part, of the worst rank."),
    wait_ns=(INT64, "What all ranks waited in it."),
    span_ns=(INT64, "Last end less last start."),
    busbw_gbps=(FLOAT64, "Bus bandwidth of the rank that moves most."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("match", ("send_imbalance", "receive_imbalance"), stacked=False),
    needs=("collectives",),
)
def alltoall_balance(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    *,
    n: Annotated[int, "Rows to show, most uneven first; 0: all."] = 20,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """How uneven are the all-to-alls: who sends or receives most, and by how much?"""
    matches = aligned_matches if align else collective_matches
    calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
    rows = np.flatnonzero(calls.rows.is_type("all_to_all"))
    alone = calls.match[rows] == -1
    groups = Groups.by_keys(np.where(alone, -2 - rows, calls.match[rows]))
    first = rows[groups.first_row]
    rank = calls.rows.rank[rows]
    sent = read_numbers(calls.table["in_bytes"], 0)[rows]
    received = read_numbers(calls.table["out_bytes"], 0)[rows]
    both = mark_valid(calls.table["in_bytes"])[rows] & mark_valid(calls.table["out_bytes"])[rows]
    complete = groups.min(both.astype(np.int64)) > 0
    most_sent = groups.max(sent)
    most_received = groups.max(received)
    size, factor = calls.moved
    span = np.where(calls.match[first] == -1, -1, calls.span[first])
    peers = _peer_imbalance(calls, rows, groups)
    lone = alone[groups.first_row]
    columns = {
        "match": build_numbers(calls.match[first], INT64, ~lone),
        "rank": build_numbers(calls.rows.rank[first], INT32, lone),
        "group": calls.table["group"].take(pa.array(first)),
        "group_ranks": calls.table["group_ranks"].take(pa.array(first)),
        "members_present": build_numbers(groups.count, INT32),
        "sent_bytes": build_numbers(groups.sum(sent), INT64, complete),
        "sent_bytes_max": build_numbers(most_sent, INT64, complete),
        "send_imbalance": build_ratio(
            most_sent * groups.count * complete, groups.sum(sent) * complete
        ),
        "heaviest_sender": build_numbers(_find_heaviest_rank(groups, sent, rank), INT32, complete),
        "received_bytes_max": build_numbers(most_received, INT64, complete),
        "receive_imbalance": build_ratio(
            most_received * groups.count * complete, groups.sum(received) * complete
        ),
        "heaviest_receiver": build_numbers(
            _find_heaviest_rank(groups, received, rank), INT32, complete
        ),
        "peer_imbalance": build_numbers(peers, FLOAT64, ~np.isnan(peers)),
        "wait_ns": build_numbers(groups.sum(calls.waits.wait[rows]), INT64, ~lone),
        "span_ns": number_or_null(span, INT64),
        "busbw_gbps": build_bandwidth((size * factor)[first], span),
    }
    answer = pa.table(columns, schema=RETURNS)
    uneven = [read_numbers(answer[f"{way}_imbalance"], 0.0) for way in ("send", "receive")]
    worst = np.maximum(np.maximum(*uneven), np.nan_to_num(peers))
    order = order_by(-worst)
    sizes = size_facts(calls, rows, required=False)
    shown = answer.take(pa.array(order[:n] if n else order))
    return with_coverage(shown, **sizes, **clock_facts(align))


def _find_heaviest_rank(groups: Groups, values: Ints, rank: Ints) -> Ints:
    """Return the rank with the largest value; of several the lowest."""
    order = order_by(groups.group_ids, values, -rank)
    return rank[order][np.cumsum(groups.count) - 1] if len(rank) else rank


def _peer_imbalance(calls: CollectiveCalls, rows: Ints, groups: Groups) -> Floats:
    """Return where splits are recorded: the worst rank of each collective."""
    of_row = np.full(calls.rows.length, np.nan)
    for first, alike in calls.with_splits():
        sent = calls.sent(first)
        if sent and sum(sent):
            of_row[alike] = max(sent) * len(sent) / sum(sent)
    worst = np.full(len(groups), np.nan)
    np.fmax.at(worst, groups.group_ids, of_row[rows])
    return worst
