"""Every format that htk reads: one module each, asked in this order.

What is told by one sure mark comes first. A benchmark's output may hold lines of NCCL's log, so it
is asked before that; a bare array of events may be NCCL's plugin, so that is asked before kineto.
"""

from htk import plugins
from htk.core.parser import Parser
from htk.parsers import (
    flight_recorder,
    inspector,
    inspector_prometheus,
    job_layout,
    kineto,
    memory_snapshot,
    memory_timeline,
    nccl_debug,
    nccl_tests,
    nsight,
    operation_rows,
    operation_timeline,
    profiler_plugin,
    ras,
    rccl_replay,
    rocpd,
    rocprof_json,
    xplane,
)

PARSERS: tuple[Parser, ...] = (
    rocpd,
    nsight,
    rocprof_json,
    xplane,
    flight_recorder,
    memory_snapshot,
    memory_timeline,
    inspector,
    operation_rows,
    operation_timeline,
    profiler_plugin,
    kineto,
    ras,
    rccl_replay,
    nccl_tests,
    inspector_prometheus,
    nccl_debug,
    job_layout,
)

# Those of other packages come last: what htk knows it reads itself.
PARSERS += tuple(plugins.loaded("htk.parsers"))
