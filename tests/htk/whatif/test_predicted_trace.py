"""Times that move with anchors: as the anchors do, between them in proportion, never backwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.whatif.predicted_trace import _anchors, _warped

BASE = 1_700_000_000_000_000_000


def warped(times: list[int], old: list[int], new: list[int]) -> list[int]:
    values = [np.array(x, np.int64) + BASE for x in (times, old, new)]
    return (_warped(*values) - BASE).tolist()  # type: ignore[no-any-return]


def test_by_hand() -> None:
    old, new = [100, 200, 400], [1000, 1100, 1500]
    assert warped([100, 200, 400], old, new) == new
    assert warped([150, 250, 300, 399], old, new) == [1050, 1200, 1300, 1498]
    assert warped([0, 99], old, new) == [900, 999], "before the first, by as much as that"
    assert warped([401, 1000], old, new) == [1501, 2100], "and behind the last"
    assert warped([5, 7], [], []) == [5, 7]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(-50, 150)), min_size=1, max_size=8))
def test_anchors_never_lead_backwards(pairs: list[tuple[int, int]]) -> None:
    old, new = _anchors(*(np.array(c, np.int64) for c in zip(*pairs, strict=True)))
    assert old.tolist() == sorted(o for o, _ in pairs)
    ordered = sorted(pairs)
    expected = [max(n for _, n in ordered[: k + 1]) for k in range(len(ordered))]
    assert new.tolist() == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.data())
def test_order_stays(steps: list[int], data: st.DataObject) -> None:
    old = np.cumsum([0, *steps]).tolist()
    new = np.cumsum([data.draw(st.integers(0, 80)) for _ in old]).tolist()
    times = list(range(-5, old[-1] + 6))
    found = warped(times, old, new)
    assert found == sorted(found)
    for time, moved in zip(times, found, strict=True):
        k = max((k for k, o in enumerate(old) if o <= time), default=-1)
        if k < 0:
            expected = time + new[0] - old[0]
        elif k + 1 == len(old):
            expected = time + new[-1] - old[-1]
        else:
            share = (time - old[k]) / (old[k + 1] - old[k])
            expected = new[k] + share * (new[k + 1] - new[k])
        assert moved == pytest.approx(expected, abs=0.5 + 1e-6)
