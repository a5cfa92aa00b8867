"""Why each GPU was idle."""

from typing import Annotated, Literal

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    decode_texts,
    mark_valid,
    number_or_null,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NO_TIME, NONE, Ints
from htk.base.core.analysis import Later, analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.core.spread import ByRank, share_pct
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.quantities.derived.idle import CAUSES, LIMITS
from htk.quantities.derived.idle_totals import cause_numbers
from htk.quantities.measures import hta_conventions
from htk.quantities.measures.breakdown import Compat, Per, build_percent, step_cycles

By = Literal["device", "stream"]
_NO_STEP = np.iinfo(np.int32).max  # what has no number comes last

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    stream=(INT64, "Stream; null: no stream of the device runs anything."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step; null for the whole window, or for what follows the last step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    cause=(TEXT, "What kept it from working."),
    idle_ns=(INT64, "Idle time of that cause."),
    idle_pct=(FLOAT64, "Share of the idle time of its window (device or stream)."),
    count=(INT64, "Gaps that the cause has a part in."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", "idle_ns", "cause"),
    needs=("rank_windows",),
    spread=ByRank(
        totals=("idle_ns", "idle_of_unknown_cause_ns"),
        shares={"idle_of_unknown_cause_pct": ("idle_of_unknown_cause_ns", "idle_ns")},
    ),
)
def idle_breakdown(
    rank_idle_times: Later,
    step_idle_times: Later,
    kernels: Later,
    kernel_links: Later,
    annotations: Later,
    *,
    per: Annotated[Per, "What a row covers: a rank, or each of its GPU steps."] = "rank",
    by: Annotated[
        By, "What a row stands for: gaps of the device, or of each of its streams."
    ] = "device",
    compat: Annotated[Compat | None, "Count as HTA does, to compare with it."] = None,
) -> pa.Table:
    """Why was each GPU idle: was the host late, and doing what?

    host_…: the next activity was not launched yet, and what the launching thread did meanwhile
    (a call that blocks, allocates or loads code, data loading, an operator, Python, …).
    host_runtime_call: it launched, recorded or asked, outside of operators.
    launch_latency: launched at most 30 us before its start, and on its way.
    between_queued_kernels: launched earlier, and next on the stream that ran last.
    inside_cuda_graph: between the nodes of one replay. stream_event_wait: queued behind an event.
    unrecorded_gpu_work_suspected: a call blocks while nothing recorded runs. back_to_back: one
    tick of the GPU's clock, no idleness. Waiting for peers is never here: a GPU that spins in a
    collective is busy. A launch that takes more than 30 us to reach an idle GPU is not latency
    alone; a call that blocks for more than 200 us (beyond what staging its bytes takes) while
    nothing recorded runs waits for what was not recorded; a gap of a tick is 32 ns, 1 ns on ROCm.
    The coverage repeats these limits.

    Compat HTA: host_wait if the launch came after the previous end, kernel_wait if the gap is below
    30 us, else other.
    """
    if compat == "hta":
        hta_conventions.refuse_steps(per)
        return _like_hta(hta_conventions.kept_kernels(kernels(), kernel_links(), annotations()))
    times = (rank_idle_times if per == "rank" else step_idle_times)()
    of_device = ~mark_valid(times["stream"])
    times = times.filter(build_booleans(of_device if by == "device" else ~of_device))
    step = read_keys(times["step"]) if per == "step" else None
    cycle = step_cycles(times, np.full(times.num_rows, -1) if step is None else step)
    who = [read_keys(times[name]) for name in ("rank", "device", "stream")]
    last = np.full(times.num_rows, _NO_STEP) if step is None else np.where(step < 0, _NO_STEP, step)
    groups = Groups.by_keys([*who, cycle, last, cause_numbers(times["cause"])])
    keys, idle = groups.keys, groups.sum(read_numbers(times["idle_ns"]))
    complete = groups.min(read_booleans(times["complete"]).astype(np.int64))
    gaps = groups.sum(read_numbers(times["gaps"]))
    answer = _build_idle_table(keys, idle, gaps, complete, pa.array(CAUSES))
    return with_coverage(answer, **_sum_unexplained(keys, idle, pa.array(CAUSES)))


def _build_idle_table(
    keys: Ints, idle: Ints, count: Ints, complete: Ints, causes: pa.Array
) -> pa.Table:
    window = Groups.by_keys(keys[:, :5])
    share = window.sum(idle)[window.group_ids] if len(window) else idle
    order = np.lexsort((-idle, *keys[:, :5].T[::-1]))
    keys = keys[order]
    idle = idle[order]
    count = count[order]
    complete = complete[order]
    columns = [
        number_or_null(keys[:, 0], INT32),
        number_or_null(keys[:, 1], INT32),
        number_or_null(keys[:, 2], INT64),
        build_numbers(keys[:, 3], INT32, keys[:, 4] < _NO_STEP),
        build_numbers(keys[:, 4], INT32, keys[:, 4] < _NO_STEP),
        build_booleans(complete > 0),
        decode_texts(keys[:, 5], causes),
        build_numbers(idle, INT64),
        build_percent(idle, share[order]),
        build_numbers(count, INT64),
    ]
    return pa.table(columns, schema=RETURNS)


def _sum_unexplained(keys: Ints, idle: Ints, causes: pa.Array) -> dict[str, object]:
    """Return how much of the idle time has no named cause."""
    names = np.array([*causes.to_pylist(), None], object)[keys[:, 5]]
    unknown = int(idle[(names == "unknown")].sum())
    total = int(idle.sum())
    return {
        "idle_ns": total,
        "idle_of_unknown_cause_ns": unknown,
        "idle_of_unknown_cause_pct": share_pct(unknown, total),
        **LIMITS,
    }


def _like_hta(kernels: pa.Table) -> pa.Table:
    """Return the gaps between neighbours of a stream, which may be negative where they overlap."""
    rank = read_keys(kernels["rank"])
    stream = read_numbers(kernels["stream"], NONE)
    start, end = read_times(kernels)
    launch = read_numbers(kernels["launch_start_ns"], NO_TIME)
    order = order_by(rank, stream, start)
    rank = rank[order]
    stream = stream[order]
    start = start[order]
    end = end[order]
    launch = launch[order]
    after = ~mark_heads(rank, stream)
    before = np.append(0, end[:-1])[: len(end)]
    gap = np.where(after, start - before, 0)
    late = after & (launch > NO_TIME) & (launch > before)
    short = after & ~late & (gap < hta_conventions.SHORT_GAP_NS)
    category = np.select([late, short], [0, 1], 2)
    nothing = np.full(len(rank), -1)
    keys = np.stack(
        [rank, nothing, stream, nothing, np.full(len(rank), _NO_STEP), category], axis=1
    )
    groups = Groups.by_keys(keys.astype(np.int64))
    complete = np.ones(len(groups), np.int64)
    causes = pa.array(["host_wait", "kernel_wait", "other"])
    counted = groups.sum(after.astype(np.int64))  # the first of a stream ends no gap
    return _build_idle_table(groups.keys, groups.sum(gap), counted, complete, causes)
