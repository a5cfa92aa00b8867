"""What is made from the parsed tables, once, when first asked for.

`X_links`, `X_passes` and `X_callers` have one row for each row of the table they speak of, in its
order.
"""

from htk.base.schema.columns import BOOL, FLOAT64, INT32, INT64, TEXT, table

KERNEL_LINKS = table(
    launch_row=(INT64, "The call that launched the activity.", "launches"),
    launch_by=(TEXT, "How that was found: correlation, graph; null: unlinked."),
    launch_start_ns=(INT64, "Start of that call."),
    launch_end_ns=(INT64, "End of that call."),
    op_row=(INT64, "Innermost CPU operator round the launch.", "cpu_ops"),
    op_by=(TEXT, "How that was found: nesting, external_id, flow; null: none."),
    step=(INT32, "ProfilerStep that launched it; null: none."),
    annotation_row=(INT64, "Innermost user range (not a step) round the launch.", "annotations"),
    carry_in=(BOOL, "Launched before the recording began."),
    ambiguous=(BOOL, "Several calls have its correlation id; the latest before it was taken."),
)

ANNOTATION_LINKS = table(
    parent_row=(INT64, "User range (not a step) that holds it.", "annotations"),
)

OP_LINKS = table(
    parent_row=(INT64, "The operator that called it.", "cpu_ops"),
    depth=(INT32, "0 for an operator called by none."),
    thread_index=(INT32, "Number of its (rank, process, thread)."),
    step=(INT32, "ProfilerStep it ran in; null: none."),
    forward_row=(INT64, "For a backward operator: its forward one.", "cpu_ops"),
    forward_by=(TEXT, "How that was found: sequence, flow, parent; null: none."),
    annotation_row=(INT64, "Innermost user range (not a step) round it.", "annotations"),
    selected=(
        BOOL,
        "False for what a server ran before it serves; what else is not chosen has no row.",
    ),
)

PASSES = table(
    phase=(TEXT, "dataloader, forward, backward, optimizer, other; null: launch not recorded."),
    basis=(TEXT, "What tells: sequence, autograd thread, user range, name, order; null: nothing."),
    recomputed=(BOOL, "Forward work that is done again inside backward."),
)

OP_CALLERS = table(
    python_row=(INT64, "Innermost Python call round the operator.", "python_calls"),
    module=(TEXT, "nn.Module path round it; backward operators take their forward's."),
    module_by=(TEXT, "hierarchy, python or forward; null: none."),
)

LAUNCH_CALLERS = table(
    python_row=(INT64, "Innermost Python call round the call, on its thread.", "python_calls"),
    module=(TEXT, "nn.Module path that this Python call is inside of; null: none."),
)

PYTHON_LINKS = table(
    parent_row=(INT64, "The Python call that made it.", "python_calls"),
    depth=(INT32, "0 for a call made by none that is recorded."),
    thread_index=(INT32, "Number of its (rank, process, thread)."),
    module=(TEXT, "nn.Module path that it is inside of (itself too); null: none."),
)

LAUNCH_LINKS = table(
    op_row=(INT64, "Innermost CPU operator round the call.", "cpu_ops"),
    step=(INT32, "ProfilerStep it ran in; null: none."),
    kernels=(INT64, "GPU activities that it launched."),
)

ACTIVITIES = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream."),
    event=(INT64, "Row of the event in its rank's trace."),
    name=(TEXT, "Name."),
    kind=(TEXT, "compute, comm, memory; other: a whole CUDA graph."),
    start_ns=(INT64, "Start, absolute."),
    end_ns=(INT64, "End, absolute."),
)

WINDOWS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    device=(INT32, "GPU index within the process."),
    step=(INT32, "GPU step; null for the whole recorded window."),
    start_ns=(INT64, "Start, absolute."),
    end_ns=(INT64, "End, absolute."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
)

# Time in which activities of just these kinds run, in the order of their bits (1 compute, 2
# communication, 4 copies, 8 of no known kind), and time of each kind by itself.
RUNNING = (
    "compute_alone_ns",
    "comm_alone_ns",
    "compute_comm_ns",
    "memory_alone_ns",
    "compute_memory_ns",
    "comm_memory_ns",
    "compute_comm_memory_ns",
    "other_alone_ns",
)
ADDED = ("compute_added_ns", "comm_added_ns", "memory_added_ns")

WINDOW_TIMES = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    device=(INT32, "GPU index within the process."),
    step=(INT32, "GPU step; null for the whole recorded window."),
    start_ns=(INT64, "Start, absolute."),
    end_ns=(INT64, "End, absolute."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    compute_alone_ns=(INT64, "Compute runs, and nothing else."),
    comm_alone_ns=(INT64, "Communication runs, and nothing else."),
    compute_comm_ns=(INT64, "Compute and communication run, and no copy."),
    memory_alone_ns=(INT64, "Copies or sets run, and nothing else."),
    compute_memory_ns=(INT64, "Compute and copies run, and no communication."),
    comm_memory_ns=(INT64, "Communication and copies run, and no compute."),
    compute_comm_memory_ns=(INT64, "All three run."),
    other_alone_ns=(INT64, "Whole CUDA graphs run, and nothing of a known kind."),
    compute_added_ns=(INT64, "Compute kernels, the time of each counted by itself."),
    comm_added_ns=(INT64, "Communication kernels, the same."),
    memory_added_ns=(INT64, "Copies and sets, the same."),
)

