"""The profiler's collectives with what NCCL's own records know of them."""

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_texts,
    codes_of,
    match_texts,
    number_or_null,
    read_booleans,
    read_numbers,
)
from htk.base.core.analysis import analysis, with_coverage
from htk.base.errors import MissingTable
from htk.base.schema import BOOL, INT32, INT64, TEXT, table
from htk.quantities.derived.nccl_pairs import PROFILER

RETURNS = table(
    rank=(INT32, "Global rank."),
    event=(INT64, "Row of the event in its rank's trace."),
    group=(TEXT, "Process group name."),
    type=(TEXT, "all_reduce, all_gather, …"),
    in_bytes=(INT64, "Bytes in."),
    start_ns=(INT64, "Start, as the profiler says."),
    duration_ns=(INT64, "Duration, as the profiler says."),
    joined_by=(TEXT, "How the other record was found: time, order, sequence, or type and size."),
    guessed=(BOOL, "It may be another call's: order alone tells which it is."),
    facts_from=(TEXT, "Who knows: inspector, profiler_plugin, nccl_debug, …"),
    communicator=(TEXT, "NCCL's hash of the communicator."),
    seq=(INT64, "Sequence number in that record."),
    source_duration_ns=(INT64, "Duration, as that record says."),
    algorithm=(TEXT, "RING, TREE, …"),
    protocol=(TEXT, "LL, LL128, SIMPLE."),
    channels=(INT32, "Channels used."),
    channel_ns_min=(INT64, "Shortest time of a channel."),
    channel_ns_max=(INT64, "Longest time of a channel."),
)


@analysis(returns=RETURNS, needs=("collectives",))
def comm_sources(collectives: pa.Table, collective_facts: pa.Table) -> pa.Table:
    """Which algorithm, protocol and channels did each collective use, as NCCL's records say?

    Inspector, plugin and debug-log records are attached to the profiler's collectives by rank,
    group, type, bytes and order, and by time where that clock is real (Inspector stamps most lines
    when it writes them, debug logs have no time); the sequence numbers of a collective's ranks must
    agree. What order alone tells is a guess. Type and size alone give algorithm and protocol where
    all such calls have the same. Coverage tells the share that was found.
    """
    ours = match_texts(collectives["source"], PROFILER.__eq__)
    by, by_names = codes_of(collective_facts["joined_by"])
    chosen = np.flatnonzero(ours & (by >= 0))
    rows = pa.array(chosen)
    joined = collectives.take(rows)
    facts = collective_facts.take(rows)
    length = read_numbers(joined["end_ns"], -1) - read_numbers(joined["start_ns"], 0)
    hashes = facts["comm_hash"].to_pylist()
    columns = {
        "duration_ns": number_or_null(length, INT64),
        "communicator": build_texts([f"{h:#x}" if h else None for h in hashes]),
    }
    columns |= {n: joined[n] for n in ("rank", "event", "group", "type", "in_bytes", "start_ns")}
    columns |= {n: facts[n] for n in facts.column_names if n in RETURNS.names and n not in columns}
    answer = pa.table(columns, schema=RETURNS)
    total = int(ours.sum())
    if total == collectives.num_rows:
        raise MissingTable(
            "only the profiler's collectives were recorded: put NCCL's records beside the trace "
            "(NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,COLL,TUNING, NCCL Inspector or a plugin)"
        )
    ways = {n: int((by[ours] == k).sum()) for k, n in enumerate(by_names.to_pylist()) if n}
    joined_pct = round(100 * len(chosen) / total, 1) if total else None
    return with_coverage(
        answer,
        profiler_collectives=total,
        joined=len(chosen),
        joined_pct=joined_pct,
        joined_by=ways,
        guessed=int(read_booleans(collective_facts["guessed"]).sum()),
    )
