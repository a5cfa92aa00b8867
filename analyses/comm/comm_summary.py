"""Collectives added up."""

from collections import Counter
from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, codes_of, decode_texts, mark_valid, read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import FLOAT64, INT32, INT64, STRING, TEXT, table
from htk.physics.detected import list_devices
from htk.physics.link_rates import group_gbps, scale_up_gbps
from htk.quantities.measures.breakdown import build_percent
from htk.quantities.measures.collective_calls import CollectiveCalls, find_group_scopes, match_facts
from htk.quantities.measures.comm_split import split_of
from htk.quantities.measures.node_traffic import node_traffic

RETURNS = table(
    type=(TEXT, "all_reduce, all_gather, …"),
    group=(TEXT, "Process group name."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    group_size=(INT32, "Number of its ranks."),
    scope=(TEXT, "Within a node or across nodes, where hosts are known."),
    size_from_bytes=(INT64, "Smallest size of the bucket, as bandwidth counts it; null: unknown."),
    size_to_bytes=(INT64, "Largest size of the bucket."),
    count=(INT64, "Calls, of all ranks."),
    collectives=(INT64, "Collectives: calls of several ranks that are one count once."),
    in_bytes=(INT64, "Bytes in, of all ranks."),
    within_node_bytes=(INT64, "Bytes sent to ranks of the same node."),
    across_nodes_bytes=(INT64, "Bytes sent to other nodes; a ring enters each node once."),
    comm_ns=(INT64, "Sum of durations, of all ranks."),
    shared_ns=(INT64, "The same, where an instant with several of a device active is shared."),
    exposed_ns=(INT64, "Of that: no compute ran on the device."),
    wait_ns=(INT64, "Waiting for other ranks, in matched ones."),
    transfer_ns=(INT64, "The rest of matched ones; at least, where ranks are not recorded."),
    undetermined_ns=(INT64, "Wait or transfer, cannot be told: ranks or a match are missing."),
    exposed_pct=(FLOAT64, "Exposed, of shared time."),
    busbw_gbps_p50=(FLOAT64, "Median bus bandwidth, from last start to last end."),
    bandwidth_over=(TEXT, "all ranks; own duration: no other rank is known; or both."),
    busbw_gbps_p10=(FLOAT64, "A tenth were slower."),
    busbw_gbps_p90=(FLOAT64, "A tenth were faster."),
    duration_busbw_gbps_p50=(FLOAT64, "Median bus bandwidth over the duration, with waiting."),
    link_pct_p50=(FLOAT64, "Median, of the GPU's links within its node (or the rate given)."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("type", ("exposed_ns", "shared_ns"), stacked=False),
    needs=("collectives",),
)
def comm_summary(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    collective_shares: Later,
    activities: Later,
    *,
    by: Annotated[
        Literal["size", "group", "type"],
        "What a row stands for: a range of sizes, a process group, or a type.",
    ] = "size",
    intra_gbps: Annotated[
        float | None, "Rate between GPUs of a node, GB/s one way; by default the GPU's."
    ] = None,
    inter_gbps: Annotated[float | None, "Rate of a node to the others, GB/s one way."] = None,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
) -> pa.Table:
    """How much is communicated, by what, how fast, and how much of it is exposed?

    Size buckets are powers of two of the bytes that bandwidth counts. Exposed and shared times add
    up to those of `time_breakdown`, summed over ranks.
    """
    matches = aligned_matches if align else collective_matches
    calls = CollectiveCalls.of_one_source(collectives, matches, ranks)
    size, factor = calls.moved
    bucket = np.where(np.isnan(size), NONE, np.log2(np.maximum(np.nan_to_num(size), 1)).astype(int))
    scope = find_group_scopes(calls)
    scope_codes, scope_names = codes_of(scope)
    keys = np.column_stack([calls.rows.type, calls.rows.group, calls.size, scope_codes, bucket])
    keys = keys.astype(np.int64)
    if by != "size":
        keys[:, 4] = NONE
    if by == "type":
        keys[:, 1:4] = NONE
    groups = Groups.by_keys(keys)
    split = split_of(calls, align, collective_shares, activities)
    first = pa.array(groups.first_row)
    has_size = groups.keys[:, 4] >= 0
    low = np.left_shift(1, np.maximum(groups.keys[:, 4], 0))
    within, across = node_traffic(calls)
    sums = {
        "count": groups.count,
        "collectives": _count_distinct(calls, groups),
        "in_bytes": groups.sum(read_numbers(calls.table["in_bytes"], 0)),
        "within_node_bytes": groups.sum(np.maximum(within, 0)),
        "across_nodes_bytes": groups.sum(np.maximum(across, 0)),
        "comm_ns": groups.sum(np.maximum(calls.duration, 0)),
        "shared_ns": _sum_by_group(groups, split.rows, split.shared),
        "exposed_ns": _sum_by_group(groups, split.rows, split.exposed),
        "wait_ns": groups.sum(calls.waits.wait),
        "transfer_ns": groups.sum(calls.waits.transfer),
        "undetermined_ns": groups.sum(calls.undetermined),
    }
    known_by = {
        "in_bytes": groups.max(mark_valid(calls.table["in_bytes"]).astype(np.int64)) > 0,
        "within_node_bytes": (split_known := groups.min(within) >= 0),
        "across_nodes_bytes": split_known,
        "comm_ns": groups.max((calls.duration >= 0).astype(np.int64)) > 0,
        "shared_ns": (on_gpu := _sum_by_group(groups, split.rows, split.on_gpu) > 0),
        "exposed_ns": on_gpu,
        "wait_ns": (waits := groups.max(calls.waits.has_wait.astype(np.int64)) > 0),
        "transfer_ns": waits,
        "undetermined_ns": groups.max(calls.rows.timed.astype(np.int64)) > 0,
    }
    columns = {
        name: build_numbers(values, INT64, known_by.get(name)) for name, values in sums.items()
    }
    columns |= {
        "type": calls.table["type"].take(first),
        **{
            name: calls.table[name].take(first) if by != "type" else _build_null_texts(groups)
            for name in ("group", "group_desc", "group_ranks")
        },
        "group_size": build_numbers(groups.keys[:, 2], INT32, groups.keys[:, 2] > 0),
        "scope": decode_texts(groups.keys[:, 3], scope_names),
        "size_from_bytes": build_numbers(low, INT64, has_size),
        "size_to_bytes": build_numbers(2 * low - 1, INT64, has_size),
        "exposed_pct": build_percent(sums["exposed_ns"], sums["shared_ns"]),
        **_build_speed_columns(
            calls, groups, size * factor, _find_link_limits(calls, groups, intra_gbps, inter_gbps)
        ),
    }
    answer = pa.table(columns, schema=RETURNS)
    order = order_by(-sums["comm_ns"])
    return with_coverage(answer.take(pa.array(order)), **match_facts(calls, align))


def _build_null_texts(groups: Groups) -> pa.Array:
    return decode_texts(np.full(len(groups), NONE), pa.array([], STRING))


def _sum_by_group(groups: Groups, rows: Ints, values: Ints) -> Ints:
    total = np.zeros(len(groups), np.int64)
    np.add.at(total, groups.group_ids[rows], values)
    return total


def _count_distinct(calls: CollectiveCalls, groups: Groups) -> Ints:
    """Rows without a match count each, those of one match together."""
    alone = calls.match == NONE
    return groups.distinct(np.where(alone, -2 - np.arange(len(alone)), calls.match))


def _build_speed_columns(
    calls: CollectiveCalls, groups: Groups, moved: Floats, limit: Floats
) -> dict[str, pa.Array]:
    """Bandwidth over the collectives of each row of the answer: a match counts once in each, a
    message among the sends and among the receives."""
    once = calls.match == NONE
    matched = np.flatnonzero(~once)
    in_rows = Groups.by_keys([groups.group_ids[matched], calls.match[matched]])
    once[matched[in_rows.first_row]] = True
    columns = {}
    span = _compute_quantiles(groups, once, moved, calls.span)
    for name, values in zip(("p10", "p50", "p90"), span, strict=True):
        columns[f"busbw_gbps_{name}"] = build_numbers(values, FLOAT64, ~np.isnan(values))
    over_duration = _compute_quantiles(groups, np.ones(len(once), bool), moved, calls.duration)[1]
    columns["duration_busbw_gbps_p50"] = build_numbers(
        over_duration, FLOAT64, ~np.isnan(over_duration)
    )
    share = 100 * span[1] / limit
    columns["bandwidth_over"] = _bandwidth_over(calls, groups, once, moved)
    columns["link_pct_p50"] = build_numbers(share, FLOAT64, ~np.isnan(share))
    return columns


def _bandwidth_over(
    calls: CollectiveCalls, groups: Groups, chosen: Mask, moved: Floats
) -> pa.Array:
    """Return what the times are that bandwidth counts: of all ranks, or one rank's duration."""
    rows = np.flatnonzero(chosen & (np.nan_to_num(moved) > 0) & (calls.span > 0))
    seen = np.zeros((len(groups), 2), np.int64)
    np.add.at(seen, (groups.group_ids[rows], calls.over_all_ranks[rows].astype(np.int64)), 1)
    basis = np.where(
        seen[:, 1] > 0, np.where(seen[:, 0] > 0, 2, 0), np.where(seen[:, 0] > 0, 1, NONE)
    )
    return decode_texts(basis, pa.array(["all ranks", "own duration", "both"]))


def _compute_quantiles(groups: Groups, chosen: Ints, moved: Floats, time: Ints) -> list[Floats]:
    out = [np.full(len(groups), np.nan) for _ in range(3)]
    rows = np.flatnonzero(chosen & ~np.isnan(moved) & (time > 0) & (np.nan_to_num(moved) > 0))
    if len(rows):
        speed = moved[rows] / time[rows]
        chosen_groups = Groups.by_keys(groups.group_ids[rows])
        for index, values in enumerate(chosen_groups.quantiles(speed, [0.1, 0.5, 0.9])):
            out[index][chosen_groups.keys.ravel()] = values
    return out


def _find_link_limits(
    calls: CollectiveCalls, groups: Groups, intra_gbps: float | None, inter_gbps: float | None
) -> Floats:
    """Link limit of each row's group (NaN: unknown): links, over nodes a share of the adapters."""
    recorded = list_devices(calls.ranks)
    rates = [d.gpu.scale_up_gbps if d.gpu else scale_up_gbps(d.name) for d in recorded]
    named = [rate for rate in rates if rate]
    rate = intra_gbps or min(named, default=None)
    hosts = calls.hosts.of_rank
    limits = np.full(len(groups), np.nan)
    for k, first in enumerate(groups.first_row.tolist()):  # a few rows
        members = calls.members(first) or ()
        there = Counter(hosts.get(rank) for rank in members)
        if intra_gbps is not None and inter_gbps is None:
            limit: float | None = intra_gbps
        elif None in there or not there:
            limit = None
        elif len(there) == 1:
            limit = rate
        else:
            limit = group_gbps(rate, inter_gbps, max(there.values()), calls.hosts.per_node)
        limits[k] = np.nan if limit is None or groups.keys[k, 2] == NONE else limit
    return limits
