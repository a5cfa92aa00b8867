"""Sums over windows of many ranks, devices, cycles and steps, against plain dictionaries."""

from collections import defaultdict
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.quantities.measures.breakdown import pool_rows, sum_windows
from tests.tables import make

LANES = [(rank, device, cycle) for rank in (0, 4) for device in (0, 1) for cycle in (0, 2)]
WINDOWS = st.lists(
    st.tuples(st.sampled_from(LANES), st.integers(-1, 2), st.booleans(), st.integers(0, 99)),
    max_size=12,
)


@given(WINDOWS)
def test_equal_ones_are_added_up(windows: list[Any]) -> None:
    table = make(
        "step_windows",
        [
            {"rank": r, "device": d, "cycle": c, "step": None if s < 0 else s, "complete": whole}
            for (r, d, c), s, whole, _ in windows
        ],
    )
    values = {"busy": np.array([value for *_, value in windows], np.int64)}
    for per in ("rank", "step"):
        totals: dict[Any, int] = defaultdict(int)
        complete: dict[Any, bool] = defaultdict(lambda: True)
        for (rank, device, cycle), step, whole, value in windows:
            named = per == "step" and step >= 0
            key = (rank, device, cycle if named else None, step if named else None)
            totals[key] += value
            complete[key] &= whole
        columns, sums = sum_windows(per, table, values)  # type: ignore[arg-type]
        names = ("rank", "device", "cycle", "step")
        rows = zip(*(columns[name].to_pylist() for name in names), strict=True)
        keys = list(rows)
        assert dict(zip(keys, sums["busy"].tolist(), strict=True)) == dict(totals)
        assert dict(zip(keys, columns["complete"].to_pylist(), strict=True)) == dict(complete)
        first = [
            (r, d, 1 << 40 if c is None else c, 1 << 40 if s is None else s) for r, d, c, s in keys
        ]
        assert first == sorted(first), "in order, what has no number last"


def test_rows_are_kept_apart_by_what_is_asked() -> None:
    rows = make(
        "step_windows",
        [
            {"rank": 2, "cycle": 1, "step": 5},
            {"rank": 3, "cycle": 0, "step": 5},
            {"rank": 3, "cycle": 1, "step": None},
        ],
    )
    assert pool_rows("all", rows, rows["step"]).tolist() == [[-1, -1, -1]] * 3
    assert pool_rows("rank", rows, rows["step"]).tolist() == [[2, -1, -1], [3, -1, -1], [3, -1, -1]]
    assert pool_rows("step", rows, rows["step"]).tolist() == [[2, 1, 5], [3, 0, 5], [3, -1, -1]]
