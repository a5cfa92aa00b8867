"""Why of a collective wait and transfer are unknown, or known in part."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import decode_texts, match_texts
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Ints, Mask
from htk.quantities.derived.collective_rows import SILENT, CollectiveRows
from htk.quantities.derived.waits import Waits

ALONE = "a group of one rank"
LONELY = "no other rank of its group was recorded"
UNMET = "no counterpart on the other ranks"
UNKNOWN_PEERS = "which calls its messages meet was not recorded"
UNTIMED = "not timed"
WATCHED = "times are those of the watchdog"
ROOTLESS = "its root is unknown or was not recorded"
MOVES_NOTHING = "moves nothing"
UNTOLD = "its group is not recorded: which ranks took part cannot be told"
LACKING = "ranks of its group are not recorded: known in part"
INCOMPARABLE = "the clocks of its ranks cannot be compared: they share no collective or message"
TOO_MANY = "more ranks than its group has made a call like it: whose it is cannot be told"
APART = "calls that would be one did not run at one time on their host's clock"
REASONS = (
    ALONE, LONELY, UNMET, UNKNOWN_PEERS, UNTIMED, WATCHED, ROOTLESS, MOVES_NOTHING, UNTOLD, LACKING,
    INCOMPARABLE, TOO_MANY, APART,
)  # fmt: skip


@dataclass(frozen=True)
class FoundMatches:
    """The match of each row, and how many ranks it was found on."""

    match: Ints  # NONE: unmatched
    present: Ints  # ranks that took part
    too_many: Mask  # more ranks share a slot than their group has: they are no one call
    apart: Mask  # those of a slot did not run at one time


def list_reasons(
    rows: CollectiveRows, matches: FoundMatches, waited: Waits, lacking: Mask
) -> pa.Array:
    """Return why wait and transfer are unknown, or known in part."""
    lonely = _mark_lonely(rows)
    watched = match_texts(rows.table["timing"], "watchdog".__eq__)
    grouped = rows.is_type("send_recv")
    unmatched = matches.match == NONE
    cases = {
        MOVES_NOTHING: rows.is_type(*SILENT),
        ALONE: rows.group_size == 1,
        TOO_MANY: matches.too_many,
        APART: matches.apart,
        LONELY: unmatched & lonely,
        UNKNOWN_PEERS: unmatched & grouped,
        UNTOLD: unmatched & (rows.unnamed_group == NONE),
        UNMET: unmatched,
        WATCHED: watched,
        UNTIMED: ~rows.timed,
        ROOTLESS: ~waited.has_wait,
    }
    codes = [REASONS.index(reason) for reason in cases]
    code = np.select([~waited.has_wait & c for c in cases.values()], codes, NONE)
    return decode_texts(np.where(lacking, REASONS.index(LACKING), code), pa.array(REASONS))


def _mark_lonely(rows: CollectiveRows) -> Mask:
    """Return the rows whose group no other rank has any row of."""
    groups = Groups.by_keys(rows.group)
    if not len(groups):
        return np.empty(0, bool)
    alone: Mask = (groups.min(rows.rank) == groups.max(rows.rank))[groups.group_ids]
    return alone
