"""The event columns: the one table that the compiled core and its pure twin both read.

Who adds a line here adds a column to both engines. Kinds:

ints    whole numbers; also in quotes, as XPU and HPU write them, and hexadecimal in quotes (ROCm)
floats  numbers; also in quotes, "N/A" is null
nanos   decimal microseconds to exact int64 nanoseconds (half to even below a nanosecond)
ids     whole numbers of up to 18 digits in their only spelling, in quotes or not; any other value
        goes to the column of text with the same key, so that texts that differ do everywhere
text    dictionary of text; a number as its JSON text, a list or an object as compact JSON
json    dictionary of compact JSON text

A null, or a key that is absent, is null. A value of another type is null and counted.
"""

from typing import Literal, NamedTuple

Scope = Literal["event", "args"]
Kind = Literal["ints", "floats", "nanos", "ids", "text", "json"]


class EventColumn(NamedTuple):
    """A column, where its values stand, and what they are."""

    name: str
    scope: Scope
    key: str
    kind: Kind


# All arguments of counter (C) and metadata (M) events; of others, on request, the unread ones.
REST = "args_rest"


def _build_columns(scope: Scope, kind: Kind, *names: str) -> tuple[EventColumn, ...]:
    """Return the columns written as "name" or, where the file calls it otherwise, "name = key"."""
    split = (name.partition(" = ") for name in names)
    return tuple(EventColumn(name, scope, key or name, kind) for name, _, key in split)


EVENT = (
    *_build_columns("event", "text", "ph", "cat", "name", "pid", "tid"),
    *_build_columns("event", "nanos", "ts", "dur"),
    *_build_columns("event", "ids", "id"),
    *_build_columns("event", "text", "bp", "s"),
)

LINKS = (
    *_build_columns(
        "args",
        "ints",
        "external_id = External id",
        "external_id_lc = external id",  # 2021; another meaning than External id
        "correlation",
        "stream",
        "own_stream = original_stream",  # where `stream` is the row it is drawn on
        "sycl_queue = sycl queue",  # XPU, which names no stream
        "device",
        "context",
        "seq_num = Sequence number",
        "fwd_tid = Fwd thread id",
        "ev_idx = Ev Idx",
        "rf_id = Record function id",
        "py_id = Python id",
        "py_parent = Python parent id",
        "py_module = Python module id",
        "py_thread = Python thread",
        "graph_id = graph id",
        "graph_node = graph node id",
        "cbid",
        "cid",  # ROCm's cbid
        "op_count = Op count",
    ),
    *_build_columns("args", "text", "finished"),
)

DEVICE = (
    *_build_columns("args", "ints", "queued", "priority", "bytes"),
    *_build_columns("args", "floats", "mem_bw = memory bandwidth (GB/s)"),
    *_build_columns("args", "text", "grid", "block"),
    *_build_columns("args", "ints", "regs = registers per thread", "smem = shared memory"),
    *_build_columns(
        "args",
        "floats",
        "blocks_per_sm = blocks per SM",
        "warps_per_sm = warps per SM",
        "occupancy = est. achieved occupancy %",
    ),
    *_build_columns("args", "ints", "channel"),
    *_build_columns("args", "text", "channel_type", "copy_kind = kind", "copy_size = size"),
    *_build_columns("args", "text", "copy_way = copy kind"),
    *_build_columns("args", "text", "copy_source = src kind", "copy_target = dst kind"),
    *_build_columns(
        "args",
        "ints",
        "from_device = fromDevice",
        "in_device = inDevice",
        "to_device = toDevice",
        "wait_stream = wait_on_stream",
        "wait_corr = wait_on_cuda_event_record_corr_id",
        "wait_event = wait_on_cuda_event_id",
        "event_id",
    ),
    *_build_columns("args", "text", "sync_kind = cuda_sync_kind", "hip_kernel = kernel"),
    *_build_columns("args", "text", "mtia_stream = stream_id"),
)

COLLECTIVES = (
    *_build_columns("args", "text", "coll = Collective name"),
    *_build_columns(
        "args",
        "ints",
        "in_nelems = In msg nelems",
        "out_nelems = Out msg nelems",
        "in_size_old = In msg size",  # before 2023-12; elements too
        "out_size_old = Out msg size",
    ),
    *_build_columns("args", "text", "in_split = In split size", "out_split = Out split size"),
    *_build_columns("args", "ints", "group_size = Group size"),
    *_build_columns(
        "args",
        "text",
        "dtype",
        "pg_name = Process Group Name",
        "pg_id_old = Process Group ID",  # 2024-03 to 2024-04
        "pg_desc = Process Group Description",
        "pg_ranks = Process Group Ranks",
        "comms_id = Comms Id",  # an unsigned 64-bit hash: may exceed int64
        "xpu_comm = Communicator_id",
    ),
    *_build_columns(
        "args",
        "ints",
        "seq = Seq",
        "src_rank = Src Rank",
        "dst_rank = Dst Rank",
        "rank = Rank",
        "rank_start = Global rank start",
        "rank_stride = Global rank stride",
    ),
    *_build_columns(
        "args",
        "text",
        "is_async = Is asynchronized op",
        "in_address = Input Tensors start",
        "out_address = Output Tensors start",
    ),
)

MEMORY = (
    *_build_columns("args", "text", "addr = Addr"),  # unsigned 64 bits
    *_build_columns(
        "args",
        "ints",
        "alloc_bytes = Bytes",
        "total_alloc = Total Allocated",
        "total_reserved = Total Reserved",
        "dev_type = Device Type",
        "dev_id = Device Id",
    ),
)

OPERATORS = (
    *_build_columns(
        "args",
        "json",
        "in_dims = Input Dims",
        "in_type = Input type",
        "in_strides = Input Strides",
        "concrete = Concrete Inputs",
    ),
    *_build_columns(
        "args",
        "text",
        "call_stack = Call stack",
        "module_hier = Module Hierarchy",
        "call_from = CallFrom",
        "backend = Backend",
        "kernel_file",
        "kernel_backend",
        "kernel_name",
        "kernel_hash",
        "kernel_kwargs",
        "num_warps",
        "num_stages",
        "kernel_stack = stack",  # which torch._inductor.profiler adds to kernels
    ),
)

# Ids that are no plain numbers: 0x1f, -1, names.
SPELLED = _build_columns("event", "text", "id_text = id")

METADATA = _build_columns(
    "args", "text", "meta_name = name", "meta_labels = labels", "meta_sort = sort_index"
)

COLUMNS: tuple[EventColumn, ...] = (
    *EVENT,
    *LINKS,
    *DEVICE,
    *COLLECTIVES,
    *MEMORY,
    *OPERATORS,
    *METADATA,
    *SPELLED,
    EventColumn(REST, "args", "", "json"),
)
NAMES: tuple[str, ...] = tuple(column.name for column in COLUMNS)
