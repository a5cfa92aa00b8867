"""Numbers of a file are believed up to what jobs have, and written out up to a sum."""

from typing import Any

import numpy as np
import pytest

from htk.base.core.stated_counts import RANK, RANKS, Allowance, RankLists


@pytest.mark.parametrize("number", [-1, 2**20 + 1, 2**31, 2**63 - 1, 10**300, True, 1.0, "1", None])
def test_what_no_job_has_is_not_believed(number: Any) -> None:
    assert not RANKS.believes(number) and not RANK.believes(number)


def test_what_jobs_have_is_believed() -> None:
    assert RANK.believes(0) and not RANKS.believes(0)
    assert RANKS.believes(1) and RANKS.believes(2**20)
    numbers = np.array([-1, 0, 7, 2**20, 2**20 + 1, 2**62])
    assert RANK.believes_each(numbers).tolist() == [False, True, True, True, False, False]


def test_ranks_equally_far_apart() -> None:
    lists = RankLists()
    assert lists.text(3, 4, 8) == "[3,11,19,27]"
    assert lists.text(0, 1, 5) == "[0]"
    for absurd in ((-1, 4, 1), (0, 0, 1), (0, 4, 0), (0, 2**31, 1), (0, 9, 2**19), (2**62, 2, 1)):
        assert lists.text(*absurd) is None


def test_lists_of_one_file_stay_within_a_sum() -> None:
    lists = RankLists()
    texts = [lists.text(first, 2**19, 1) for first in range(20)]
    assert [text is not None for text in texts] == [True] * 8 + [False] * 12, "of 4,194,304 ranks"
    assert lists.text(0, 2**19, 1) is texts[0], "what is written out is not counted twice"


def test_an_allowance_is_spent_once() -> None:
    allowance = Allowance(10)
    assert allowance.takes(7) and not allowance.takes(4) and allowance.takes(3)
    assert not allowance.takes(1) and not allowance.takes(-1)
