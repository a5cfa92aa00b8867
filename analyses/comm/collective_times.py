"""Every collective of every rank."""

from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import build_numbers, decode_texts, mark_valid, number_or_null
from htk.base.columns.types import NONE, Floats, Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import TimelineChart
from htk.base.core.spread import TWO_ROUNDS
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.measures.collective_calls import (
    CollectiveCalls,
    build_bandwidth,
    find_group_scopes,
    match_facts,
    only_source,
    with_nccl_facts,
)
from htk.quantities.measures.node_traffic import node_traffic

RETURNS = table(
    rank=(INT32, "Global rank; rank of the communicator where the source knows no other."),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream."),
    source=(TEXT, "Who recorded it: kineto, flight_recorder, inspector, …"),
    event=(INT64, "Row of the event in its rank's trace."),
    match=(INT64, "Number of the collective over all ranks; null: unmatched."),
    group=(TEXT, "Process group name."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    group_size=(INT32, "Number of its ranks."),
    scope=(TEXT, "Within a node or across nodes, where hosts are known."),
    seq=(INT64, "Sequence number."),
    type=(TEXT, "all_reduce, all_gather, reduce_scatter, broadcast, …"),
    library=(TEXT, "nccl, gloo, nvshmem, …"),
    raw_name=(TEXT, "Name as recorded."),
    dtype=(TEXT, "Element type."),
    in_bytes=(INT64, "Bytes in."),
    out_bytes=(INT64, "Bytes out."),
    root=(INT32, "Root, as rank of the group."),
    peer=(INT32, "Global rank of the peer (send, recv)."),
    algorithm=(TEXT, "RING, TREE, …: only where a source that knows says so."),
    protocol=(TEXT, "LL, LL128, SIMPLE: only where a source that knows says so."),
    start_ns=(INT64, "Start, as recorded: on the rank's own clock."),
    end_ns=(INT64, "End, as recorded."),
    aligned_start_ns=(INT64, "Start on the common clock; as recorded where none is needed."),
    aligned_end_ns=(INT64, "End on the common clock."),
    wait_ns=(INT64, "Waiting for the ranks it depends on; null where unmatched."),
    transfer_ns=(INT64, "The rest of its duration; null where unmatched."),
    undetermined_ns=(INT64, "Wait or transfer, cannot be told: ranks or a match are missing."),
    wait_ns_sigma=(INT64, "Standard deviation of the wait that the clocks leave; null: unknown."),
    reason=(TEXT, "Why wait and transfer are unknown, or known in part."),
    algbw_gbps=(FLOAT64, "Bytes over the time from the last start to the last end."),
    busbw_gbps=(FLOAT64, "The same, times the factor that makes it comparable with a link."),
    bandwidth_over=(TEXT, "all ranks, or own duration: waiting included, no other rank is known."),
    duration_busbw_gbps=(FLOAT64, "Bus bandwidth over the whole duration, waiting included."),
    within_node_bytes=(INT64, "Bytes sent to ranks of the same node: mean of the group."),
    across_nodes_bytes=(INT64, "Bytes sent to other nodes; a ring enters each node once."),
    matched_by=(TEXT, "comms_id, sequence or order."),
    guessed=(BOOL, "Its group is not recorded: matched by order and by its ends."),
    members_expected=(INT32, "Ranks of the group."),
    members_present=(INT32, "Ranks that it was found on."),
    last_rank=(INT32, "The rank that started last."),
    before_window=(BOOL, "Some rank began it before the recording of another began."),
    clock_offset_ns=(INT64, "What the alignment adds to start and end; null: it is off."),
    inferred_columns=(TEXT, "Facts taken from elsewhere than the record itself."),
)

_AS_THEY_ARE = (
    "start_ns",
    "end_ns",
    "device",
    "stream",
    "source",
    "event",
    "group",
    "group_ranks",
    "group_size",
    "seq",
    "type",
    "library",
    "raw_name",
    "dtype",
    "in_bytes",
    "out_bytes",
    "root",
    "peer",
    "algorithm",
    "protocol",
    "inferred_columns",
)
_OF_MATCH = (
    "match",
    "matched_by",
    "guessed",
    "members_expected",
    "members_present",
    "undetermined_ns",
    "clock_offset_ns",
    "wait_ns_sigma",
)


@analysis(
    returns=RETURNS,
    chart=TimelineChart("aligned_start_ns", "aligned_end_ns", "rank", "type"),
    needs=("collectives",),
    spread=TWO_ROUNDS,
)
def collective_times(
    collectives: pa.Table,
    collective_matches: pa.Table,
    aligned_matches: pa.Table,
    ranks: pa.Table,
    collective_facts: pa.Table,
    *,
    align: Annotated[bool, "Align the clocks of all ranks."] = True,
    source: Annotated[str | None, "Only what this source recorded: kineto, inspector, …"] = None,
) -> pa.Table:
    """When did each collective run on each rank, how long did it wait, how fast was it?

    wait + transfer + undetermined = duration. Wait lasts from a rank's start to the latest start of
    the ranks that it depends on. Where some of those were not recorded, transfer is what the
    network needs at least, and the rest is undetermined: wait or transfer, cannot be told.
    Bandwidth is bytes over last end less last start, in GB/s of 1e9 bytes.
    """
    named = with_nccl_facts(collectives, collective_facts)
    chosen = aligned_matches if align else collective_matches
    rows, matches = only_source(named, chosen, source)
    calls = CollectiveCalls.from_tables(rows, matches, ranks)
    waited = calls.waits
    size, factor = calls.traffic
    within, across = node_traffic(calls)
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "rank": number_or_null(calls.rows.rank, INT32),
        "scope": find_group_scopes(calls),
        "aligned_start_ns": _build_time_column(
            calls.rows.start + calls.correction, rows["start_ns"]
        ),
        "aligned_end_ns": _build_time_column(calls.rows.end + calls.correction, rows["end_ns"]),
        "wait_ns": build_numbers(waited.wait, INT64, waited.has_wait),
        "transfer_ns": build_numbers(waited.transfer, INT64, waited.has_wait),
        "reason": matches["reason"],
        "algbw_gbps": build_bandwidth(size, calls.span),
        "busbw_gbps": build_bandwidth(size * factor, calls.span),
        "bandwidth_over": _bandwidth_over(calls, size),
        "duration_busbw_gbps": build_bandwidth(size * factor, calls.duration),
        "within_node_bytes": build_numbers(within, INT64, within != NONE),
        "across_nodes_bytes": build_numbers(across, INT64, across != NONE),
        "last_rank": number_or_null(waited.last_rank, INT32),
        "before_window": matches["before_window"],
    }
    columns |= {name: rows[name] for name in _AS_THEY_ARE}
    columns |= {name: matches[name] for name in _OF_MATCH}
    answer = pa.table(columns, schema=RETURNS)
    lacking = {c: rows[c].null_count for c in ("group", "in_bytes", "out_bytes", "dtype")}
    return with_coverage(
        answer,
        **match_facts(calls, align),
        not_recorded={c: n for c, n in lacking.items() if n},
    )


def _bandwidth_over(calls: CollectiveCalls, size: Floats) -> pa.Array:
    """Return what the time is that bandwidth counts; null where there is no bandwidth."""
    basis = np.where(calls.over_all_ranks, 0, 1)
    defined = ~np.isnan(size) & (calls.span > 0)
    return decode_texts(np.where(defined, basis, NONE), pa.array(["all ranks", "own duration"]))


def _build_time_column(values: Ints, recorded: pa.ChunkedArray) -> pa.Array:
    return build_numbers(values, INT64, mark_valid(recorded))
