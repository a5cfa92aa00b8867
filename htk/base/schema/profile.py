"""What a profiler records: events, kernels, operators, launches, memory, … and who recorded it."""

import pyarrow as pa

from htk.base.schema.columns import TEXT, Column, table

_I32, _I64, _F64, _BOOL = pa.int32(), pa.int64(), pa.float64(), pa.bool_()

_WHO: dict[str, Column] = {
    "rank": (_I32, "Global rank."),
    "cycle": (_I32, "Profiling cycle of the rank: 0 for its first file, 1 for its second, …"),
    "event": (_I64, "Row of the event in its rank's trace."),
}
_WHEN: dict[str, Column] = {
    "start_ns": (_I64, "Start, absolute."),
    "end_ns": (_I64, "End, absolute."),
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
    device=(_I32, "GPU index within the process."),
    stream=(_I64, "Stream; null where the trace names none."),
    name=(TEXT, "Kernel, copy or set name, as recorded."),
    activity=(TEXT, "kernel, copy or set."),
    kind=(TEXT, "compute, comm or memory (copies and sets)."),
    family=(TEXT, "gemm, attention, convolution, norm, softmax, … communication, copy, other."),
    **_WHEN,
    correlation=(_I64, "Ties the activity to the call that launched it."),
    external_id=(_I64, "Id of the CPU operator that launched it."),
    context=(_I64, "CUDA context."),
    queued_ns=(_I64, "When it was queued, as recorded (0 in most traces)."),
    grid=(TEXT, "Grid, compact JSON [x,y,z]."),
    block=(TEXT, "Block, compact JSON [x,y,z]."),
    registers=(_I64, "Registers per thread."),
    shared_memory_bytes=(_I64, "Shared memory per block."),
    blocks_per_sm=(_F64, "Blocks per multiprocessor, as recorded."),
    warps_per_sm=(_F64, "Warps per multiprocessor, as recorded."),
    occupancy_pct=(_F64, "Estimated achieved occupancy, as recorded."),
    size_bytes=(_I64, "Bytes copied or set."),
    bandwidth_gbps=(_F64, "Memory bandwidth, as recorded."),
    graph_id=(_I64, "CUDA graph that held the activity."),
    graph_node=(_I64, "Node of that graph."),
    priority=(_I64, "Stream priority."),
)

CPU_OPS = table(
    **_WHO,
    name=(TEXT, "Operator name."),
    **_THREAD,
    **_WHEN,
    external_id=(_I64, "Id that kernels and runtime calls refer to."),
    sequence=(_I64, "Autograd sequence number."),
    forward_thread=(_I64, "Thread of the forward op (0: this is one)."),
    record_function_id=(_I64, "Id shared with execution traces."),
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
    rank=(_I32, "Global rank."),
    cycle=(_I32, "Profiling cycle of the rank."),
    event=(_I64, "Number of the node."),
    record_function_id=(_I64, "Id shared with the profiler's operators."),
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
    group_size=(_I32, "Number of its ranks."),
    dtype=(TEXT, "Element type of a collective."),
    in_elements=(_I64, "Elements in."),
    out_elements=(_I64, "Elements out."),
    in_split=(TEXT, "Elements to each peer, compact JSON (all-to-all-v)."),
    out_split=(TEXT, "Elements from each peer, compact JSON (all-to-all-v)."),
)

LAUNCHES = table(
    **_WHO,
    name=(TEXT, "Runtime or driver call."),
    api=(TEXT, "Category, as recorded: cuda_runtime, cuda_driver, …"),
    **_THREAD,
    **_WHEN,
    correlation=(_I64, "Ties the call to its GPU activities."),
    external_id=(_I64, "Id of the CPU operator that made the call."),
)

SYNCS = table(
    **_WHO,
    name=(TEXT, "Event Sync, Stream Wait Event, Stream Sync, Context Sync, …"),
    device=(_I32, "GPU index within the process."),
    stream=(_I64, "Stream that waits; null for the whole device."),
    **_WHEN,
    correlation=(_I64, "The runtime call behind it."),
    wait_stream=(_I64, "Stream that is waited for."),
    wait_correlation=(_I64, "Correlation of the cudaEventRecord that is waited for."),
    wait_event_id=(_I64, "CUDA event that is waited for."),
)

ANNOTATIONS = table(
    **_WHO,
    name=(TEXT, "Range name, as recorded."),
    on_gpu=(_BOOL, "True for the GPU copy of a range."),
    step=(_I32, "k of ProfilerStep#k, else null."),
    device=(_I32, "GPU index, for GPU copies."),
    stream=(_I64, "Stream, for GPU copies."),
    **_THREAD,
    **_WHEN,
    external_id=(_I64, "Id shared by a range and its GPU copy."),
)

