"""The vocabulary: every table a parser may fill or a link may make, column by column.

Time is int64 nanoseconds on the absolute clock (Unix), half-open [start, end). Ranks are a column.
`event` is a row's number in its rank's trace file (cycles of one rank continue the count), so
(rank, event) names an event for ever. A column whose metadata says `index: T` holds row numbers
of table T (null: none).
"""

import pyarrow as pa

from htk.schema.columns import TEXT, doc_of, index_of, table, unit_of
from htk.schema.comm import (
    BENCH_POINTS,
    COLLECTIVE_FACTS,
    COLLECTIVE_MATCHES,
    COLLECTIVES,
    COMM_CHANNELS,
    COMM_COUNTS,
    COMM_GROUPS,
    COMM_INITS,
    COMM_NOTES,
    COMM_TRANSPORTS,
    COMM_TUNING,
    LINK_SAMPLES,
    LOG_LINES,
    PROXY_STEPS,
    PYTHON_STACKS,
    RANK_CLOCKS,
)
from htk.schema.jobs import JOB_LAYOUTS, JOB_OPERATIONS
from htk.schema.links import (
    ACTIVITIES,
    ANNOTATION_LINKS,
    IDLE_CAUSES,
    KERNEL_LINKS,
    KERNEL_TOTALS,
    LAUNCH_LINKS,
    OP_CALLERS,
    OP_LINKS,
    PASSES,
    PYTHON_LINKS,
    STALLS,
    WINDOWS,
)
from htk.schema.profile import (
    ANNOTATIONS,
    COUNTERS,
    CPU_OPS,
    EVENTS,
    EXECUTION_NODES,
    FLOWS,
    KERNELS,
    LAUNCHES,
    MEMORY,
    OVERHEADS,
    PARSE_ISSUES,
    PYTHON_CALLS,
    RANKS,
    SYNCS,
)

# Changes whenever a table or a meaning does; answers as JSON state it.
SCHEMA_VERSION = 10

# Columns that hold a moment on the absolute clock, in every table.
ABSOLUTE_TIMES = (
    "start_ns",
    "end_ns",
    "time_ns",
    "peak_ns",
    "enqueue_ns",
    "launch_start_ns",
    "longest_start_ns",
    "launch_end_ns",
    "gap_start_ns",
    "gap_end_ns",
    "aligned_start_ns",
    "aligned_end_ns",
)

# What parsers fill.
TABLES: dict[str, pa.Schema] = {
    "events": EVENTS,
    "kernels": KERNELS,
    "cpu_ops": CPU_OPS,
    "execution_nodes": EXECUTION_NODES,
    "launches": LAUNCHES,
    "syncs": SYNCS,
    "annotations": ANNOTATIONS,
    "python_calls": PYTHON_CALLS,
    "flows": FLOWS,
    "memory": MEMORY,
    "counters": COUNTERS,
    "overheads": OVERHEADS,
    "ranks": RANKS,
    "parse_issues": PARSE_ISSUES,
    "collectives": COLLECTIVES,
    "comm_groups": COMM_GROUPS,
    "comm_channels": COMM_CHANNELS,
    "comm_inits": COMM_INITS,
    "comm_transports": COMM_TRANSPORTS,
    "comm_tuning": COMM_TUNING,
    "comm_counts": COMM_COUNTS,
    "comm_notes": COMM_NOTES,
    "python_stacks": PYTHON_STACKS,
    "log_lines": LOG_LINES,
    "proxy_steps": PROXY_STEPS,
    "bench_points": BENCH_POINTS,
    "link_samples": LINK_SAMPLES,
    "job_operations": JOB_OPERATIONS,
    "job_layouts": JOB_LAYOUTS,
}

# What is made from those.
DERIVED: dict[str, pa.Schema] = {
    "kernel_links": KERNEL_LINKS,
    "op_links": OP_LINKS,
    "annotation_links": ANNOTATION_LINKS,
    "op_passes": PASSES,
    "kernel_passes": PASSES,
    "op_callers": OP_CALLERS,
    "python_links": PYTHON_LINKS,
    "launch_links": LAUNCH_LINKS,
    "kernel_totals": KERNEL_TOTALS,
    "activities": ACTIVITIES,
    "rank_windows": WINDOWS,
    "step_windows": WINDOWS,
    "idle_causes": IDLE_CAUSES,
    "stalls": STALLS,
    "collective_matches": COLLECTIVE_MATCHES,
    "aligned_matches": COLLECTIVE_MATCHES,
    "rank_clocks": RANK_CLOCKS,
    "collective_facts": COLLECTIVE_FACTS,
}

__all__ = [
    "ABSOLUTE_TIMES",
    "ACTIVITIES",
    "ANNOTATIONS",
    "ANNOTATION_LINKS",
    "BENCH_POINTS",
    "COLLECTIVES",
    "COMM_CHANNELS",
    "COMM_GROUPS",
    "COMM_INITS",
    "COMM_NOTES",
    "COMM_TRANSPORTS",
    "COMM_TUNING",
    "COUNTERS",
    "CPU_OPS",
    "DERIVED",
    "EVENTS",
    "EXECUTION_NODES",
    "FLOWS",
    "IDLE_CAUSES",
    "JOB_LAYOUTS",
    "JOB_OPERATIONS",
    "KERNELS",
    "KERNEL_LINKS",
    "KERNEL_TOTALS",
    "LAUNCHES",
    "LAUNCH_LINKS",
    "LINK_SAMPLES",
    "LOG_LINES",
    "MEMORY",
    "OP_CALLERS",
    "OP_LINKS",
    "OVERHEADS",
    "PARSE_ISSUES",
    "PROXY_STEPS",
    "PYTHON_CALLS",
    "PYTHON_LINKS",
    "PYTHON_STACKS",
    "RANKS",
    "SCHEMA_VERSION",
    "SYNCS",
    "TABLES",
    "TEXT",
    "WINDOWS",
    "doc_of",
    "index_of",
    "table",
    "unit_of",
]
