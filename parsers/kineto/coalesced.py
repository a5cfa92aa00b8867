"""What coalesced calls stand for: the group of their members, and messages with their peers.

The kernel of such a call carries no arguments; they stand on the records before it.
"""

import json

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import NONE
from htk.parsers.kineto.metadata import either, texts_at
from htk.parsers.kineto.pairing import PairedRows, Seen
from htk.parsers.kineto.process_groups import listed_ranks

Rows = NDArray[np.int64]
Messages = list[tuple[str, int | None]]  # send or recv, and the peer


def first_members(pairs: PairedRows, seen: Seen, length: int) -> Rows:
    """Return the arguments of the first member of each coalesced call; NONE: of no such call."""
    first = np.full(length, NONE, np.int64)
    if pairs.members:
        rows = [row for row, _ in pairs.members]
        records = seen.records.event[[members[0] for _, members in pairs.members]]
        first[rows] = seen.facts.rows(records)
    return first


def messages_of(pairs: PairedRows, seen: Seen) -> list[Messages]:
    """Return what each coalesced call sends and receives, in order: send or recv, and the peer."""
    messages: list[Messages] = [[] for _ in pairs.gpu]
    if not pairs.members:
        return messages
    facts = seen.facts
    rows = facts.rows(seen.records.event)
    kinds = texts_at(facts.type, rows)
    groups = texts_at(facts.table["pg_ranks"], rows)
    peer, stated = either(facts, rows, "dst_rank", "src_rank"), either(facts, rows, "rank")
    for row, members in pairs.members:
        if all(kinds[m] in ("send", "recv") for m in members.tolist()):
            messages[row] = [
                (kinds[m], int(peer[m]) if peer[m] >= 0 else _nth(groups[m], int(stated[m])))
                for m in members.tolist()
            ]
    return messages


def _nth(listed: str | None, nth: int) -> int | None:
    """Return a rank of a group that is listed whole."""
    ranks = json.loads((listed and listed_ranks(listed)) or "[]")
    return ranks[nth] if 0 <= nth < len(ranks) else None
