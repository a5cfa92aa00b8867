"""Which calls of another thread lie in a pause, against a look at all calls."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.graph.handovers import _Threads
from htk.graph.nodes import LaunchCalls


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 5)), min_size=1),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_calls_between_two_times_as_a_look_at_all_tells(
    drawn: list[tuple[int, int, int]], left: int, length: int
) -> None:
    lane, start, took = np.array(sorted(drawn)).T
    none = np.full(len(lane), -1)
    calls = LaunchCalls(none, lane // 2, lane, start, start + took, none, ["c"], none, none)
    threads, again = _Threads.of(calls), left + length
    assert threads.of_rank == {
        r: np.unique(lane[lane // 2 == r]).tolist() for r in np.unique(lane // 2).tolist()
    }
    for thread in np.unique(lane).tolist():
        inside = (lane == thread) & (start >= left) & (calls.end <= again)
        assert threads.between(thread, left, again).tolist() == np.flatnonzero(inside).tolist()
