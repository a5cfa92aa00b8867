"""Why of a collective wait and transfer are unknown, or known in part."""

from typing import Protocol

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import matching, text
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask
from htk.quantities.derived.waits import Waits

SILENT = ("wait", "split", "new_window")  # they move nothing
LACKING = "ranks of its group are not recorded: known in part"
UNTOLD = "its group is not recorded: which ranks took part cannot be told"
INCOMPARABLE = "the clocks of its ranks cannot be compared: they share no collective or message"
TOO_MANY = "more ranks than its group has made a call like it: whose it is cannot be told"
REASONS = (
    "a group of one rank",
    "no other rank of its group was recorded",
    "no counterpart on the other ranks",
    "which calls its messages meet was not recorded",
    "not timed",
    "times are those of the watchdog",
    "its root is unknown or was not recorded",
    "moves nothing",
    UNTOLD,
    LACKING,
    INCOMPARABLE,
    TOO_MANY,
)


class MatchedRows(Protocol):
    """What matching found, row by row."""

    @property
    def match(self) -> Ints: ...

    @property
    def too_many(self) -> Mask: ...


class ReasonRows(Protocol):
    """What is read of collectives, row by row."""

    table: pa.Table
    rank: Ints
    group_size: Ints
    timed: Mask

    @property
    def group(self) -> Ints: ...

    @property
    def unnamed_group(self) -> Ints: ...

    def is_type(self, *wanted: str) -> Mask: ...


def reasons(rows: ReasonRows, matches: MatchedRows, waited: Waits, lacking: Mask) -> pa.Array:
    """Return why wait and transfer are unknown, or known in part."""
    lonely = _lonely(rows)
    watched = matching(rows.table["timing"], "watchdog".__eq__)
    grouped = rows.is_type("send_recv")
    unmatched = matches.match == NONE
    cases = [
        rows.is_type(*SILENT),
        rows.group_size == 1,
        matches.too_many,
        unmatched & lonely,
        unmatched & grouped,
        unmatched & (rows.unnamed_group == NONE),
        unmatched,
        watched,
        ~rows.timed,
        ~waited.has_wait,
    ]
    code = np.select([~waited.has_wait & c for c in cases], [7, 0, 11, 1, 3, 8, 2, 5, 4, 6], NONE)
    return text(np.where(lacking, REASONS.index(LACKING), code), pa.array(REASONS))


def _lonely(rows: ReasonRows) -> Mask:
    """Return the rows whose group no other rank has any row of."""
    groups = Groups.by_keys(rows.group)
    if not len(groups):
        return np.empty(0, bool)
    alone: Mask = (groups.min(rows.rank) == groups.max(rows.rank))[groups.group_ids]
    return alone
