"""Which ranks others wait for on their own account, collective by collective."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers, truths, valid
from htk.columns.types import NONE, Ints, Mask
from htk.core.recording_hints import hint
from htk.derived.match import CollectiveRows
from htk.errors import MissingTable
from htk.measures.own_time import KINDS, beyond, fastest_member, own_time


@dataclass(frozen=True)
class Blame:
    """A row for each of `collectives`."""

    rows: CollectiveRows
    matched: Mask
    blamed: Mask  # the others waited for its own time
    held_up: Mask  # they did, but collectives of other groups took most of that time
    lateness: Ints
    cost: Ints  # what others waited for it
    excess: Ints  # its own time beyond the fastest member's, a column for each kind of it


def blame(collectives: pa.Table, matches: pa.Table, activities: pa.Table) -> Blame:
    """Return who is late by its own doing: not for links that are slow or peers that are late in
    its other groups."""
    rows = CollectiveRows(collectives)
    matched = valid(matches["wait_ns"])
    if not matched.any():
        if (matches_of_several := valid(matches["match"]) & ~rows.timed).any():
            raise MissingTable(
                f"{int(matches_of_several.sum())} calls of collectives were recorded without their "
                f"times, so nobody is seen to wait; times need {hint('kernels')}"
            )
        raise MissingTable(
            "no collective was found on two ranks; stragglers need the traces of all ranks of the "
            "job, opened together"
        )
    own = own_time(rows, collectives)
    fastest = fastest_member(own, numbers(matches["match"], NONE), matched)
    excess = beyond(own.parts(activities), fastest)
    lateness = numbers(matches["lateness_ns"], 0)
    late = truths(matches["blamed"])
    held_up = late & (2 * excess[:, KINDS.index("comm")] > lateness)
    cost = np.where(late & ~held_up, numbers(matches["cost_ns"], 0), 0)
    return Blame(rows, matched, late & ~held_up, held_up, lateness, cost, excess)
