"""Messages of calls that send and receive several: each by itself.

A batch of sends and receives (`batch_isend_irecv`) is one kernel. Which call of another rank it
meets is told by its messages: the n-th that one rank sends to another is the n-th that this one
receives from it.
"""

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, number, numbers, text, with_column
from htk.base.columns.groups import Groups
from htk.base.columns.segments import repeated
from htk.base.columns.types import NONE, Ints

_TYPES = ("send", "recv")


def one_row_a_message(collectives: pa.Table) -> tuple[pa.Table, Ints]:
    """Return collectives with a row for each message of a call that has several, `type` and `peer`
    of its own; and the row that each comes from."""
    codes, listed = codes_of(collectives["messages"])
    several = [json.loads(messages or "[]") for messages in [*listed.to_pylist(), None]]
    count = np.array([max(len(messages), 1) for messages in several])[codes]
    row, nth = repeated(count)
    if codes.max(initial=NONE) == NONE:
        return collectives, row
    table = collectives.take(pa.array(row))
    flat = [entry for messages in several for entry in messages or [(None, None)]]
    first = np.cumsum([0, *(max(len(messages), 1) for messages in several)])[:-1]
    entry = first[codes[row]] + nth
    sort = np.array([_TYPES.index(kind) if kind else NONE for kind, _ in flat])[entry]
    peer = np.array([NONE if peer is None else peer for _, peer in flat], np.int64)[entry]
    own_type, types = codes_of(table["type"])
    vocabulary = [*_TYPES, *types.to_pylist()]
    type_ = np.where(sort == NONE, np.where(own_type < 0, NONE, own_type + len(_TYPES)), sort)
    peer = np.where(sort == NONE, numbers(table["peer"], NONE), peer)
    table = with_column(table, "type", text(type_, pa.array(vocabulary)))
    return with_column(table, "peer", number(peer, pa.int32(), peer >= 0)), row


def meeting_calls(collectives: pa.Table, ends: Callable[[pa.Table], Ints]) -> tuple[Ints, Ints]:
    """Return the calls that exchange messages, and a number for each that two of them share; NONE
    where the messages of one are not those of one other.

    `ends` numbers messages of a table with a row for each: equal for the two ends of one.
    """
    table, row = one_row_a_message(collectives)
    end = ends(table)
    chosen = np.flatnonzero(end != NONE)
    call = row[chosen]
    pairs = Groups.by_keys(end[chosen])
    other = (pairs.min(call) + pairs.max(call))[pairs.group_ids] - call
    other = np.where((pairs.count == 2)[pairs.group_ids], other, NONE)
    calls = Groups.by_keys(call)
    least, most = calls.min(other), calls.max(other)
    partner = np.full(collectives.num_rows + 1, NONE, np.int64)
    rows = calls.keys[:, 0]
    partner[rows] = np.where(least == most, most, NONE)
    mutual = partner[partner[rows]] == rows
    return rows, np.where(mutual, np.minimum(rows, partner[rows]), NONE)
