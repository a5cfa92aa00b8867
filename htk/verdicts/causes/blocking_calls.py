"""Synchronising calls drain the GPU."""

import numpy as np

from htk.verdicts.causes.cause import Cause, costliest, longest
from htk.verdicts.causes.changes import whatif_change
from htk.verdicts.causes.idle_cause import idle_in_words
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "synchronising calls drain the GPU"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    """Return the idle time during such calls, and after them until the GPU has work again."""
    idle = recorded.idle
    cost = np.where(idle.of_causes(("host_sync",)), idle.length, idle.blocked)
    rows = cost > 0
    if not rows.any():
        return []
    events = costliest(idle.names, idle.name[rows], cost[rows])
    start = idle.longest_start[rows]
    advice = recorded.program.advise(
        "keep values on the GPU (no .item, no print of tensors), copy from pinned memory with "
        "non_blocking=True, log every n steps",
        "wait for an event of the work that is needed, not for the stream or device; copy "
        "asynchronously from pinned memory",
    )
    meanwhile = f"; meanwhile {', '.join(events)}" if events else ""
    cause = Cause(
        FINDING,
        f"GPU idle: {idle_in_words(recorded, cost)}{meanwhile}",
        advice,
        int(cost.sum()),
        "host_stalls",
        events,
        longest(idle.rank[rows], start, start + idle.longest_ns[rows]),
        change=whatif_change("remove_syncs"),
        is_lost=True,
        is_bound=True,
    )
    return [cause]
