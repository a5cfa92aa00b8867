"""Communication, whoever wrote it down: collectives, groups, channels, topology, benchmarks."""

import pyarrow as pa

from htk.base.schema.columns import BOOL, FLOAT64, INT32, INT64, TEXT, Column, table

_U64 = pa.uint64()

_SOURCE: dict[str, Column] = {
    "rank": (INT32, "Global rank; null where the source knows only the rank in the communicator."),
    "cycle": (INT32, "Profiling cycle of the rank."),
    "source": (TEXT, "Who wrote it: kineto, flight_recorder, inspector, profiler_plugin, …"),
}
_COMM: dict[str, Column] = {
    "comm_hash": (_U64, "NCCL's hash of the communicator."),
    "comm_rank": (INT32, "Rank within the communicator."),
}

COLLECTIVES = table(
    **_SOURCE,
    event=(INT64, "Row of the GPU activity (or CPU operator) in its rank's trace, or the record."),
    op_event=(INT64, "Row of the recording CPU operator (record_param_comms, gloo:…)."),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream."),
    step=(INT32, "k of the ProfilerStep#k that it was launched in."),
    group=(TEXT, "Process group name."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON; null where cut short or unknown."),
    group_size=(INT32, "Number of its ranks."),
    **_COMM,
    seq=(INT64, "Sequence number, counted as `seq_kind` says."),
    seq_kind=(TEXT, "collective, p2p, function (per function of a communicator), plan, …"),
    comms_id=(TEXT, "Comms Id: equal on all ranks of one collective."),
    type=(TEXT, "all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, …"),
    raw_name=(TEXT, "Name as recorded."),
    library=(TEXT, "nccl, rccl, gloo, mpi, nvshmem, deep_ep, …"),
    dtype=(TEXT, "Element type, as recorded (several: comma-separated)."),
    out_dtype=(TEXT, "Element type out, where that is recorded too."),
    in_shapes=(TEXT, "Shapes in, compact JSON, where recorded."),
    out_shapes=(TEXT, "Shapes out, compact JSON, where recorded."),
    in_elements=(INT64, "Elements in."),
    out_elements=(INT64, "Elements out."),
    in_bytes=(INT64, "Bytes in."),
    out_bytes=(INT64, "Bytes out."),
    in_split=(TEXT, "Elements to each peer, compact JSON (all-to-all-v)."),
    out_split=(TEXT, "Elements from each peer, compact JSON (all-to-all-v)."),
    root=(INT32, "Root, as rank of the group (broadcast, reduce, gather, scatter)."),
    peer=(INT32, "Global rank of the peer (send, recv); of the communicator where `rank` is null."),
    messages=(
        TEXT,
        "Messages of a call that sends and receives several, in order, as compact JSON: "
        '[["send", peer, bytes], …]; a peer that was not recorded is null.',
    ),
    algorithm=(TEXT, "RING, TREE, NVLS, …: only where truly known."),
    protocol=(TEXT, "LL, LL128, SIMPLE: only where truly known."),
    channels=(INT32, "Channels used."),
    is_async=(BOOL, "Asynchronous, as recorded."),
    coalesced=(TEXT, "The enclosing coalesced call or group launch, where it is a member."),
    enqueue_ns=(INT64, "When the host enqueued it."),
    start_ns=(INT64, "When it started."),
    end_ns=(INT64, "When it ended."),
    duration_ns=(INT64, "How long it ran, where only that is known."),
    timing=(TEXT, "What the times are: gpu, cpu, watchdog, none."),
    state=(TEXT, "scheduled, started, completed (flight recorder); timed_out (watchdog)."),
    retired=(BOOL, "It left the watchdog's list."),
    timeout_ns=(INT64, "After how long the watchdog ends it."),
    inferred_columns=(TEXT, "Facts taken from elsewhere than the record itself, comma-separated."),
    frames=(TEXT, "Python stack, innermost first, one frame a line."),
)

COMM_GROUPS = table(
    **_SOURCE,
    group=(TEXT, "Process group name."),
    group_desc=(TEXT, "Process group description."),
    group_ranks=(TEXT, "Its global ranks, compact JSON."),
    group_size=(INT32, "Number of its ranks."),
    backend=(TEXT, "Backend."),
    comm_hash=(_U64, "NCCL's hash of the communicator."),
    nodes=(INT32, "Nodes that it spans, where recorded."),
    last_enqueued=(INT64, "Sequence number last enqueued (-1: none)."),
    last_started=(INT64, "Sequence number last started (-1: none)."),
    last_completed=(INT64, "Sequence number last completed (-1: none)."),
)

COMM_CHANNELS = table(
    **_SOURCE,
    **_COMM,
    type=(TEXT, "Collective type."),
    seq=(INT64, "Sequence number of the collective, counted per function."),
    channel=(INT32, "Channel."),
    start_ns=(INT64, "Start, on the clock that `timing` names."),
    end_ns=(INT64, "End, on the clock that `timing` names."),
    timing=(TEXT, "gpu (device clock) or cpu (observed by the host)."),
)

PROXY_STEPS = table(
    **_SOURCE,
    **_COMM,
    type=(TEXT, "Collective type, where it is known."),
    seq=(INT64, "Sequence number of the collective."),
    event=(INT64, "`event` of the record of its collective, in the same file; null: of none."),
    channel=(INT32, "Channel."),
    peer=(INT32, "Rank within the communicator at the other end."),
    name=(TEXT, "SendGpuWait, SendPeerWait, SendWait, RecvWait, …"),
    proxy_step=(INT64, "Step of the proxy, as NCCL counts."),
    size_bytes=(INT64, "Bytes moved."),
    start_ns=(INT64, "Start, since the plugin began."),
    end_ns=(INT64, "End, since the plugin began."),
)

COMM_INITS = table(
    **_SOURCE,
    **_COMM,
    group=(TEXT, "The split that it comes from, where its own hash is not logged."),
    group_size=(INT32, "Ranks of the communicator."),
    nodes=(INT32, "Nodes of the communicator."),
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    device=(INT32, "CUDA device."),
    parent_hash=(_U64, "Hash of the communicator that it was split from."),
    phase=(
        TEXT,
        "total, kernels, alloc, bootstrap, allgathers, topo, graphs, connections, rest; destroy, "
        "abort: its end.",
    ),
    duration_ns=(INT64, "Time of the phase; null: only that it was made is known."),
)

COMM_TRANSPORTS = table(
    **_SOURCE,
    **_COMM,
    group=(TEXT, "The split that it belongs to, where its own hash is not logged."),
    algorithm=(TEXT, "RING or TREE: the hop is part of one; null: a connection is made."),
    channel=(INT32, "Channel."),
    from_rank=(INT32, "Sending rank of the communicator."),
    to_rank=(INT32, "Receiving rank of the communicator."),
    transport=(TEXT, "P2P/CUMEM, SHM/direct, NET/IB/0/GDRDMA, …; null in rows of rings and trees."),
)

COMM_TUNING = table(
    **_SOURCE,
    **_COMM,
    type=(TEXT, "Collective type."),
    size_bytes=(INT64, "Bytes, as the log counts them; null in rows of the tuning table."),
    algorithm=(TEXT, "Algorithm, or the kernel of a symmetric or copy-engine call."),
    protocol=(TEXT, "Protocol."),
    channels=(INT32, "Channels."),
    time_us=(FLOAT64, "Predicted time, or latency of the tuning table."),
    bandwidth_gbps=(FLOAT64, "Bandwidth of the tuning table."),
)

COMM_NOTES = table(
    **_SOURCE,
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    device=(INT32, "GPU index within the process."),
    level=(TEXT, "WARN, TRAIL (of a WARN), STATE, DIED, ENDED, WAITS, HEALTH, NO_ANSWER, …"),
    text=(TEXT, "What it says."),
    time_ns=(INT64, "When, on the host's wall clock, read as UTC where no time zone is written."),
    offset=(INT64, "Byte offset in the file."),
)

PYTHON_STACKS = table(
    **_SOURCE,
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    thread=(TEXT, "Thread, as the tool names it."),
    thread_name=(TEXT, "Name of the thread."),
    state=(TEXT, "active, idle, …; of an exception: the exception."),
    frames=(TEXT, "Python stack, innermost first, one frame a line."),
    offset=(INT64, "Byte offset in the file."),
    time_ns=(INT64, "When it was taken, by the file's name or the line, as in `comm_notes`."),
)

LOG_LINES = table(
    **_SOURCE,
    file=(TEXT, "The file."),
    reading=(TEXT, "read; skipped: of a known format, nothing to ask for; unknown."),
    lines=(INT64, "Lines."),
)

BENCH_POINTS = table(
    source=(TEXT, "Who wrote it: nccl_tests, inspector_prometheus."),
    file=(TEXT, "The file."),
    type=(TEXT, "Collective type."),
    group_size=(INT32, "Ranks."),
    nodes=(INT32, "Hosts."),
    size_bytes=(INT64, "Size, as nccl-tests counts it."),
    count=(INT64, "Elements passed to NCCL."),
    dtype=(TEXT, "Element type."),
    redop=(TEXT, "Reduction."),
    root=(INT32, "Root (-1: none)."),
    in_place=(BOOL, "In place."),
    time_us=(FLOAT64, "Average time."),
    time_us_min=(FLOAT64, "Fastest iteration, where recorded."),
    time_us_max=(FLOAT64, "Slowest iteration, where recorded."),
    algbw_gbps=(FLOAT64, "Algorithm bandwidth, recomputed from size and time."),
    busbw_gbps=(FLOAT64, "Bus bandwidth, recomputed from size and time."),
    algorithm=(TEXT, "Algorithm, where recorded."),
    protocol=(TEXT, "Protocol, where recorded."),
    wrong=(INT64, "Wrong elements; null where unchecked."),
    inferred_columns=(TEXT, "Columns of this row that are inferred, not recorded."),
)

LINK_SAMPLES = table(
    **_SOURCE,
    host=(TEXT, "Host, as the exporter names it."),
    device=(INT32, "GPU index on the host, of links of a GPU."),
    port=(TEXT, "Adapter and port, or the GPU's device."),
    link=(TEXT, "nvlink, pcie, infiniband, ethernet."),
    direction=(TEXT, "sent or received."),
    metric=(TEXT, "Name of the metric."),
    time_ns=(INT64, "When it was scraped; null: not said."),
    bytes_per_s=(FLOAT64, "Rate, of metrics that are rates."),
    total_bytes=(INT64, "Total since the counter's start, of metrics that count."),
)

COMM_COUNTS = table(
    **_SOURCE,
    **_COMM,
    group_size=(INT32, "Ranks of the communicator."),
    host=(TEXT, "Host."),
    process=(TEXT, "Process id."),
    device=(INT32, "CUDA device."),
    type=(TEXT, "Collective type; null for a rank that did not answer."),
    count=(INT64, "Collectives of that type that it has enqueued."),
    status=(TEXT, "What is wrong with the rank; null: nothing."),
)

# Made from those, over all ranks.

COLLECTIVE_MATCHES = table(
    match=(INT64, "Number of the collective that several ranks took part in; null: unmatched."),
    matched_by=(TEXT, "How that was found: comms_id, sequence, order."),
    guessed=(BOOL, "Its group is not recorded: matched by order and by the times of its ends."),
    reason=(TEXT, "Why wait and transfer are unknown, or known in part."),
    members_expected=(INT32, "Ranks of its group, where recorded."),
    members_present=(INT32, "Ranks that it was found on."),
    clock_offset_ns=(INT64, "What was added to the rank's times; null: they are its own clock's."),
    wait_ns_sigma=(INT64, "Standard deviation of the wait that the clocks leave; null: unknown."),
    common_start_ns=(INT64, "Latest start over the ranks that this rank depends on."),
    wait_ns=(INT64, "From its start to the common start, within its duration."),
    transfer_ns=(INT64, "The rest; where ranks are not recorded what the network needs at least."),
    undetermined_ns=(INT64, "Wait or transfer, cannot be told: ranks or a match are missing."),
    span_ns=(INT64, "Last end less last start over its ranks: the time that bandwidth counts."),
    last_rank=(INT32, "The rank that started last."),
    before_window=(BOOL, "Some rank began it before the recording of another began."),
    lateness_ns=(INT64, "Own time since the group's last collective, less the group's smallest."),
    blamed=(BOOL, "It is the one that the others waited for."),
    cost_ns=(INT64, "What the others waited for it."),
)

COLLECTIVE_FACTS = table(
    joined_by=(TEXT, "time, order, sequence, or type and size; null: no source knows the call."),
    guessed=(BOOL, "That source's record may be another call's: order alone tells which it is."),
    facts_from=(TEXT, "The source that algorithm, protocol and channels come from."),
    comm_hash=(_U64, "NCCL's hash of the communicator, where that source has this very call."),
    comm_rank=(INT32, "Rank within that communicator."),
    comm_guessed=(BOOL, "Other process groups fit that communicator as well."),
    record_from=(TEXT, "The source that has this very call."),
    record_event=(INT64, "`event` of its record."),
    seq=(INT64, "Sequence number of the call in that source."),
    source_duration_ns=(INT64, "How long it ran, as that source says."),
    algorithm=(TEXT, "RING, TREE, …, as that source says."),
    protocol=(TEXT, "LL, LL128, SIMPLE, as that source says."),
    channels=(INT32, "Channels used."),
    channel_ns_min=(INT64, "Shortest time of a channel."),
    channel_ns_max=(INT64, "Longest time of a channel."),
)

RANK_CLOCKS = table(
    rank=(INT32, "Global rank."),
    aligned_with=(INT32, "Lowest rank of those whose clocks could be compared; null: none."),
    offset_ns=(INT64, "What to add to the rank's times at `reference_ns`, where `aligned`."),
    drift_ppm=(FLOAT64, "How much that grows, parts per million."),
    reference_ns=(INT64, "The time that the offset is for."),
    residual_ns=(FLOAT64, "Root mean square distance of its ends from the common end, after that."),
    collectives=(INT64, "Synchronising collectives that it rests on."),
    violations=(INT64, "Of those: it would end before the last rank had begun."),
    clock=(INT32, "Lowest rank that has the same clock: those of a host, or whose offsets agree."),
    offset_ns_sigma=(
        FLOAT64,
        "Standard deviation of the offset against the clocks compared with.",
    ),
    drift_ppm_sigma=(FLOAT64, "Standard deviation of the drift."),
    aligned=(BOOL, "Some clock of those compared is off by more than 3 of it: times are shifted."),
)
