"""Where each GPU's time goes: compute, communication, copies, idle."""

from typing import Annotated

import pyarrow as pa

from htk.base.columns.arrow import build_numbers
from htk.base.core.analysis import Later, analysis
from htk.base.core.chart import Bar
from htk.base.core.spread import BY_RANK
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, table
from htk.quantities.derived.window_times import kind_times
from htk.quantities.measures import hta_conventions
from htk.quantities.measures.breakdown import Compat, Per, build_percent, chosen_times, sum_windows

_NS = ("busy", "compute", "comm", "exposed_comm", "memory", "exposed_memory", "other", "idle")

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step; null for the whole window, or for what follows the last step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    total_ns=(INT64, "Length of the window: first GPU activity to last end, or the step."),
    busy_ns=(INT64, "At least one activity runs, on any stream."),
    compute_ns=(INT64, "At least one compute kernel runs."),
    comm_ns=(INT64, "At least one communication kernel runs."),
    exposed_comm_ns=(INT64, "Communication runs and no compute does."),
    memory_ns=(INT64, "At least one copy or set runs; copies between GPUs count here too."),
    exposed_memory_ns=(INT64, "A copy or set runs, and neither compute nor communication."),
    other_ns=(INT64, "Only whole CUDA graphs run: nothing tells what they did."),
    idle_ns=(INT64, "Nothing runs."),
    busy_pct=(FLOAT64, "Share of the window."),
    compute_pct=(FLOAT64, "Share of the window."),
    comm_pct=(FLOAT64, "Share of the window."),
    exposed_comm_pct=(FLOAT64, "Share of the window."),
    memory_pct=(FLOAT64, "Share of the window."),
    exposed_memory_pct=(FLOAT64, "Share of the window."),
    other_pct=(FLOAT64, "Share of the window."),
    idle_pct=(FLOAT64, "Share of the window."),
)


@analysis(
    returns=RETURNS,
    chart=Bar(
        "rank", ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
    ),
    needs=("rank_windows",),
    spread=BY_RANK,
)
def time_breakdown(
    rank_window_times: Later,
    step_window_times: Later,
    kernels: Later,
    kernel_links: Later,
    syncs: Later,
    launches: Later,
    annotations: Later,
    *,
    per: Annotated[Per, "What a row covers: a rank, or each of its GPU steps."] = "rank",
    compat: Annotated[Compat | None, "Count as HTA does, to compare with it."] = None,
) -> pa.Table:
    """Where does each GPU's time go: compute, communication, copies or idle?

    Interval unions over all streams of a device, on integer nanoseconds. compute + exposed
    communication + exposed memory + other + idle is the whole window. (Compat HTA, synchronisations
    on a stream are other: its non-compute is busy less compute.)
    """
    if compat == "hta":
        tables = (kernels, kernel_links, syncs, launches, annotations)
        activities, windows = hta_conventions.class_gpu_time(per, *(table() for table in tables))
        times = kind_times(activities, windows)
    else:
        windows, times = chosen_times(per, rank_window_times, step_window_times)
    who, sums = sum_windows(
        per,
        windows,
        {
            "total": times.total,
            "busy": times.busy,
            "compute": times.any("compute"),
            "comm": times.any("comm"),
            "exposed_comm": times.exposed("comm", "compute"),
            "memory": times.any("memory"),
            "exposed_memory": times.exposed("memory", "compute", "comm"),
            "other": times.exactly("other"),
            "idle": times.idle,
        },
    )
    columns = [who[k] for k in ("rank", "device", "cycle", "step", "complete")]
    columns += [build_numbers(value, INT64) for value in sums.values()]
    columns += [build_percent(sums[name], sums["total"]) for name in _NS]
    return pa.table(columns, schema=RETURNS)
