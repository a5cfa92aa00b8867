"""Communication against compute, as time on the clock and as kernel time."""

from typing import Annotated

import pyarrow as pa

from htk.base.columns.arrow import build_numbers
from htk.base.core.analysis import Later, analysis
from htk.base.core.chart import Bar
from htk.base.core.spread import BY_RANK
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, table
from htk.quantities.measures.breakdown import (
    Per,
    build_percent,
    build_ratio,
    chosen_times,
    sum_windows,
)

RETURNS = table(
    rank=(INT32, "Global rank."),
    device=(INT32, "GPU index within the process."),
    cycle=(INT32, "Recording of the rank that the step is of; null without a step."),
    step=(INT32, "GPU step; null for the whole window, or for what follows the last step."),
    complete=(BOOL, "False for a step that the recording holds a part of."),
    compute_ns=(INT64, "At least one compute kernel runs."),
    comm_ns=(INT64, "At least one communication kernel runs."),
    compute_kernel_ns=(INT64, "Durations of compute kernels, added up."),
    comm_kernel_ns=(INT64, "Durations of communication kernels, added up."),
    comm_share_of_kernel_time_pct=(FLOAT64, "Communication, of both sums."),
    comm_to_compute=(FLOAT64, "comm_ns / compute_ns; null without compute."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", ("compute_ns", "comm_ns"), stacked=False),
    needs=("rank_windows",),
    spread=BY_RANK,
)
def comm_compute_ratio(
    rank_window_times: Later,
    step_window_times: Later,
    *,
    per: Annotated[Per, "What a row covers: a rank, or each of its GPU steps."] = "rank",
) -> pa.Table:
    """How much does each GPU communicate for what it computes?

    Waiting for other ranks inside a communication kernel counts as communication here.
    """
    windows, times = chosen_times(per, rank_window_times, step_window_times)
    who, sums = sum_windows(
        per,
        windows,
        {
            "compute": times.any("compute"),
            "comm": times.any("comm"),
            "compute_kernel": times.added("compute"),
            "comm_kernel": times.added("comm"),
        },
    )
    columns = [who[k] for k in ("rank", "device", "cycle", "step", "complete")]
    columns += [build_numbers(value, INT64) for value in sums.values()]
    both = sums["compute_kernel"] + sums["comm_kernel"]
    columns += [
        build_percent(sums["comm_kernel"], both),
        build_ratio(sums["comm"], sums["compute"]),
    ]
    return pa.table(columns, schema=RETURNS)
