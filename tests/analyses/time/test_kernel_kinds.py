"""Exclusive classes of what runs, by hand and against a twin that counts nanoseconds."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.time.kernel_kinds import kernel_kinds
from tests.tables import answer_of, make

KINDS = ("compute", "comm", "memory")
ACTIVITY = st.tuples(
    st.integers(0, 1), st.sampled_from(KINDS), st.integers(0, 25), st.integers(0, 9)
)


@given(st.lists(ACTIVITY, min_size=1, max_size=12))
def test_against_counting_every_nanosecond(rows: list[tuple[int, str, int, int]]) -> None:
    spans = [{"rank": r, "kind": k, "start_ns": s, "end_ns": s + n} for r, k, s, n in rows]
    windows = [{"rank": r, "start_ns": 0, "end_ns": 40, "complete": True} for r in (0, 1)]
    found = answer_of(
        kernel_kinds,
        activities=make("activities", spans),
        rank_windows=make("rank_windows", windows),
    )
    expected: Counter[tuple[int | None, str]] = Counter()
    for rank in (0, 1):
        for t in range(40):
            on = [k for k in KINDS if any(
                r == rank and k == kind and s <= t < s + n for r, kind, s, n in rows)]  # fmt: skip
            if on:
                expected[rank, "+".join(on)] += 1
                expected[None, "+".join(on)] += 1
    assert {(r["rank"], r["kinds"]): r["total_ns"] for r in found} == expected


def test_shares_are_of_the_busy_time() -> None:
    spans = [{"kind": "compute", "start_ns": 0, "end_ns": 6},
             {"kind": "comm", "start_ns": 4, "end_ns": 8}]  # fmt: skip
    windows = make("rank_windows", [{"start_ns": 0, "end_ns": 80, "complete": True}])
    found = answer_of(kernel_kinds, activities=make("activities", spans), rank_windows=windows)
    shares = {r["kinds"]: r["busy_pct"] for r in found if r["rank"] == 0}
    assert shares == {"compute": 50.0, "comm": 25.0, "compute+comm": 25.0}
