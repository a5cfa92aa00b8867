"""Why steps differ, by hand; and the parts add up, whatever runs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.time.step_variance import step_variance
from tests.tables import answer_of, make

LENGTH = 40
SPAN = st.tuples(
    st.sampled_from(("a", "b", "nccl")), st.integers(0, 3 * LENGTH), st.integers(0, 20)
)


def variance(spans: list[tuple[str, int, int]], steps: list[tuple[int, int]]) -> list[Any]:
    rows = [
        {"name": n, "kind": "comm" if n == "nccl" else "compute", "start_ns": s, "end_ns": s + d}
        for n, s, d in spans
    ]
    windows = [
        {"step": k, "start_ns": s, "end_ns": e, "complete": True} for k, (s, e) in enumerate(steps)
    ]
    found: list[Any] = answer_of(
        step_variance,
        activities=make("activities", rows),
        step_windows=make("step_windows", windows),
    )
    return found


def test_slower_kernels_more_kernels_waiting_and_the_host() -> None:
    """Step 0 is the median: a runs 4. Step 1 has a at 6, b for 3, nccl for 5, and 4 more idle."""
    spans = [("a", 0, 4), ("a", 10, 6), ("b", 16, 3), ("nccl", 19, 5), ("a", 34, 2)]
    found = variance(spans, [(0, 10), (10, 34), (34, 43)])
    parts = ("excess_ns", "kernel_speed_ns", "work_ns", "wait_ns", "host_ns", "overlap_ns")
    assert [tuple(r[p] for p in parts) for r in found] == [
        (0, 0, 0, 0, 0, 0),
        (14, 2, 3, 5, 4, 0),
        (-1, -2, 0, 0, 1, 0),
    ]


@given(st.lists(SPAN, max_size=15))
def test_the_parts_add_up(spans: list[tuple[str, int, int]]) -> None:
    for row in variance(spans, [(k * LENGTH, (k + 1) * LENGTH) for k in range(3)]):
        parts = ("kernel_speed_ns", "work_ns", "wait_ns", "host_ns", "overlap_ns")
        assert row["excess_ns"] == sum(row[p] for p in parts)
