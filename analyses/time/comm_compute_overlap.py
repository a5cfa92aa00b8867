"""How much communication hides behind compute."""

from typing import Annotated

import pyarrow as pa

from htk.analysis import analysis
from htk.arrow import number
from htk.breakdown import Per, chosen_windows, kind_times, percent, summed
from htk.chart import Bar
from htk.schema import table

RETURNS = table(
    rank=(pa.int32(), "Global rank."),
    device=(pa.int32(), "GPU index within the process."),
    step=(pa.int32(), "GPU step; null for the whole window, or for what follows the last step."),
    complete=(pa.bool_(), "False for a step that the end of the recording cut off."),
    comm_ns=(pa.int64(), "At least one communication kernel runs."),
    compute_ns=(pa.int64(), "At least one compute kernel runs."),
    overlap_ns=(pa.int64(), "Both run."),
    overlap_pct=(pa.float64(), "Overlap, of communication; null without communication."),
    exposed_comm_ns=(pa.int64(), "Communication runs and no compute does."),
)


@analysis(
    returns=RETURNS,
    chart=Bar("rank", ("overlap_ns", "exposed_comm_ns")),
    needs=("rank_windows",),
)
def comm_compute_overlap(
    activities: pa.Table,
    rank_windows: pa.Table,
    step_windows: pa.Table,
    *,
    per: Annotated[Per, "A row for each rank, or for each GPU step of each rank."] = "rank",
) -> pa.Table:
    """How much of the communication is hidden behind compute?"""
    windows = chosen_windows(per, rank_windows, step_windows)
    _, times = kind_times(activities, windows)
    who, sums = summed(
        per,
        windows,
        {
            "comm": times[:, [2, 3, 6, 7]].sum(axis=1),
            "compute": times[:, [1, 3, 5, 7]].sum(axis=1),
            "overlap": times[:, [3, 7]].sum(axis=1),
            "exposed": times[:, [2, 6]].sum(axis=1),
        },
    )
    return pa.table(
        [
            who["rank"],
            who["device"],
            who["step"],
            who["complete"],
            number(sums["comm"], pa.int64()),
            number(sums["compute"], pa.int64()),
            number(sums["overlap"], pa.int64()),
            percent(sums["overlap"], sums["comm"]),
            number(sums["exposed"], pa.int64()),
        ],
        schema=RETURNS,
    )
