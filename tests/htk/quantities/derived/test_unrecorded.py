"""Collectives that lack members."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from htk.quantities.derived.unrecorded import short_of_members
from tests.tables import make


def test_a_group_of_unknown_size_may_lack_members_if_the_job_does() -> None:
    rows: Any = SimpleNamespace(expected=np.array([4, 4, 2, -1, 4]))
    present = np.array([4, 3, 2, 2, 0])
    some = make("ranks", [{"rank": 0, "world_size": 4}])
    every = make("ranks", [{"rank": 0, "world_size": 1}])
    assert short_of_members(rows, present, some).tolist() == [False, True, False, True, False]
    assert short_of_members(rows, present, every).tolist() == [False, True, False, False, False]
