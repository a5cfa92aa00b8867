"""How much is believed of the numbers that a file states about its job.

A number in a file is a budget, not a size: nothing is allocated, or written out, for one that is
beyond what any job has. It is said and ignored. A list that a file states by its first rank, its
length and its stride is written out only while all such lists of the file stay within bounds.
"""

import json
from typing import NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray


class StatedCount(NamedTuple):
    """The numbers of one kind that are believed."""

    least: int
    most: int

    def believes(self, number: object) -> TypeGuard[int]:
        """Return whether it is a whole number that a file may state; `true` is an int in Python."""
        if isinstance(number, bool) or not isinstance(number, int):
            return False
        return self.least <= number <= self.most

    def believes_each(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.asarray((numbers >= self.least) & (numbers <= self.most))


RANK = StatedCount(0, 1 << 20)
RANKS = StatedCount(1, 1 << 20)  # of a world, of a group
DEVICES = StatedCount(0, 1 << 20)
DEVICE = StatedCount(0, (1 << 16) - 1)
INDEX = StatedCount(0, (1 << 31) - 1)  # of a stage, a step, a process: what columns hold
STEP = StatedCount(1 - (1 << 31), (1 << 31) - 1)
MEMBERS = StatedCount(0, 100_000)  # of an archive
SAMPLES = StatedCount(0, 1 << 21)  # of counters
STORED_BYTES = StatedCount(0, 1 << 40)  # of a file: limits of time and memory follow from it
MOST_LEVELS = 1 << 12  # of calls within calls
MOST_ROWS = 1 << 17  # of ranks that a file states and does not name
_MOST_LISTED = 1 << 22  # ranks, in all lists that it states by first and stride


class Allowance:
    """How much one file may have written out that it does not hold."""

    def __init__(self, most: int) -> None:
        self._left = most

    def takes(self, count: int) -> bool:
        """Return whether there is room for so many more, which is then taken."""
        has_room = 0 <= count <= self._left
        self._left -= count if has_room else 0
        return has_room


class RankLists:
    """Lists of ranks that one file states without naming each."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int, int], str] = {}
        self._allowance = Allowance(_MOST_LISTED)

    def text(self, first: int, size: int, stride: int) -> str | None:
        """Return a list in compact JSON; None: no job has such a group, or there were too many."""
        asked = first, size, stride
        if asked not in self._texts:
            is_regular = RANK.believes(first) and RANKS.believes(size) and stride > 0
            if not is_regular or not RANK.believes(first + stride * (size - 1)):
                return None
            if not self._allowance.takes(size):
                return None
            ranks = list(range(first, first + stride * size, stride))
            self._texts[asked] = json.dumps(ranks, separators=(",", ":"))
        return self._texts[asked]
