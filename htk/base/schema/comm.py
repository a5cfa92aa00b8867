"""Communication, whoever wrote it down: collectives, groups, channels, topology, benchmarks."""

import pyarrow as pa

from htk.base.schema.columns import TEXT, Column, table

_I32, _I64, _F64, _BOOL = pa.int32(), pa.int64(), pa.float64(), pa.bool_()
_U64 = pa.uint64()

_SOURCE: dict[str, Column] = {
    "rank": (_I32, "Global rank; null where the source knows only the rank in the communicator."),
    "cycle": (_I32, "Profiling cycle of the rank."),
    "source": (TEXT, "Who wrote it: kineto, flight_recorder, inspector, profiler_plugin, …"),
}
_COMM: dict[str, Column] = {
    "comm_hash": (_U64, "NCCL's hash of the communicator."),
    "comm_rank": (_I32, "Rank within the communicator."),
}

COLLECTIVES = table(
    **_SOURCE,
    event=(_I64, "Row of the GPU activity (or CPU operator) in its rank's trace, or the record."),
    op_event=(_I64, "Row of the recording CPU operator (record_param_comms, gloo:…)."),
    device=(_I32, "GPU index within the process."),
    stream=(_I64, "Stream."),
    step=(_I32, "k of the ProfilerStep#k that it was launched in."),
    group=(TEXT, "Process group name."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON; null where cut short or unknown."),
    group_size=(_I32, "Number of its ranks."),
    **_COMM,
    seq=(_I64, "Sequence number, counted as `seq_kind` says."),
    seq_kind=(TEXT, "collective, p2p, function (per function of a communicator), plan, …"),
    comms_id=(TEXT, "Comms Id: equal on all ranks of one collective."),
    type=(TEXT, "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, …"),
    raw_name=(TEXT, "Name as recorded."),
    library=(TEXT, "nccl, rccl, gloo, mpi, nvshmem, deep_ep, …"),
    dtype=(TEXT, "Element type, as recorded (several: comma-separated)."),
    out_dtype=(TEXT, "Element type out, where that is recorded too."),
    in_shapes=(TEXT, "Shapes in, compact JSON, where recorded."),
    out_shapes=(TEXT, "Shapes out, compact JSON, where recorded."),
    in_elements=(_I64, "Elements in."),
    out_elements=(_I64, "Elements out."),
    in_bytes=(_I64, "Bytes in."),
    out_bytes=(_I64, "Bytes out."),
    in_split=(TEXT, "Elements to each peer, compact JSON (all-to-all-v)."),
    out_split=(TEXT, "Elements from each peer, compact JSON (all-to-all-v)."),
    root=(_I32, "Root, as rank of the group (broadcast, reduce, gather, scatter)."),
    peer=(_I32, "Global rank of the peer (send, recv); of the communicator where `rank` is null."),
    messages=(
        TEXT,
        "Messages of a call that sends and receives several, in order, as compact JSON: "
        '[["send", peer, bytes], …]; a peer that was not recorded is null.',
    ),
    algorithm=(TEXT, "RING, TREE, NVLS, …: only where truly known."),
    protocol=(TEXT, "LL, LL128, SIMPLE: only where truly known."),
    channels=(_I32, "Channels used."),
    is_async=(_BOOL, "Asynchronous, as recorded."),
    coalesced=(TEXT, "The enclosing coalesced call or group launch, where it is a member."),
    enqueue_ns=(_I64, "When the host enqueued it."),
    start_ns=(_I64, "When it started."),
    end_ns=(_I64, "When it ended."),
    duration_ns=(_I64, "How long it ran, where only that is known."),
    timing=(TEXT, "What the times are: gpu, cpu, watchdog, none."),
    state=(TEXT, "scheduled, started, completed (flight recorder); timed_out (watchdog)."),
    retired=(_BOOL, "It left the watchdog's list."),
    timeout_ns=(_I64, "After how long the watchdog ends it."),
    inferred_columns=(TEXT, "Facts taken from elsewhere than the record itself, comma-separated."),
    frames=(TEXT, "Python stack, innermost first, one frame a line."),
)

COMM_GROUPS = table(
    **_SOURCE,
    group=(TEXT, "Process group name."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    group_size=(_I32, "Number of its ranks."),
    backend=(TEXT, "Backend."),
    comm_hash=(_U64, "NCCL's hash of the communicator."),
    nodes=(_I32, "Nodes that it spans, where recorded."),
    last_enqueued=(_I64, "Sequence number last enqueued (-1: none)."),
    last_started=(_I64, "Sequence number last started (-1: none)."),
    last_completed=(_I64, "Sequence number last completed (-1: none)."),
)

COMM_CHANNELS = table(
    **_SOURCE,
    **_COMM,
    type=(TEXT, "Collective type."),
    seq=(_I64, "Sequence number of the collective, counted per function."),
    channel=(_I32, "Channel."),
    start_ns=(_I64, "Start, on the clock that `timing` names."),
    end_ns=(_I64, "End, on the clock that `timing` names."),
    timing=(TEXT, "gpu (device clock) or cpu (observed by the host)."),
)

PROXY_STEPS = table(
    **_SOURCE,
    **_COMM,
    type=(TEXT, "Collective type, where it is known."),
    seq=(_I64, "Sequence number of the collective."),
    event=(_I64, "`event` of the record of its collective, in the same file; null: of none."),
    channel=(_I32, "Channel."),
    peer=(_I32, "Rank within the communicator at the other end."),
    name=(TEXT, "SendGpuWait, SendPeerWait, SendWait, RecvWait, …"),
    proxy_step=(_I64, "Step of the proxy, as NCCL counts."),
    size_bytes=(_I64, "Bytes moved."),
    start_ns=(_I64, "Start, since the plugin began."),
    end_ns=(_I64, "End, since the plugin began."),
)

COMM_INITS = table(
    **_SOURCE,
    **_COMM,
    group=(TEXT, "The split that it comes from, where its own hash is not logged."),
    group_size=(_I32, "Ranks of the communicator."),
    nodes=(_I32, "Nodes of the communicator."),
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    device=(_I32, "CUDA device."),
    parent_hash=(_U64, "Hash of the communicator that it was split from."),
    phase=(
        TEXT,
        "total, kernels, alloc, bootstrap, allgathers, topo, graphs, connections, rest; destroy, "
        "abort: its end.",
    ),
    duration_ns=(_I64, "Time of the phase; null: only that it was made is known."),
)

COMM_TRANSPORTS = table(
    **_SOURCE,
    **_COMM,
    group=(TEXT, "The split that it belongs to, where its own hash is not logged."),
    algorithm=(TEXT, "RING or TREE: the hop is part of one; null: a connection is made."),
    channel=(_I32, "Channel."),
    from_rank=(_I32, "Sending rank of the communicator."),
    to_rank=(_I32, "Receiving rank of the communicator."),
    transport=(TEXT, "P2P/CUMEM, SHM/direct, NET/IB/0/GDRDMA, …; null in rows of rings and trees."),
)

COMM_TUNING = table(
    **_SOURCE,
    **_COMM,
    type=(TEXT, "Collective type."),
    size_bytes=(_I64, "Bytes, as the log counts them; null in rows of the tuning table."),
    algorithm=(TEXT, "Algorithm, or the kernel of a symmetric or copy-engine call."),
    protocol=(TEXT, "Protocol."),
    channels=(_I32, "Channels."),
    time_us=(_F64, "Predicted time, or latency of the tuning table."),
    bandwidth_gbps=(_F64, "Bandwidth of the tuning table."),
)

COMM_NOTES = table(
    **_SOURCE,
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    device=(_I32, "GPU index within the process."),
    level=(TEXT, "WARN, TRAIL (of a WARN), STATE, DIED, ENDED, WAITS, HEALTH, NO_ANSWER, …"),
    text=(TEXT, "What it says."),
    time_ns=(_I64, "When, on the host's wall clock, read as UTC where no time zone is written."),
    offset=(_I64, "Byte offset in the file."),
)

PYTHON_STACKS = table(
    **_SOURCE,
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    thread=(TEXT, "Thread, as the tool names it."),
    thread_name=(TEXT, "Name of the thread."),
    state=(TEXT, "active, idle, …; of an exception: the exception."),
    frames=(TEXT, "Python stack, innermost first, one frame a line."),
    offset=(_I64, "Byte offset in the file."),
    time_ns=(_I64, "When it was taken, by the file's name or the line, as in `comm_notes`."),
)

LOG_LINES = table(
    **_SOURCE,
    file=(TEXT, "The file."),
    reading=(TEXT, "read; skipped: of a known format, nothing to ask for; unknown."),
    lines=(_I64, "Lines."),
)

BENCH_POINTS = table(
    source=(TEXT, "Who wrote it: nccl_tests, inspector_prometheus."),
    file=(TEXT, "The file."),
    type=(TEXT, "Collective type."),
    group_size=(_I32, "Ranks."),
    nodes=(_I32, "Hosts."),
    size_bytes=(_I64, "Size, as nccl-tests counts it."),
    count=(_I64, "Elements passed to NCCL."),
    dtype=(TEXT, "Element type."),
    redop=(TEXT, "Reduction."),
    root=(_I32, "Root (-1: none)."),
    in_place=(_BOOL, "In place."),
    time_us=(_F64, "Average time."),
    time_us_min=(_F64, "Fastest iteration, where recorded."),
    time_us_max=(_F64, "Slowest iteration, where recorded."),
    algbw_gbps=(_F64, "Algorithm bandwidth, recomputed from size and time."),
    busbw_gbps=(_F64, "Bus bandwidth, recomputed from size and time."),
    algorithm=(TEXT, "Algorithm, where recorded."),
    protocol=(TEXT, "Protocol, where recorded."),
    wrong=(_I64, "Wrong elements; null where unchecked."),
    inferred_columns=(TEXT, "Columns of this row that are inferred, not recorded."),
)

LINK_SAMPLES = table(
    **_SOURCE,
    host=(TEXT, "Host, as the exporter names it."),
    device=(_I32, "GPU index on the host, of links of a GPU."),
    port=(TEXT, "Adapter and port, or the GPU's device."),
    link=(TEXT, "nvlink, pcie, infiniband, ethernet."),
    direction=(TEXT, "sent or received."),
    metric=(TEXT, "Name of the metric."),
    time_ns=(_I64, "When it was scraped; null: not said."),
    bytes_per_s=(_F64, "Rate, of metrics that are rates."),
    total_bytes=(_I64, "Total since the counter's start, of metrics that count."),
)

COMM_COUNTS = table(
    **_SOURCE,
    **_COMM,
    group_size=(_I32, "Ranks of the communicator."),
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    device=(_I32, "CUDA device."),
    type=(TEXT, "Collective type; null for a rank that did not answer."),
    count=(_I64, "Collectives of that type that it has enqueued."),
    status=(TEXT, "What is wrong with the rank; null: nothing."),
)

# Made from those, over all ranks.

COLLECTIVE_MATCHES = table(
    match=(_I64, "Number of the collective that several ranks took part in; null: unmatched."),
    matched_by=(TEXT, "How that was found: comms_id, sequence, order."),
    guessed=(_BOOL, "Its group is not recorded: matched by order and by the times of its ends."),
    reason=(TEXT, "Why wait and transfer are unknown, or known in part."),
    members_expected=(_I32, "Ranks of its group, where recorded."),
    members_present=(_I32, "Ranks that it was found on."),
    clock_offset_ns=(_I64, "What was added to the rank's times; null: they are its own clock's."),
    wait_ns_sigma=(_I64, "Standard deviation of the wait that the clocks leave; null: unknown."),
    common_start_ns=(_I64, "Latest start over the ranks that this rank depends on."),
    wait_ns=(_I64, "From its start to the common start, within its duration."),
    transfer_ns=(_I64, "The rest; where ranks are not recorded what the network needs at least."),
    undetermined_ns=(_I64, "Wait or transfer, cannot be told: ranks or a match are missing."),
    span_ns=(_I64, "Last end less last start over its ranks: the time that bandwidth counts."),
    last_rank=(_I32, "The rank that started last."),
    before_window=(_BOOL, "Some rank began it before the recording of another began."),
    lateness_ns=(_I64, "Own time since the group's last collective, less the group's smallest."),
    blamed=(_BOOL, "It is the one that the others waited for."),
    cost_ns=(_I64, "What the others waited for it."),
)

COLLECTIVE_FACTS = table(
    joined_by=(TEXT, "time, order, sequence, or type and size; null: no source knows the call."),
    guessed=(_BOOL, "That source's record may be another call's: order alone tells which it is."),
    facts_from=(TEXT, "The source that algorithm, protocol and channels come from."),
    comm_hash=(_U64, "NCCL's hash of the communicator, where that source has this very call."),
    comm_rank=(_I32, "Rank within that communicator."),
    comm_guessed=(_BOOL, "Other process groups fit that communicator as well."),
    record_from=(TEXT, "The source that has this very call."),
    record_event=(_I64, "`event` of its record."),
    seq=(_I64, "Sequence number of the call in that source."),
    source_duration_ns=(_I64, "How long it ran, as that source says."),
    algorithm=(TEXT, "RING, TREE, …, as that source says."),
    protocol=(TEXT, "LL, LL128, SIMPLE, as that source says."),
    channels=(_I32, "Channels used."),
    channel_ns_min=(_I64, "Shortest time of a channel."),
    channel_ns_max=(_I64, "Longest time of a channel."),
)

RANK_CLOCKS = table(
    rank=(_I32, "Global rank."),
    aligned_with=(_I32, "Lowest rank of those whose clocks could be compared; null: none."),
    offset_ns=(_I64, "What to add to the rank's times at `reference_ns`, where `aligned`."),
    drift_ppm=(_F64, "How much that grows, parts per million."),
    reference_ns=(_I64, "The time that the offset is for."),
    residual_ns=(_F64, "Root mean square distance of its ends from the common end, after that."),
    collectives=(_I64, "Synchronising collectives that it rests on."),
    violations=(_I64, "Of those: it would end before the last rank had begun."),
    clock=(_I32, "Lowest rank that has the same clock: those of a host, or whose offsets agree."),
    offset_ns_sigma=(
        _F64,
        "Standard deviation of the offset against the clocks compared with.",
    ),
    drift_ppm_sigma=(_F64, "Standard deviation of the drift."),
    aligned=(_BOOL, "Some clock of those compared is off by more than 3 of it: times are shifted."),
)
