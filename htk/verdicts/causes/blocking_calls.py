"""Synchronising calls drain the GPU."""

import numpy as np

from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import whatif_change
from htk.verdicts.causes.idle_cause import idle_cause
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "synchronising calls drain the GPU"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    """Return the idle time during such calls, and after them until the GPU has work again."""
    idle = recorded.idle
    cost = np.where(idle.of_causes(("host_sync",)), idle.length, idle.blocked)
    advice = recorded.program.advise(
        "keep values on the GPU (no .item, no print of tensors), copy from pinned memory with "
        "non_blocking=True, log every n steps",
        "wait for an event of the work that is needed, not for the stream or device; copy "
        "asynchronously from pinned memory",
    )
    change = whatif_change("remove_syncs")
    return idle_cause(recorded, FINDING, cost, advice, change, is_bound=True, of_calls=True)
