"""Ranks wait for late ranks: for whom, and what these were late in. Where the recording can be
replayed, causes of the lateness stand for this."""

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE
from htk.quantities.derived.own_time import KINDS
from htk.quantities.measures.blame import blame_ranks
from htk.verdicts.causes.cause import Cause, describe_majority
from htk.verdicts.causes.exposed_communication import costliest_call, waits_in_collectives
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "ranks wait for late ranks"


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    waited = waits_in_collectives(recorded)
    total = int(waited.sum())
    if recorded.replayed is not None or not total:
        return []
    calls = recorded.calls
    blames = blame_ranks(calls, recorded.later("own_times"))
    matched = np.flatnonzero(calls.match != NONE)
    members = Groups.by_keys(calls.match[matched])
    of_match = np.zeros(len(waited), np.int64)
    of_match[matched] = members.sum(waited[matched])[members.group_ids]
    late = np.flatnonzero(blames.blamed & blames.on_all_ranks)
    cost = of_match[late] - waited[late]
    rank = calls.rows.rank[late]
    late_in = [f"in {kind}" for kind in KINDS] + ["on the host"]
    spent = blames.excess[late].sum(axis=0)
    what = f", late {late_in[int(spent.argmax())]}" if spent.any() else ""
    share = 100 * total / max(int(recorded.split.exposed.sum()), 1)
    cause = Cause(
        FINDING,
        f"{share:.0f} % of exposed communication is waiting"
        f"{describe_majority(rank, cost, 'for rank', calls.rows.rank)}{what}",
        "balance the work (tokens, images, pipeline stages) and look at the late rank's host",
        total,
        "stragglers",
        example=costliest_call(recorded, late, cost),
        is_lost=True,
    )
    return [cause]
