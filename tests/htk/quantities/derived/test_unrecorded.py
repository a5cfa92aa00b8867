"""Ranks without a file, and collectives that lack members for it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from htk.quantities.derived.unrecorded import short_of_members, unrecorded_ranks
from tests.tables import make


@pytest.mark.parametrize(
    ("ranks", "missing"),
    [
        ([(0, 8), (3, 8)], 6),
        ([(0, 2), (1, 2)], 0),
        ([(0, None), (1, None)], 0),  # the job's size was not recorded
        ([(None, 8)], 0),  # whose file it is was not recorded
        ([(0, 4), (0, 4)], 3),  # two files of one rank
        ([(5, 4)], 3),
    ],
)
def test_ranks_without_a_file(ranks: list[tuple[int | None, int | None]], missing: int) -> None:
    rows = [{"rank": rank, "world_size": size} for rank, size in ranks]
    assert unrecorded_ranks(make("ranks", rows)) == missing


def test_a_group_of_unknown_size_may_lack_members_if_the_job_does() -> None:
    rows: Any = SimpleNamespace(expected=np.array([4, 4, 2, -1, 4]))
    present = np.array([4, 3, 2, 2, 0])
    some = make("ranks", [{"rank": 0, "world_size": 4}])
    every = make("ranks", [{"rank": 0, "world_size": 1}])
    assert short_of_members(rows, present, some).tolist() == [False, True, False, True, False]
    assert short_of_members(rows, present, every).tolist() == [False, True, False, False, False]
