"""Ranks wait for a rank that computes longer, though its GPU is as fast as the others."""

import numpy as np

from htk.base.core.humanize import format_duration
from htk.quantities.measures.common_steps import comparable_compute
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import even_compute
from htk.verdicts.causes.recorded import CauseEvidence
from htk.verdicts.causes.slow_gpu import SLOWER_PCT, slowness

FINDING = "ranks wait for a rank that computes longer"
_LEAST_PCT = 5.0  # compute of the busiest rank beyond the mean; less is the noise of GPUs


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    times = comparable_compute(recorded["time_breakdown"], recorded.later("step_window_times"))
    rank, compute, where = times
    slower = {r: pct for r, pct in slowness(recorded).items() if pct >= SLOWER_PCT}
    work = compute / (1 + np.array([slower.get(r, 0.0) for r in rank.tolist()]) / 100)
    mean = float(work.mean()) if len(work) else 0.0
    if not mean or not recorded.total_ns("comm_ns"):
        return []
    busiest = int(work.argmax())
    over = round(float(work[busiest]) - mean)
    if 100.0 * over < _LEAST_PCT * mean:
        return []
    cause = Cause(
        FINDING,
        f"{where}rank {rank[busiest]} computes {format_duration(round(work[busiest]))}, the mean "
        f"is {format_duration(round(mean))}, the least {format_duration(round(work.min()))}",
        "equal work for all ranks: sequence lengths, experts, layers of a pipeline's stages",
        over * len(work),
        "stragglers",
        change=even_compute(),
    )
    return [cause]
