"""Memory is allocated inside the step; where it is full, memory is given back for that first."""

import numpy as np

from htk.base.columns.types import Mask
from htk.quantities.derived.host_states import ALLOCATION
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import without_stalls
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "memory is allocated from the driver inside the step"
FULL = "the caching allocator is full: it frees and allocates inside the step"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    cost = recorded.idle.own_cost("host_allocation")
    finding = FULL if _steps_that_free(recorded, cost > 0) > 1 else FINDING
    advice = recorded.program.advise(
        "less memory: activation checkpointing, smaller micro-batches with accumulation, more "
        "sharding; against fragments expandable_segments:True"
        if finding == FULL
        else "expandable_segments:True, allocate once, leave reserve memory to the caching "
        "allocator",
        "allocate once, before the first step, or from a pool"
        + recorded.program.name_tools("cudaMallocAsync, hipMallocAsync"),
    )
    return idle_cause(recorded, finding, cost, advice, without_stalls(ALLOCATION))


def _steps_that_free(recorded: CauseEvidence, rows: Mask) -> int:
    """Return in how many steps memory is given back to the driver while a GPU is idle for it. A job
    that starts up does so once, or in no step."""
    idle = recorded.idle
    freed = rows & idle.frees & (idle.step >= 0)
    return len(np.unique(np.column_stack([idle.cycle, idle.step])[freed], axis=0))
