"""Kernels too short to pay for their launch: by hand; idle time against a plain twin."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.kernels.short_kernels import short_kernels
from tests.tables import answer_of, make

SPANS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(7, 8)), min_size=1, max_size=15
)


def tables(rows: list[tuple[str, int, int, int]]) -> dict[str, pa.Table]:
    """Of (name, start, length, call length), in ns."""
    kernels = [
        {"name": n, "activity": "kernel", "stream": 7, "start_ns": s, "end_ns": s + d}
        for n, s, d, _ in rows
    ]
    links = [
        {"launch_row": k, "launch_start_ns": 0, "launch_end_ns": c}
        for k, (_, _, _, c) in enumerate(rows)
    ]
    spans = make("kernels", kernels)
    return {"kernels": spans, "kernel_links": make("kernel_links", links), "activities": spans}


ROWS = [
    ("a", 0, 1_500, 4_000),
    ("a", 3_500, 1_000, 4_000),
    ("b", 4_500, 9_000, 4_000),
    ("c", 20_500, 50_000, 4_000),
]


def test_histogram_by_hand() -> None:
    found = answer_of(short_kernels, **tables(ROWS))
    columns = ("label", "short", "count", "total_ns", "shorter_than_launch", "idle_before_ns")
    assert [tuple(r[c] for c in columns) for r in found] == [
        ("1 to 2 µs", True, 2, 2_500, 2, 2_000),
        ("9 to 10 µs", True, 1, 9_000, 0, 0),
        ("10 to 100 µs", False, 1, 50_000, 0, 7_000),
    ]
    assert found[0]["kernels_pct"] == 50


def test_by_kernel() -> None:
    found = answer_of(short_kernels, options={"by": "kernel"}, **tables(ROWS))
    assert [(r["label"], r["count"], r["from_us"]) for r in found] == [
        ("a", 2, None),
        ("b", 1, None),
    ]


def test_a_graph_s_launch_is_shared() -> None:
    kernels = [
        {"name": "k", "activity": "kernel", "start_ns": s, "end_ns": s + 2_000} for s in (0, 5_000)
    ]
    links = [{"launch_row": 0, "launch_start_ns": 0, "launch_end_ns": 1_000}] * 2
    spans = make("kernels", kernels)
    (row,) = answer_of(
        short_kernels,
        kernels=spans,
        activities=spans,
        kernel_links=make("kernel_links", links),
    )
    assert (row["call_ns"], row["shorter_than_launch"]) == (1_000, 0)


@given(SPANS)
def test_idle_before_sums_to_the_idle_of_the_device(spans: list[tuple[int, int, int]]) -> None:
    kernels = [
        {"name": "k", "activity": "kernel", "stream": q, "start_ns": s, "end_ns": s + d}
        for s, d, q in spans
    ]
    links = make("kernel_links", [{}] * len(spans))
    run = make("kernels", kernels)
    found = answer_of(short_kernels, kernels=run, activities=run, kernel_links=links)
    some = [(s, s + d) for s, d, _ in spans if d]
    busy = {t for s, e in some for t in range(s, e)}
    idle = max(busy) + 1 - min(busy) - len(busy) if busy else 0
    assert sum(r["idle_before_ns"] for r in found) == idle


def test_no_kernels() -> None:
    for by in ("duration", "kernel", "stream"):
        assert answer_of(short_kernels, options={"by": by}, **tables([])) == []
