"""A host launches slower than the same calls are launched in other steps and on other ranks."""

import numpy as np

from htk.verdicts.causes.cause import Cause, describe_majority
from htk.verdicts.causes.changes import launching_beyond_usual, usual_host
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "a host launches slower than usual"
_LEAST_PCT = 20.0  # of its launching: less is the spread of hosts


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    if recorded.replayed is None:
        return []
    model = recorded.replayed.model
    rank, step, usual, beyond = launching_beyond_usual(model)
    slow = beyond * 100 > _LEAST_PCT * usual
    if not slow.any():
        return []
    cost = np.where(slow, beyond, 0)
    worst = int(cost.argmax())
    where = describe_majority(rank, cost, "on rank", rank) + describe_majority(
        step, cost, "in step", step
    )
    times = 1 + beyond[worst] / max(int(usual[worst]), 1)
    cause = Cause(
        FINDING,
        f"rank {rank[worst]} takes {times:.1f}x as long for the same calls{where}",
        "look at what else its CPU does then: other processes, pinning of threads, power limits, "
        "a profiler or logger on that rank",
        int(cost.sum()),
        "host_stalls",
        change=usual_host(),
    )
    return [cause]
