"""Messages of calls that send and receive several: each by itself.

A batch of sends and receives (`batch_isend_irecv`) is one kernel. Which calls of other ranks it
meets is told by its messages: the n-th that one rank sends to another is the n-th that this one
receives from it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, decode_texts, number_or_null, read_numbers, with_column
from htk.base.columns.groups import Groups
from htk.base.columns.segments import repeat_rows
from htk.base.columns.types import NONE, Ints
from htk.base.schema import INT32, INT64

_TYPES = ("send", "recv")


def one_row_a_message(collectives: pa.Table) -> tuple[pa.Table, Ints]:
    """Return collectives with a row for each message of a call that has several, of its own type,
    peer and bytes; and the row that each comes from."""
    codes, listed = codes_of(collectives["messages"])
    several = [json.loads(messages or "[]") for messages in [*listed.to_pylist(), None]]
    count = np.array([max(len(messages), 1) for messages in several])[codes]
    row, nth = repeat_rows(count)
    if codes.max(initial=NONE) == NONE:
        return collectives, row
    table = collectives.take(pa.array(row))
    flat = [(*entry, None)[:3] for messages in several for entry in messages or [(None, None)]]
    first = np.cumsum([0, *(max(len(messages), 1) for messages in several)])[:-1]
    entry = first[codes[row]] + nth
    sort = np.array([_TYPES.index(kind) if kind else NONE for kind, _, _ in flat])[entry]
    peer = _replace_none([message[1] for message in flat])[entry]
    size = _replace_none([message[2] for message in flat])[entry]
    for name in ("in_bytes", "out_bytes"):
        of_message = np.where(sort == NONE, read_numbers(table[name], NONE), size)
        table = with_column(table, name, number_or_null(of_message, INT64))
    own_type, types = codes_of(table["type"])
    vocabulary = [*_TYPES, *types.to_pylist()]
    type_ = np.where(sort == NONE, np.where(own_type < 0, NONE, own_type + len(_TYPES)), sort)
    peer = np.where(sort == NONE, read_numbers(table["peer"], NONE), peer)
    table = with_column(table, "type", decode_texts(type_, pa.array(vocabulary)))
    return with_column(table, "peer", number_or_null(peer, INT32)), row


def _replace_none(values: list[int | None]) -> Ints:
    return np.array([NONE if value is None else value for value in values], np.int64)


@dataclass(frozen=True)
class Meetings:
    """Pairs of calls that hold the two ends of a message, each pair both ways, once."""

    call: Ints
    other: Ints

    def components(self, length: int) -> Ints:
        """Return a number for each of so many calls, equal for those linked by any messages."""
        label = np.arange(length)
        while True:
            lower = label.copy()
            np.minimum.at(lower, label[self.call], label[self.other])
            while (lower[lower] != lower).any():
                lower = lower[lower]
            if np.array_equal(lower, label):
                return label
            label = lower


def find_meetings(collectives: pa.Table, ends: Callable[[pa.Table], Ints]) -> Meetings:
    """Return which calls exchange messages.

    `ends` numbers messages of a table with a row for each: equal for the two ends of one.
    """
    table, row = one_row_a_message(collectives)
    end = ends(table)
    chosen = np.flatnonzero(end != NONE)
    ends_of_one = Groups.by_keys(end[chosen])
    call = row[chosen]
    other = (ends_of_one.min(call) + ends_of_one.max(call))[ends_of_one.group_ids] - call
    met = (ends_of_one.count == 2)[ends_of_one.group_ids] & (other != call)
    pairs = Groups.by_keys([call[met], other[met]]).keys
    return Meetings(pairs[:, 0], pairs[:, 1])


def peers_of_calls(messages: pa.ChunkedArray) -> Ints:
    """Return how many other ranks each call exchanges messages with (0: not a call of several)."""
    codes, listed = codes_of(messages)
    count = [len({peer for _, peer, *_ in json.loads(text)}) for text in listed.to_pylist()]
    return np.array([*count, 0], np.int64)[codes]
