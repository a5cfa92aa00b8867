"""What a profiler records: events, kernels, operators, launches, memory, … and who recorded it."""

from htk.base.schema.columns import BOOL, FLOAT64, INT32, INT64, TEXT, Column, table

_WHO: dict[str, Column] = {
    "rank": (INT32, "Global rank."),
    "cycle": (INT32, "Profiling cycle of the rank: 0 for its first file, 1 for its second, …"),
    "event": (INT64, "Row of the event in its rank's trace."),
}
_WHEN: dict[str, Column] = {
    "start_ns": (INT64, "Start, absolute."),
    "end_ns": (INT64, "End, absolute."),
}
_THREAD: dict[str, Column] = {
    "process": (TEXT, "Process id (or name) as recorded."),
    "thread": (TEXT, "Thread id (or name) as recorded."),
}

EVENTS = table(
    **_WHO,
    category=(TEXT, "Kineto category, as recorded."),
    name=(TEXT, "Name, as recorded."),
    **_THREAD,
    **_WHEN,
    arguments=(TEXT, "Arguments that no column of the vocabulary reads, compact JSON, on request."),
)

KERNELS = table(
    **_WHO,
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream; null where the trace names none."),
    name=(TEXT, "Kernel, copy or set name, as recorded."),
    activity=(TEXT, "kernel, copy or set."),
    kind=(TEXT, "compute, comm, memory (copies and sets); other: a whole CUDA graph."),
    family=(TEXT, "gemm, attention, convolution, norm, softmax, … communication, copy, other."),
    **_WHEN,
    correlation=(INT64, "Ties the activity to the call that launched it."),
    external_id=(INT64, "Id of the CPU operator that launched it."),
    context=(INT64, "CUDA context."),
    queued_ns=(INT64, "When it was queued, as recorded (0 in most traces)."),
    grid=(TEXT, "Grid, compact JSON [x,y,z]."),
    block=(TEXT, "Block, compact JSON [x,y,z]."),
    registers=(INT64, "Registers per thread."),
    shared_memory_bytes=(INT64, "Shared memory per block."),
    blocks_per_sm=(FLOAT64, "Blocks per multiprocessor, as recorded."),
    warps_per_sm=(FLOAT64, "Warps per multiprocessor, as recorded."),
    occupancy_pct=(FLOAT64, "Estimated achieved occupancy, as recorded."),
    size_bytes=(INT64, "Bytes copied or set."),
    bandwidth_gbps=(FLOAT64, "Memory bandwidth, as recorded."),
    graph_id=(INT64, "CUDA graph that held the activity."),
    graph_node=(INT64, "Node of that graph."),
    priority=(INT64, "Stream priority."),
    graph_annotation=(TEXT, "What the program called it when it captured the graph."),
    call_stack=(TEXT, "Python stacks it stems from, a line each, innermost first, where recorded."),
    waits_for_nodes=(TEXT, "Nodes of its replay it waits for, and ns on the host between: JSON."),
)

CPU_OPS = table(
    **_WHO,
    name=(TEXT, "Operator name."),
    **_THREAD,
    **_WHEN,
    external_id=(INT64, "Id that kernels and runtime calls refer to."),
    sequence=(INT64, "Autograd sequence number."),
    forward_thread=(INT64, "Thread of the forward op (0: this is one)."),
    record_function_id=(INT64, "Id shared with execution traces."),
    input_dims=(TEXT, "Shapes of the inputs, compact JSON."),
    input_types=(TEXT, "Types of the inputs, compact JSON."),
    input_strides=(TEXT, "Strides of the inputs, compact JSON."),
    concrete_inputs=(TEXT, "Values of scalar inputs, compact JSON."),
    call_stack=(TEXT, "Python stack, where recorded."),
    module_hierarchy=(TEXT, "nn.Module path, where recorded."),
    kernel_file=(TEXT, "Source of a compiled kernel (Triton, Inductor)."),
    kernel_backend=(TEXT, "Backend of a compiled kernel."),
)

EXECUTION_NODES = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle of the rank."),
    event=(INT64, "Number of the node."),
    record_function_id=(INT64, "Id shared with the profiler's operators."),
    name=(TEXT, "Operator name."),
    input_dims=(TEXT, "Shapes of the inputs, compact JSON."),
    input_types=(TEXT, "Types of the inputs, compact JSON."),
    input_strides=(TEXT, "Strides of the inputs, compact JSON."),
    concrete_inputs=(TEXT, "Values of scalar inputs, compact JSON."),
    kernel_file=(TEXT, "Source of a compiled kernel (Triton, Inductor)."),
    kernel_backend=(TEXT, "Backend of a compiled kernel."),
    raw_name=(TEXT, "Collective, as recorded."),
    group=(TEXT, "Process group name of a collective."),
    group_desc=(TEXT, "Its description."),
    group_size=(INT32, "Number of its ranks."),
    dtype=(TEXT, "Element type of a collective."),
    in_elements=(INT64, "Elements in."),
    out_elements=(INT64, "Elements out."),
    in_split=(TEXT, "Elements to each peer, compact JSON (all-to-all-v)."),
    out_split=(TEXT, "Elements from each peer, compact JSON (all-to-all-v)."),
)

KERNEL_STACKS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle of the rank."),
    name=(TEXT, "Kernel; null: the node of a graph."),
    graph_id=(INT64, "CUDA graph."),
    graph_node=(INT64, "Node of that graph."),
    graph_annotation=(TEXT, "What the program called it when it captured the graph."),
    call_stack=(TEXT, "Python stacks it stems from, a line each, innermost first."),
)

