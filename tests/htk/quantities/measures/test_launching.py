"""Calls that launch, and spans that launch, against sums over activities one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.types import NONE
from htk.quantities.measures.launching import Launched, launched_within
from tests.tables import make

# Row of the call or none, its end, start and length of the activity.
ACTIVITIES = st.lists(
    st.tuples(st.integers(-1, 4), st.integers(0, 40), st.integers(0, 9)), max_size=30
)


@given(ACTIVITIES)
def test_calls_with_what_they_launched(rows: list[tuple[int, int, int]]) -> None:
    """A call k lasts from 5k to 5k + 3."""
    kernels = make("kernels", [{"start_ns": s, "end_ns": s + n} for _, s, n in rows])
    links = make("kernel_links", [
        {"launch_row": k, "launch_start_ns": 5 * k, "launch_end_ns": 5 * k + 3} if k >= 0 else {}
        for k, _, _ in rows
    ])  # fmt: skip
    launched = Launched.from_kernels(kernels, links)
    calls = sorted({k for k, _, _ in rows if k >= 0})
    assert launched.call.tolist() == calls
    for k, call in enumerate(calls):
        own = [(s, n) for c, s, n in rows if c == call]
        first = min(s for s, _ in own)
        assert launched.count[k] == len(own)
        assert launched.length[k] == sum(n for _, n in own)
        assert rows[launched.first[k]][:2] == (call, first)
        assert launched.call_length[k] == 3
        assert launched.delay[k] == max(first - (5 * call + 3), 0)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 60)), max_size=30), st.randoms())
def test_spans_with_what_they_launched(launches: list[tuple[int, int]], dice: object) -> None:
    """Ranks 0 and 2 have spans of 7 every 10, not in order; rank 1 has none."""
    spans = [(r, 10 * k + r, 10 * k + r + 7) for r in (0, 2) for k in range(5)]
    dice.shuffle(spans)  # type: ignore[attr-defined]
    rank, start, end = np.array(spans, np.int64).T
    kernels = make("kernels", [{"rank": r} for r, _ in launches])
    links = make("kernel_links", [
        {"launch_start_ns": t if t >= 0 else None} for _, t in launches
    ])  # fmt: skip
    launcher = launched_within(rank, start, end, kernels, links)
    for of, (r, t) in zip(launcher.tolist(), launches, strict=True):
        around = [k for k, (owner, s, e) in enumerate(spans) if owner == r and 0 <= s <= t < e]
        assert of == (around[0] if around else NONE)
