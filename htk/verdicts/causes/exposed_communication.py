"""Communication is exposed: nothing computes beside it."""

import numpy as np
import pyarrow as pa

from htk.base.columns.types import Ints
from htk.quantities.derived.recorded import unrecorded_ranks
from htk.verdicts.causes.cause import Cause, Example
from htk.verdicts.causes.changes import whatif_change
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "communication is exposed"
UNDETERMINED = "exposed communication: wait or transfer, cannot be told"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    moved = exposed_transfer_ns(recorded)
    unknown = int(recorded.split.exposed_undetermined.sum())
    causes = []
    if moved:
        comm = recorded.total_ns("comm_ns")
        hidden = 100 * (comm - recorded.total_ns("exposed_comm_ns")) / max(comm, 1)
        advice = recorded.program.advise(
            "prefetch (FSDP), larger or smaller buckets (DDP), overlap with compute, fewer bytes "
            "(sharding within the node, lower precision)",
            "start transfers sooner, beside compute, on a stream of their own; fewer bytes",
        )
        analysis = "hideable_comm" if recorded.replayed else "comm_compute_overlap"
        cause = Cause(
            FINDING,
            f"{recorded.spent(moved)} of transfers; of communication ({recorded.spent(comm)}) "
            f"{hidden:.0f} % is hidden",
            advice,
            moved,
            analysis,
            example=costliest_call(recorded, recorded.split.rows, recorded.split.exposed_transfer),
            change=whatif_change("overlap", "realistic"),
            is_lost=True,
            is_bound=True,
        )
        causes.append(cause)
    if unknown:
        share = 100 * unknown / max(int(recorded.split.exposed.sum()), 1)
        shown = f"{share:.0f} % of exposed communication"
        causes.append(tell_undetermined(recorded["ranks"], shown, unknown))
    return causes


def exposed_transfer_ns(recorded: CauseEvidence) -> int:
    """Return how long GPUs do nothing but transfer, beside waiting for each other."""
    split = recorded.split
    waited = int(split.exposed_wait.sum()) + int(split.exposed_undetermined.sum())
    return max(recorded.total_ns("exposed_comm_ns") - waited, 0)


def tell_undetermined(ranks: pa.Table, shown: str, unknown_ns: int) -> Cause:
    """Return the time in collectives that may be waiting or transfer: what to do depends on it."""
    missing = unrecorded_ranks(ranks)
    here = len(ranks["rank"].drop_null().unique())
    why = f"{missing} of {missing + here} ranks missing" if missing else "no match on other ranks"
    return Cause(
        UNDETERMINED,
        f"{shown}; {why}",
        "record all ranks of a few steps: what helps depends on which of the two it is",
        unknown_ns,
        "comm_wait",
        is_lost=True,
    )


def costliest_call(recorded: CauseEvidence, rows: Ints, cost: Ints) -> Example | None:
    """Return the collective, of some rows, that costs most."""
    if not len(cost) or not cost.max():
        return None
    row = int(rows[cost.argmax()]) if len(rows) else 0
    calls = recorded.calls.rows
    return Example(int(calls.rank[row]), int(calls.start[row]), int(calls.end[row]))


def waits_in_collectives(recorded: CauseEvidence) -> Ints:
    """Return how long each collective is waited in with nothing beside it, in ns."""
    waited = np.zeros(recorded.calls.rows.length, np.int64)
    waited[recorded.split.rows] = recorded.split.exposed_wait
    return waited