KERNEL_TOTALS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    device=(INT32, "GPU index within the process."),
    step=(INT32, "ProfilerStep that launched them; null: none."),
    kind=(TEXT, "compute, comm, memory; other: a whole CUDA graph."),
    activity=(TEXT, "kernel, copy, set, …"),
    family=(TEXT, "Family of the kernel."),
    name=(TEXT, "Name."),
    grid=(TEXT, "Blocks of the grid."),
    block=(TEXT, "Threads of a block."),
    blocks_per_sm=(FLOAT64, "Blocks for each multiprocessor."),
    size_bytes=(INT64, "Bytes of each copy."),
    recomputed=(BOOL, "Forward work that is done again inside backward."),
    count=(INT64, "Activities that agree in all of that."),
    total_ns=(INT64, "Sum of their durations."),
    start_ns=(INT64, "Start of the first of them."),
    longest_start_ns=(INT64, "Start of the longest of them."),
    longest_ns=(INT64, "Its duration."),
)

COLLECTIVE_SHARES = table(
    shared_ns=(
        INT64,
        "Time of the collective; what several run in is shared by them. null: unknown.",
    ),
    exposed_wait_ns=(INT64, "Of it: waiting while no compute ran."),
    exposed_transfer_ns=(INT64, "Of it: transferring while no compute ran."),
    exposed_undetermined_ns=(INT64, "Of it: waiting or transferring, cannot be told, the same."),
)

OWN_TIMES = table(
    own_compute_ns=(INT64, "Compute since the group's previous collective on the rank ended."),
    own_comm_ns=(INT64, "Communication without compute, the same."),
    own_memory_ns=(INT64, "Copies without either, the same."),
    own_idle_ns=(INT64, "Nothing ran, the same."),
)

OP_TOTALS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    step=(INT32, "ProfilerStep that they ran in; null: none."),
    name=(TEXT, "Operator."),
    input_dims=(TEXT, "Shapes of its inputs; null: not recorded."),
    count=(INT64, "Calls that agree in all of that."),
    total_ns=(INT64, "Sum of their durations."),
)

LAUNCH_TOTALS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    name=(TEXT, "Call."),
    count=(INT64, "How many there are."),
    total_ns=(INT64, "Sum of their durations."),
)

OP_EXTENTS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    start_ns=(INT64, "Start of the first operator."),
    end_ns=(INT64, "End of the last."),
)

GPU_WORK = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    gpu_activities=(INT64, "GPU activities."),
    total_ns=(INT64, "Sum of their durations."),
    linked_ns=(INT64, "Of those whose launch is known."),
    carry_in_activities=(INT64, "Launched before the recording began."),
    carry_in_ns=(INT64, "Sum of their durations."),
    unlinked_activities=(INT64, "Launched within it, by a call that is not known."),
    unlinked_ns=(INT64, "Sum of their durations."),
    ambiguous_activities=(INT64, "Of which several calls have the correlation id."),
    copies_between_gpus_ns=(INT64, "Copies from GPU to GPU: copies, not communication."),
)

STALLS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    cause=(TEXT, "What the host did instead of launching: host_sync, host_data_loading, …"),
    name=(TEXT, "Call, range, function or operator."),
    op_row=(INT64, "Operator round a call.", "cpu_ops"),
    start_ns=(INT64, "Its start."),
    end_ns=(INT64, "Its end."),
)

IDLE_CAUSES = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream that runs nothing; null: no stream of the device does."),
    gap_start_ns=(INT64, "Start of the whole gap."),
    gap_end_ns=(INT64, "End of the whole gap."),
    cause=(TEXT, "Why nothing ran in this piece of the gap."),
    start_ns=(INT64, "Start of the piece."),
    end_ns=(INT64, "End of the piece."),
    next_event=(INT64, "The activity that ended the gap."),
)
IDLE_TIMES = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream that runs nothing; null: no stream of the device does."),
    step=(INT32, "GPU step; null for the whole recorded window, or for what is of no step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    cause=(TEXT, "Why nothing ran."),
    idle_ns=(INT64, "How long nothing ran for that cause."),
    gaps=(INT64, "Gaps that the cause has a part in."),
)

IDLE_COSTS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    step=(INT32, "GPU step in which the gaps' pieces begin; null: none."),
    cause=(TEXT, "Why no stream of the device ran anything."),
    long=(BOOL, "Pieces of a millisecond and more: no matter of launching fast."),
    name=(TEXT, "Call, range or operator that explains the pieces; null: none, or unnamed."),
    blocking=(BOOL, "That is a call that blocks."),
    frees=(BOOL, "The host gave memory back to the driver meanwhile."),
    pieces=(INT64, "Pieces that agree in all of that, and in whether blocking calls explain them."),
    idle_ns=(INT64, "Sum of their lengths."),
    blocked_ns=(INT64, "What of it a blocking call explains."),
    longest_start_ns=(INT64, "Start of the longest of them."),
    longest_ns=(INT64, "Its length."),
)

MEMORY_EXTENTS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    device_type=(INT32, "Whose memory: 1 is a GPU's."),
    reserved_bytes=(INT64, "The most that was reserved."),
)

SERVER_MARKS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    on_gpu=(BOOL, "True for the GPU copy of a range."),
    name=(TEXT, "What a server calls an iteration, or the capture of a graph."),
    start_ns=(INT64, "Start, absolute."),
    end_ns=(INT64, "End, absolute."),
)
STEP_MARKS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    on_gpu=(BOOL, "True for the GPU copy of a step."),
    step=(INT32, "k of ProfilerStep#k."),
    start_ns=(INT64, "Start, absolute."),
    end_ns=(INT64, "End, absolute."),
    complete=(BOOL, "False for a step that a selection holds a part of."),
)
