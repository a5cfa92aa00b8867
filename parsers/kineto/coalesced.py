"""What coalesced calls stand for: the group of their members, and messages with their peers.

The kernel of such a call carries no arguments; they stand on the records before it.
"""

import json
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.segments import mark_heads
from htk.base.columns.types import fill_none
from htk.base.names.collectives import dtype_bytes
from htk.parsers.kineto.metadata import take_either, texts_at
from htk.parsers.kineto.pairing import PairedRows, Seen
from htk.parsers.kineto.process_groups import listed_ranks

Rows = NDArray[np.int64]
Messages = list[tuple[str, int | None, int | None]]  # send or recv, the peer, bytes


def first_members(pairs: PairedRows, seen: Seen, length: int) -> Rows:
    """Return the arguments of the first member of each coalesced call; NONE: of no such call."""
    launch, record = pairs.coalesced
    is_first = mark_heads(launch)
    first = fill_none(length)
    first[launch[is_first]] = seen.facts.rows(seen.records.event[record[is_first]])
    return first


def messages_of(pairs: PairedRows, seen: Seen) -> list[Messages]:
    """Return what each coalesced call sends and receives, in order: send or recv, the peer, and how
    many bytes."""
    messages: list[Messages] = [[] for _ in pairs.gpu]
    launch, record = pairs.coalesced
    facts = seen.facts
    rows = facts.rows(seen.records.event[record])
    is_other = ~facts.is_type(rows, "send", "recv")
    moves_messages = ~np.isin(launch, launch[is_other])
    launch = launch[moves_messages]
    rows = rows[moves_messages]
    columns = zip(
        launch.tolist(),
        texts_at(facts.type, rows),
        take_either(facts, rows, "dst_rank", "src_rank").tolist(),
        texts_at(facts.table["pg_ranks"], rows),
        take_either(facts, rows, "rank").tolist(),
        take_either(facts, rows, "in_nelems").tolist(),
        texts_at(facts.table["dtype"], rows),
        strict=True,
    )
    for call, kind, peer, group, stated, elements, dtype in columns:
        other = peer if peer >= 0 else _find_nth_rank(group, stated)
        messages[call].append((kind, other, bytes_of(elements, dtype)))
    return messages


def bytes_of(elements: int, dtype: str | None) -> int | None:
    """Return the bytes of so many elements; None: their number or their type is not known."""
    width = dtype_bytes(dtype or "")
    return None if elements < 0 or width is None else elements * width


def _find_nth_rank(listed: str | None, nth: int) -> int | None:
    """Return a rank of a group that is listed whole."""
    ranks = _ranks_of(listed or "")
    return ranks[nth] if 0 <= nth < len(ranks) else None


@lru_cache(maxsize=256)
def _ranks_of(listed: str) -> list[int]:
    ranks: list[int] = json.loads(listed_ranks(listed) or "[]") if listed else []
    return ranks
