"""What coalesced calls stand for: the group of their members, and messages with their peers.

The kernel of such a call carries no arguments; they stand on the records before it.
"""

import json

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.types import fill_none
from htk.base.names.collectives import dtype_bytes
from htk.parsers.kineto.metadata import either, texts_at
from htk.parsers.kineto.pairing import PairedRows, Seen
from htk.parsers.kineto.process_groups import listed_ranks

Rows = NDArray[np.int64]
Messages = list[tuple[str, int | None, int | None]]  # send or recv, the peer, bytes


def first_members(pairs: PairedRows, seen: Seen, length: int) -> Rows:
    """Return the arguments of the first member of each coalesced call; NONE: of no such call."""
    first = fill_none(length)
    if pairs.members:
        rows = [row for row, _ in pairs.members]
        records = seen.records.event[[members[0] for _, members in pairs.members]]
        first[rows] = seen.facts.rows(records)
    return first


def messages_of(pairs: PairedRows, seen: Seen) -> list[Messages]:
    """Return what each coalesced call sends and receives, in order: send or recv, the peer, and how
    many bytes."""
    messages: list[Messages] = [[] for _ in pairs.gpu]
    if not pairs.members:
        return messages
    facts = seen.facts
    rows = facts.rows(seen.records.event)
    kinds = texts_at(facts.type, rows)
    groups = texts_at(facts.table["pg_ranks"], rows)
    peer = either(facts, rows, "dst_rank", "src_rank")
    stated = either(facts, rows, "rank")
    elements = either(facts, rows, "in_nelems")
    dtype = texts_at(facts.table["dtype"], rows)
    for row, members in pairs.members:
        if all(kinds[m] in ("send", "recv") for m in members.tolist()):
            messages[row] = [
                (
                    kinds[m],
                    int(peer[m]) if peer[m] >= 0 else _nth(groups[m], int(stated[m])),
                    bytes_of(int(elements[m]), dtype[m]),
                )
                for m in members.tolist()
            ]
    return messages


def bytes_of(elements: int, dtype: str | None) -> int | None:
    """Return the bytes of so many elements; None: their number or their type is not known."""
    width = dtype_bytes(dtype or "")
    return None if elements < 0 or width is None else elements * width


def _nth(listed: str | None, nth: int) -> int | None:
    """Return a rank of a group that is listed whole."""
    ranks = json.loads((listed and listed_ranks(listed)) or "[]")
    return ranks[nth] if 0 <= nth < len(ranks) else None
