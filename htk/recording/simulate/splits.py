"""What each rank of an all-to-all sends to each other, where these are not all alike."""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import Ints
from htk.recording.simulate.groups import Group


@dataclass(frozen=True, eq=False)
class Splits:
    """Rows of a buffer, by rank and member of its group: sent to it, and received from it."""

    sent: Ints
    received: Ints
    own: Ints  # of each rank, its position in its group
    row_elements: int

    @property
    def sent_away(self) -> Ints:
        """The elements that each rank sends to others."""
        return self._count_away(self.sent)

    @property
    def fullest(self) -> Ints:
        """The elements that each rank sends to others or receives from them, whichever is more."""
        return np.maximum(self._count_away(self.sent), self._count_away(self.received))

    @property
    def returned(self) -> "Splits":
        """The splits of the call that brings all rows back."""
        return Splits(self.received, self.sent, self.own, self.row_elements)

    def elements(self, rank: int) -> tuple[int, int]:
        """Return what goes in and comes out on a rank."""
        into = int(self.sent[rank].sum())
        out = int(self.received[rank].sum())
        return self.row_elements * into, self.row_elements * out

    def _count_away(self, rows: Ints) -> Ints:
        kept = np.take_along_axis(rows, self.own[:, None], axis=1)[:, 0]
        return self.row_elements * np.asarray(rows.sum(axis=1) - kept)


def splits_of(group: Group, sent: Ints, row_elements: int) -> Splits:
    """Return the splits of a call in which ranks send so many rows to each of their group."""
    received = np.empty_like(sent)
    own = np.empty(len(sent), np.int64)
    for members in group.table:
        received[members] = sent[members].T
        own[members] = np.arange(len(members))
    return Splits(sent, received, own, row_elements)


def all_to_next(group: Group, elements: int) -> Splits:
    """Return the splits of a call in which each rank sends all that it has to the next one."""
    sent = np.zeros((group.table.size, group.size), np.int64)
    for members in group.table:
        sent[members] = np.roll(np.eye(group.size, dtype=np.int64), 1, axis=1) * elements
    return splits_of(group, sent, 1)
