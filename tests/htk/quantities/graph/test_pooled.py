"""What ranks tell each other is what rows of all ranks would tell."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.graph.pooled import ALL_AT_HAND, Counted, Heard, Told

VALUES = st.lists(st.integers(-40, 10**12) | st.integers(0, 9), max_size=30)


@given(st.lists(VALUES, min_size=1, max_size=4), st.sampled_from((0.1, 0.5, 0.9, 0.0, 1.0, 1 / 3)))
def test_quantiles_of_counts_are_those_of_all_values(parts: list[list[int]], share: float) -> None:
    together = Counted.together([Counted.from_values(np.array(part, np.int64)) for part in parts])
    every = np.array([value for part in parts for value in part], np.int64)
    expected = float(np.quantile(every, share)) if len(every) else 0.0
    assert together.quantile(share) == expected
    assert together.count.sum() == len(every) and (np.diff(together.values) > 0).all()


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_what_all_told_is_what_their_rows_tell(parts: list[list[int]]) -> None:
    heard, every = [], np.array([value for part in parts for value in part], np.int64)
    for part in parts:
        heard.append(own := Heard())
        own.low("gap", np.array(part, np.int64))
        own.middle("gap", np.array(part, np.int64))
        own.any("odd", any(value % 2 for value in part))
        own.tally("digits", {str(k): part.count(k) for k in range(10) if k in part})
        if part:
            own.least("gap", min(part))
    told = Told.by(heard)
    assert told.low("gap", every) == ALL_AT_HAND.low("gap", every)
    assert told.middle("gap", every) == ALL_AT_HAND.middle("gap", every)
    assert told.any("odd", False) == bool((every % 2).any())
    digits = told.tally("digits", {})
    assert digits == {str(k): int((every == k).sum()) for k in range(10) if (every == k).any()}
    if len(every):
        assert told.least("gap", 0) == every.min()


def test_collectives_of_several_members_in_any_part_meet() -> None:
    columns = [([3, 5, 8], [1, 2, 1], [30, 50, 80]), ([3, 9], [1, 1], [33, 90]), ([], [], [])]
    heard = []
    for match, members, last in columns:
        heard.append(own := Heard())
        assert own.meets(np.array(match, np.int64), np.array(members, np.int64)).all()
        own.arrived(np.array(match, np.int64), np.array(last, np.int64))
    told = Told.by(heard)
    assert (told.match.tolist(), told.last.tolist()) == ([3, 5], [33, 50])
    own_told = told.for_part(heard[1])
    none = np.zeros(2, np.int64)
    assert own_told.meets(np.array([3, 9]), none).tolist() == [True, False]
    assert own_told.arrived(np.array([3]), none[:1]).tolist() == [33]
    assert told.for_part(heard[2]).match.tolist() == []
