"""Traffic between ranks: who sends how much to whom."""

import json
from collections import defaultdict
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Mask
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Heatmap
from htk.base.mappings import Fields
from htk.base.schema import FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.messages import one_row_a_message
from htk.quantities.measures.collective_calls import CollectiveCalls, clock_facts, size_facts

Pair = tuple[Any, Any]

RETURNS = table(
    from_rank=(INT32, "Sender; null per node."),
    to_rank=(INT32, "Receiver; null per node."),
    from_node=(TEXT, "Host of the sender, where known."),
    to_node=(TEXT, "Host of the receiver, where known."),
    transfers=(INT64, "Messages, and parts of an all-to-all."),
    sent_bytes=(INT64, "Bytes from one to the other."),
    transfer_ns=(
        INT64,
        "Their time, from last start to last end; of an all-to-all in proportion to bytes.",
    ),
    undetermined_ns=(INT64, "Wait or transfer, cannot be told: ranks or a match are missing."),
    bandwidth_gbps=(FLOAT64, "Bytes over transfer; null where some of that is undetermined."),
)


@analysis(
    returns=RETURNS, chart=Heatmap("to_rank", "from_rank", "sent_bytes"), needs=("collectives",)
)
def comm_matrix(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    *,
    per: Annotated[
        Literal["rank", "node"], "What a row covers: a pair of ranks, or of nodes."
    ] = "rank",
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """Which ranks (or nodes) send how much to each other, point to point and in all-to-alls?

    A message counts once: as its sender recorded it, or as the receiver did where the sender's
    record is missing. An all-to-all without splits is even if a rank sends what it receives;
    else who sends how much to whom is not recorded, and it is left out and counted. What a rank
    keeps does not count.
    """
    matches = aligned_matches if align else collective_matches
    calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
    totals: dict[tuple[int, int], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    sizes = size_facts(calls, _between_pairs(calls))
    left_out = _add_messages(calls, totals) + _add_exchanges(calls, totals)
    hosts = calls.hosts.of_rank
    rows = _per_node(totals, hosts) if per == "node" else _per_rank(totals, hosts)
    answer = pa.Table.from_pylist(rows, schema=RETURNS)
    return with_coverage(
        answer, calls_left_out=left_out, **sizes, **calls.hosts.facts(), **clock_facts(align)
    )


def _between_pairs(calls: CollectiveCalls) -> Mask:
    """Return which calls are messages or all-to-alls."""
    rows = calls.rows
    return rows.is_type("send", "recv", "send_recv", "all_to_all")


def _add_messages(calls: CollectiveCalls, totals: dict[tuple[int, int], list[int]]) -> int:
    """Add sends, and receives whose send was not recorded, to the totals; return how many are left
    out. Messages of one call move at the same time: each takes its time."""
    table, call = one_row_a_message(calls.table)
    rows = CollectiveRows(table)
    sends = rows.is_type("send")
    met = calls.has_partner[call]
    wanted = sends | (rows.is_type("recv") & ~met)
    size = np.maximum(read_numbers(table["in_bytes"], NONE), read_numbers(table["out_bytes"], NONE))
    good = wanted & (rows.peer >= 0) & (size >= 0)
    own = np.flatnonzero(good)
    rank = rows.rank[own]
    peer = rows.peer[own]
    out = sends[own]
    pairs = Groups.by_keys([np.where(out, rank, peer), np.where(out, peer, rank)])
    sums = (
        pairs.count,
        pairs.sum(size[own]),
        pairs.sum(np.maximum(calls.waits.span, 0)[call[own]]),
        pairs.sum(calls.undetermined[call[own]]),
    )
    for (a, b), *values in zip(pairs.keys.tolist(), *(s.tolist() for s in sums), strict=True):
        for k, value in enumerate(values):
            totals[a, b][k] += value
    return int(wanted.sum() - good.sum()) + int(_mark_unlisted(rows).sum())


def _mark_unlisted(rows: CollectiveRows) -> Mask:
    """Return the calls that move messages of which no record says any more."""
    return rows.is_type("send_recv")


def _add_exchanges(calls: CollectiveCalls, totals: dict[tuple[int, int], list[int]]) -> int:
    """Add all-to-alls, equal ones of one rank at once; return how many are left out."""
    rows = np.flatnonzero(calls.rows.is_type("all_to_all"))
    split, _ = codes_of(calls.table["in_split"])
    size = read_numbers(calls.table["in_bytes"], NONE)
    key = np.column_stack([calls.rows.rank, calls.rows.group, split, size])[rows].astype(np.int64)
    alike = Groups.by_keys(key)
    spent = alike.sum(calls.waits.transfer[rows])
    unknown = alike.sum(calls.undetermined[rows])
    left_out = 0
    for k, first in enumerate(rows[alike.first_row].tolist()):
        sent = calls.sent(first)
        members = _list_members(calls, first)
        if sent is None or members is None or len(sent) != len(members):
            left_out += int(alike.count[k])
            continue
        rank = int(calls.rows.rank[first])
        total_sent = max(sum(sent), 1)
        for peer, part in zip(members, sent, strict=True):
            if peer == rank:
                continue
            total = totals[rank, peer]
            total[0] += int(alike.count[k])
            total[1] += part * int(alike.count[k])
            total[2] += int(spent[k]) * part // total_sent
            total[3] += int(unknown[k]) * part // total_sent
    return left_out


def _list_members(calls: CollectiveCalls, row: int) -> tuple[int, ...] | None:
    """Return the ranks of a row's group (None: unknown): all ranks where they are not recorded but
    the group takes in all."""
    recorded = calls.members(row)
    size = int(calls.size[row])
    everyone = recorded is None and size > 0 and calls.rows.group_size[row] < 0
    return tuple(range(size)) if everyone else recorded


def _per_rank(totals: dict[tuple[int, int], list[int]], hosts: dict[int, str]) -> list[Fields]:
    return [
        {"from_rank": a, "to_rank": b, "from_node": hosts.get(a), "to_node": hosts.get(b)}
        | _build_measures(total)
        for (a, b), total in sorted(totals.items())
    ]


def _per_node(totals: dict[tuple[int, int], list[int]], hosts: dict[int, str]) -> list[Fields]:
    nodes: dict[Pair, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for (a, b), total in totals.items():
        for k, value in enumerate(total):
            nodes[hosts.get(a), hosts.get(b)][k] += value
    ordered = sorted(nodes.items(), key=lambda item: json.dumps(item[0]))
    return [{"from_node": a, "to_node": b} | _build_measures(total) for (a, b), total in ordered]


def _build_measures(total: list[int]) -> Fields:
    count, size, time, undetermined = total
    return {
        "transfers": count,
        "sent_bytes": size,
        "transfer_ns": time if time > 0 else None,
        "undetermined_ns": undetermined,
        "bandwidth_gbps": size / time if time > 0 and not undetermined else None,
    }