PYTHON_CALLS = table(
    **_WHO,
    name=(TEXT, "Python function or nn.Module call."),
    **_THREAD,
    **_WHEN,
    python_id=(_I64, "Id of the call."),
    python_parent=(_I64, "Id of the calling call."),
    module_id=(_I64, "Id of the nn.Module instance, for module calls."),
)

FLOWS = table(
    **_WHO,
    category=(TEXT, "ac2g (launch to GPU) or fwdbwd (forward to backward)."),
    flow=(_I64, "Id shared by the two ends."),
    flow_text=(TEXT, "That, where it is not a plain number."),
    is_start=(_BOOL, "True at the start of the arrow."),
    **_THREAD,
    time_ns=(_I64, "When, absolute."),
)

MEMORY = table(
    **_WHO,
    name=(TEXT, "[memory] or [OutOfMemory]."),
    **_THREAD,
    time_ns=(_I64, "When, absolute."),
    device_type=(_I32, "0 CPU, 1 CUDA, … as in c10::DeviceType."),
    device=(_I32, "Device index."),
    address=(TEXT, "Address, as recorded."),
    size_bytes=(_I64, "Bytes allocated; negative when freed."),
    allocated_bytes=(_I64, "Total allocated after it."),
    reserved_bytes=(_I64, "Total reserved after it."),
    category=(TEXT, "parameter, activation, gradient, …, where the source tells."),
    call_stack=(TEXT, "Python stack of an allocation, innermost first, where recorded."),
)

COUNTERS = table(
    **_WHO,
    name=(TEXT, "Counter name."),
    process=(TEXT, "Process or device label."),
    series=(TEXT, "Series within the counter."),
    time_ns=(_I64, "When, absolute."),
    value=(_F64, "Value."),
)

OVERHEADS = table(
    **_WHO,
    name=(TEXT, "Buffer Flush, Resource, Lazy Function Loading, …"),
    **_THREAD,
    **_WHEN,
)

RANKS = table(
    rank=(_I32, "Global rank."),
    cycle=(_I32, "Profiling cycle."),
    rank_from=(TEXT, "How it is known: distributedInfo, environment, file name, given, …"),
    file=(TEXT, "The file."),
    format=(TEXT, "Its format: the parser's name."),
    file_bytes=(_I64, "Size of the file."),
    host=(TEXT, "Host name, where recorded."),
    world_size=(_I32, "Number of ranks of the job, where recorded."),
    backend=(TEXT, "Communication backend."),
    device_name=(TEXT, "Name of the first GPU."),
    device_count=(_I32, "GPUs that the process saw."),
    device_properties=(TEXT, "deviceProperties, compact JSON."),
    groups=(TEXT, "pg_config of distributedInfo, compact JSON."),
    versions=(TEXT, "Driver, runtime, NCCL, … compact JSON."),
    recorded=(TEXT, "Profiler options that were on, comma-separated."),
    environment=(TEXT, "Slurm, Kubernetes and Git facts that htk.capture recorded, compact JSON."),
    base_time_ns=(_I64, "baseTimeNanoseconds (0: times were absolute already)."),
    start_ns=(_I64, "First event."),
    end_ns=(_I64, "Last end."),
    events=(_I64, "Events in the file, of every phase."),
    truncated=(_BOOL, "The file ended early."),
    engine=(TEXT, "Which ingest engine read it: compiled or pure."),
)

PARSE_ISSUES = table(
    rank=(_I32, "Global rank."),
    cycle=(_I32, "Profiling cycle."),
    file=(TEXT, "The file."),
    kind=(TEXT, "truncated, broken_event, mistyped_value, …"),
    offset=(_I64, "Byte offset in the uncompressed file, where known."),
    event=(_I64, "Row of the event, where known."),
    text=(TEXT, "What was seen."),
    count=(_I64, "How many losses the row stands for."),
)

CUT_WINDOWS = table(
    rank=(_I32, "Global rank."),
    cycle=(_I32, "Profiling cycle."),
    of=(TEXT, "host, recording or steps: whose time it is; extent: of all that is left."),
    **_THREAD,
    device=(_I32, "GPU index within the process; null for the host."),
    step=(_I32, "GPU step; null for other windows."),
    **_WHEN,
    complete=(_BOOL, "False for a step that the recording, or the cut, holds a part of."),
)

PASSING = table(
    **_WHO,
    device=(_I32, "GPU index within the process."),
    stream=(_I64, "Stream."),
    name=(TEXT, "Name."),
    kind=(TEXT, "compute, comm or memory."),
    **_WHEN,
)
