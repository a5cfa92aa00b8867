"""Ranks wait for a rank that computes longer, though its GPU is as fast as the others.

Where the recording cannot be replayed, `late_ranks` says for whom ranks wait, and in what.
"""

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE
from htk.base.core.humanize import format_duration
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import even_compute, work_of_ranks
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "ranks wait for a rank that computes longer"
_LEAST_PCT = 5.0  # compute of the busiest rank beyond the mean; less is the noise of GPUs


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    if recorded.replayed is None or not recorded.total_ns("comm_ns"):
        return []
    model = recorded.replayed.model
    ranks, work = work_of_ranks(model)
    step = read_numbers(model.facts.tables["kernel_links"]["step"], NONE)[model.facts.rows]
    own_steps = Groups.by_keys([ranks.group_ids, step]).keys[:, 0]  # a file may end before others
    work = work / np.bincount(own_steps)
    rank = ranks.keys[:, 0]
    mean = float(work.mean())
    busiest = int(work.argmax())
    over = float(work[busiest]) - mean
    if 100.0 * over < _LEAST_PCT * mean:
        return []
    most = format_duration(round(work[busiest]))
    usual = format_duration(round(mean))
    least = format_duration(round(work.min()))
    cause = Cause(
        FINDING,
        f"rank {rank[busiest]} computes {most} a step, the mean is {usual}, the least {least}",
        "equal work for all ranks: sequence lengths, experts, layers of a pipeline's stages",
        round(over * recorded.steps * recorded.gpus),
        "stragglers",
        change=even_compute(),
    )
    return [cause]
