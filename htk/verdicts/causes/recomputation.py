"""Activations are recomputed: forward work runs a second time in the backward pass."""

from htk.base.columns.arrow import read_booleans
from htk.verdicts.causes.cause import Cause
from htk.verdicts.causes.changes import whatif_change
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "activations are recomputed"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    work = recorded.work
    again = read_booleans(work.totals["recomputed"])
    recorded_ns = work.take(again, 1.0)
    if not recorded_ns:
        return []
    cause = work.cause(
        again,
        recorded_ns,
        FINDING,
        f"{work.count(again)} activities launched by forward operators inside backward",
        "where memory allows: checkpoint fewer layers, or selectively (keep matrix products and "
        "attention)",
        "memory_peaks",
        whatif_change("checkpointing", "off"),
    )
    return [cause]