LAUNCHES = table(
    **_WHO,
    name=(TEXT, "Call of the runtime, of the driver or, with Nsight, of the operating system."),
    api=(TEXT, "Category, as recorded: cuda_runtime, cuda_driver, os_runtime, …"),
    **_THREAD,
    **_WHEN,
    correlation=(INT64, "Ties the call to its GPU activities."),
    external_id=(INT64, "Id of the CPU operator that made the call."),
)

SYNCS = table(
    **_WHO,
    name=(TEXT, "Event Sync, Stream Wait Event, Stream Sync, Context Sync, …"),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream that waits; null for the whole device."),
    **_WHEN,
    correlation=(INT64, "The runtime call behind it."),
    wait_stream=(INT64, "Stream that is waited for."),
    wait_correlation=(INT64, "Correlation of the cudaEventRecord that is waited for."),
    wait_event_id=(INT64, "CUDA event that is waited for."),
)

ANNOTATIONS = table(
    **_WHO,
    name=(TEXT, "Range name, as recorded."),
    on_gpu=(BOOL, "True for the GPU copy of a range."),
    step=(INT32, "k of ProfilerStep#k, else null."),
    device=(INT32, "GPU index, for GPU copies."),
    stream=(INT64, "Stream, for GPU copies."),
    **_THREAD,
    **_WHEN,
    external_id=(INT64, "Id shared by a range and its GPU copy."),
)

PYTHON_CALLS = table(
    **_WHO,
    name=(TEXT, "Python function or nn.Module call."),
    **_THREAD,
    **_WHEN,
    python_id=(INT64, "Id of the call."),
    python_parent=(INT64, "Id of the calling call."),
    module_id=(INT64, "Id of the nn.Module instance, for module calls."),
)

FLOWS = table(
    **_WHO,
    category=(TEXT, "ac2g (launch to GPU) or fwdbwd (forward to backward)."),
    flow=(INT64, "Id shared by the two ends."),
    flow_text=(TEXT, "That, where it is not a plain number."),
    is_start=(BOOL, "True at the start of the arrow."),
    **_THREAD,
    time_ns=(INT64, "When, absolute."),
)

ALLOCATION = "[memory]"  # or a release, as PyTorch's profiler calls it
FAILED_ALLOCATION = "[OutOfMemory]"
MEMORY = table(
    **_WHO,
    name=(TEXT, f"{ALLOCATION} or {FAILED_ALLOCATION}."),
    **_THREAD,
    time_ns=(INT64, "When, absolute."),
    device_type=(INT32, "0 CPU, 1 CUDA, … as in c10::DeviceType."),
    device=(INT32, "Device index."),
    address=(TEXT, "Address, as recorded."),
    size_bytes=(INT64, "Bytes allocated; negative when freed."),
    allocated_bytes=(INT64, "Total allocated after it."),
    reserved_bytes=(INT64, "Total reserved after it."),
    category=(TEXT, "parameter, activation, gradient, …, where the source tells."),
    call_stack=(TEXT, "Python stack of an allocation, innermost first, where recorded."),
)

COUNTERS = table(
    **_WHO,
    name=(TEXT, "Counter name."),
    process=(TEXT, "Process or device label."),
    series=(TEXT, "Series within the counter."),
    time_ns=(INT64, "When, absolute."),
    value=(FLOAT64, "Value."),
)

OVERHEADS = table(
    **_WHO,
    name=(TEXT, "Buffer Flush, Resource, Lazy Function Loading, …"),
    **_THREAD,
    **_WHEN,
)

RANKS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    rank_from=(TEXT, "How it is known: distributedInfo, environment, file name, given, …"),
    file=(TEXT, "The file."),
    format=(TEXT, "Its format: the parser's name."),
    file_bytes=(INT64, "Size of the file."),
    host=(TEXT, "Host name, where recorded."),
    world_size=(INT32, "Number of ranks of the job, where recorded."),
    backend=(TEXT, "Communication backend."),
    device_name=(TEXT, "Name of the first GPU."),
    device_count=(INT32, "GPUs that the process saw."),
    device_properties=(TEXT, "deviceProperties, compact JSON."),
    groups=(TEXT, "pg_config of distributedInfo, compact JSON."),
    versions=(TEXT, "Driver, runtime, NCCL, … compact JSON."),
    recorded=(TEXT, "Profiler options that were on, comma-separated."),
    environment=(TEXT, "Slurm, Kubernetes and Git facts that htk.capture recorded, compact JSON."),
    base_time_ns=(INT64, "baseTimeNanoseconds (0: times were absolute already)."),
    start_ns=(INT64, "First event."),
    end_ns=(INT64, "Last end."),
    events=(INT64, "Events in the file, of every phase."),
    truncated=(BOOL, "The file ended early."),
    engine=(TEXT, "Which ingest engine read it: compiled or pure."),
)

PARSE_ISSUES = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    file=(TEXT, "The file."),
    kind=(TEXT, "truncated, broken_event, mistyped_value, …"),
    offset=(INT64, "Byte offset in the uncompressed file, where known."),
    event=(INT64, "Row of the event, where known."),
    text=(TEXT, "What was seen."),
    count=(INT64, "How many losses the row stands for."),
)

CUT_WINDOWS = table(
    rank=(INT32, "Global rank."),
    cycle=(INT32, "Profiling cycle."),
    of=(TEXT, "host, recording, steps or host steps that were cut: whose time it is."),
    **_THREAD,
    device=(INT32, "GPU index within the process; null for the host."),
    step=(INT32, "GPU step; null for other windows."),
    **_WHEN,
    complete=(BOOL, "False for a step that the recording, or the cut, holds a part of."),
)

PASSING = table(
    **_WHO,
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream."),
    name=(TEXT, "Name."),
    kind=(TEXT, "compute, comm, memory; other: a whole CUDA graph."),
    **_WHEN,
)
