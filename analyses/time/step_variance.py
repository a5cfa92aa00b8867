"""Why some steps take longer than others."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_booleans,
    build_numbers,
    codes_of,
    mark_valid,
    read_booleans,
)
from htk.base.columns.groups import Groups
from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, table
from htk.quantities.derived.window_times import times_within
from htk.quantities.derived.windows import WindowedSpans, fill_windows, kinds_of
from htk.quantities.measures.breakdown import build_percent

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    duration_ns=(INT64, "GPU step time."),
    excess_ns=(INT64, "That less the step time of the median step."),
    kernel_speed_ns=(INT64, "Of the excess: the same kernels ran slower (or faster)."),
    work_ns=(INT64, "Of the excess: more kernels ran (or fewer, or others)."),
    wait_ns=(INT64, "Of the excess: communication without compute, waiting included."),
    host_ns=(INT64, "Of the excess: idle time."),
    overlap_ns=(INT64, "Of the excess: what runs at the same time, and so adds nothing."),
    excess_pct=(FLOAT64, "Excess, of the median step time."),
)


_DIGITS = 6  # of a nanosecond: halves stay halves, in whatever order they were added up


class _Parts(NamedTuple):
    speed: Ints
    work: Ints


@analysis(
    returns=RETURNS,
    chart=Bar("step", ("kernel_speed_ns", "work_ns", "wait_ns", "host_ns", "overlap_ns")),
    needs=("step_windows",),
)
def step_variance(activities: pa.Table, step_windows: pa.Table) -> pa.Table:
    """Why do some steps take longer than the median step: kernels, work, waiting or the host?

    All steps of all ranks are compared with one of them, the step of median length (the lower of
    two). The five parts add up to the excess exactly.
    """
    windows = step_windows.filter(pa.array(mark_valid(step_windows["step"])))
    filled = fill_windows(activities, windows)
    times = times_within(activities, filled)
    complete = read_booleans(windows["complete"])
    reference = _find_median_row(times.total, complete)
    exposed = times.exposed("comm", "compute", "memory")
    idle = times.idle
    excess = _subtract_reference(times.total, reference)
    parts = _split_kernels(filled, activities, reference)
    wait = _subtract_reference(exposed, reference)
    host = _subtract_reference(idle, reference)
    overlap = excess - parts.speed - parts.work - wait - host
    median = np.full(len(excess), times.total[reference] if len(excess) else 0)
    columns = [windows[c] for c in ("rank", "device", "cycle", "step")] + [build_booleans(complete)]
    columns += [build_numbers(times.total, INT64), build_numbers(excess, INT64)]
    columns += [build_numbers(p, INT64) for p in (parts.speed, parts.work, wait, host, overlap)]
    columns += [build_percent(excess, median)]
    return with_coverage(
        pa.table(columns, schema=RETURNS), **_describe_reference(windows, reference)
    )


def _describe_reference(windows: pa.Table, row: int) -> dict[str, object]:
    if not windows.num_rows:
        return {}
    return {"median_step": windows["step"][row].as_py(), "of_rank": windows["rank"][row].as_py()}


def _find_median_row(length: Ints, complete: np.ndarray) -> int:
    """Return the row of median length among complete steps."""
    rows = np.flatnonzero(complete) if complete.any() else np.arange(len(length))
    order = rows[order_by(length[rows])]
    return int(order[(len(order) - 1) // 2]) if len(order) else 0


def _subtract_reference(values: Ints, reference: int) -> Ints:
    return values - values[reference] if len(values) else values


def _split_kernels(filled: WindowedSpans, activities: pa.Table, reference: int) -> _Parts:
    """Compute, copies and sets against the reference: their speed, and their number.

    What occurs in both at n and n0 times, with means m and m0, is slower by min(n, n0)·(m - m0);
    the rest of the difference is work.
    """
    count = len(filled.length)
    not_comm = ~kinds_of(activities, filled.row).equals("comm")
    not_comm &= filled.length[filled.window] > 0  # a step may take no time, and so hold nothing
    name = codes_of(activities["name"])[0][filled.row[not_comm]].astype(np.int64)
    groups = Groups.by_keys(np.stack([filled.window[not_comm], name], axis=1))
    total = groups.sum((filled.end - filled.start)[not_comm])
    many = groups.count
    window = groups.keys[:, 0]
    code = groups.keys[:, 1]
    codes = int(code.max(initial=0)) + 1
    base_total = np.zeros(codes, np.int64)
    base_many = np.zeros(codes, np.int64)
    in_base = window == reference
    base_total[code[in_base]] = total[in_base]
    base_many[code[in_base]] = many[in_base]
    both = base_many[code] > 0
    mean0 = base_total[code] / np.maximum(base_many[code], 1)
    slower = np.where(both, np.minimum(many, base_many[code]) * (total / many - mean0), 0)
    speed_ns = np.bincount(window, slower, minlength=count)[:count]
    speed = np.rint(speed_ns.round(_DIGITS)).astype(np.int64)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, window, total)
    return _Parts(speed, _subtract_reference(sums, reference) - speed)
