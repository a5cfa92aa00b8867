"""Shared time of communication, against a twin that deals out every nanosecond."""

from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.derived.exposure import comm_shares
from tests.tables import make

LANES = [(rank, cycle, device) for rank in (0, 3) for cycle in (0, 1) for device in (0, 2)]
SPANS = st.lists(st.tuples(st.sampled_from(LANES), st.integers(0, 30), st.integers(0, 12)))
Row = tuple[tuple[int, int, int], int, int]


def dealt(spans: list[Row], computing: list[Row] | None) -> list[int]:
    """Each instant's nanosecond split among those that run: what is left over goes to the first."""
    total = Counter({k: 0 for k in range(len(spans))})
    for lane in LANES:
        running = {k: (s, s + n) for k, (where, s, n) in enumerate(spans) if where == lane}
        busy = [(s, s + n) for where, s, n in computing or [] if where == lane]
        edges = sorted({edge for span in (*running.values(), *busy) for edge in span})
        for low, high in pairwise(edges):
            active = [k for k, (s, e) in running.items() if s <= low and high <= e]
            if not active or any(s <= low and high <= e for s, e in busy):
                continue
            share, over = divmod(high - low, len(active))
            for place, k in enumerate(active):
                total[k] += share + (place < over)
    return [total[k] for k in range(len(spans))]


@given(SPANS, SPANS)
def test_against_every_instant(spans: list[Row], computing: list[Row]) -> None:
    names = ("rank", "cycle", "device")
    rows = [
        dict(zip(names, lane, strict=True)) | {"start_ns": s, "end_ns": s + n, "kind": "compute"}
        for lane, s, n in computing
    ]
    other = {"rank": 0, "cycle": 0, "device": 0, "start_ns": 0, "end_ns": 99, "kind": "memory"}
    lane = np.array([where for where, _, _ in spans], np.int64).reshape(-1, 3)
    start = np.array([s for _, s, _ in spans], np.int64)
    end = start + np.array([n for _, _, n in spans], np.int64)
    shares = comm_shares(make("activities", [*rows, other]), lane, start, end)
    assert shares[:, 0].tolist() == dealt(spans, None)
    exposed = dealt(spans, computing)
    assert shares[:, 1].sum() == sum(exposed)
    # Which nanosecond is left over depends on where time is cut: at most one for each cut.
    cuts = 2 * len(computing) + 2 * len(spans)
    assert np.abs(shares[:, 1] - exposed).max(initial=0) <= cuts
