"""Ends that ranks leave at once, and guessed matches that the certain ones contradict."""

from dataclasses import dataclass

import numpy as np

from htk.base.columns.types import NONE, Ints, Mask
from htk.quantities.derived.clock_ends import certain_ends, common_ends, mark_contradicted

US = 1000


@dataclass(frozen=True)
class Rows:
    rank: Ints
    start: Ints
    end: Ints
    timed: Mask
    types: tuple[str, ...]

    def is_type(self, *wanted: str) -> Mask:
        return np.array([t in wanted for t in self.types], bool)


def rows(*listed: tuple[int, int, int, str]) -> Rows:
    """Rank, start, end in us (end -1: not timed), type."""
    rank, start, end = (
        np.array(column, np.int64) for column in list(zip(*listed, strict=True))[:3]
    )
    types = tuple(row[3] for row in listed)
    return Rows(rank, start * US, end * US, end >= 0, types)


def test_ends_of_what_several_ranks_leave_at_once() -> None:
    recorded = rows(
        (7, 0, 10, "all_reduce"),  # 0: match 4, with rank 2
        (7, 20, 30, "broadcast"),  # 1: its root may leave early
        (2, 5, 11, "all_reduce"),  # 2
        (2, 25, 31, "broadcast"),
        (7, 40, 50, "all_reduce"),  # 4: recorded by one rank
        (7, 60, -1, "all_reduce"),  # 5: not timed
        (2, 61, 70, "all_reduce"),
        (2, 80, 90, "all_reduce"),  # 7: not matched
    )
    match = np.array([4, 5, 4, 5, 6, 8, 8, NONE])
    ends = common_ends(recorded, match, np.array([2, 7]))
    assert ends.collective.tolist() == [0, 0]
    assert ends.process.tolist() == [0, 1], "rank 2 is the first process"
    assert ends.start.tolist() == [5 * US, 0] and ends.end.tolist() == [11 * US, 10 * US]
    assert ends.processes == 2


def test_a_guess_that_ends_apart_is_contradicted() -> None:
    """Rank 1's clock is 500 us ahead, as twelve certain collectives tell. Of two guesses one ends
    at one time on that clock, and one 300 us apart."""
    listed, match = [], []
    for k in range(12):
        end = 1000 * (k + 1)
        listed += [
            (0, end - 100 - k, end, "all_reduce"),
            (1, end + 450 - k, end + 500, "all_reduce"),
        ]
        match += [k, k]
    for k, apart in ((12, 0), (13, 300)):
        end = 1000 * (k + 1)
        listed += [
            (0, end - 90, end, "all_reduce"),
            (1, end + 460, end + 500 + apart, "all_reduce"),
        ]
        match += [k, k]
    guessed = np.array(match) >= 12
    recorded, matches = rows(*listed), np.array(match)
    certain = certain_ends(recorded, np.where(guessed, NONE, matches))
    wrong = mark_contradicted(recorded, matches, guessed, certain)
    assert np.flatnonzero(wrong).tolist() == [26, 27]


def test_without_certain_matches_no_guess_is_contradicted() -> None:
    recorded = rows((0, 0, 10, "all_reduce"), (1, 0, 9000, "all_reduce"))
    both, match = np.array([True, True]), np.array([0, 0])
    nothing = certain_ends(recorded, np.array([NONE, NONE]))
    assert not mark_contradicted(recorded, match, both, nothing).any()
    assert not mark_contradicted(recorded, match, ~both, certain_ends(recorded, match)).any()
