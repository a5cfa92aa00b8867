"""Communication hidden behind compute, shared between groups and collectives."""

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.time.comm_compute_overlap import comm_compute_overlap
from tests.tables import answer_of, make

CALL = st.tuples(st.sampled_from(("tp", "dp", "total")), st.integers(0, 30), st.integers(0, 9))
SPAN = st.tuples(st.integers(0, 30), st.integers(0, 9))


def split(
    calls: list[tuple[str | None, int, int]], compute: list[tuple[int, int]], by: str
) -> list[dict[str, Any]]:
    comm = [
        {"event": k, "kind": "comm", "start_ns": s, "end_ns": s + n}
        for k, (_, s, n) in enumerate(calls)
    ]
    work = [{"event": 90, "kind": "compute", "start_ns": s, "end_ns": s + n} for s, n in compute]
    named = [
        {"event": k, "group": g, "type": "all_reduce"}
        for k, (g, _, _) in enumerate(calls) if g is not None
    ]  # fmt: skip
    found: list[dict[str, Any]] = answer_of(
        comm_compute_overlap,
        options={"by": by},
        activities=make("activities", comm + work),
        collectives=make("collectives", named),
        rank_windows=make("rank_windows", [{"start_ns": 0, "end_ns": 50, "complete": True}]),
    )
    return found


def test_an_instant_with_two_belongs_half_to_each() -> None:
    calls = [("tp", 0, 8), ("dp", 4, 8)]  # both run from 4 to 8; compute hides 6 to 10
    dp, tp = split(calls, [(6, 4)], "collective")
    assert (tp["group"], tp["comm_ns"], tp["overlap_ns"]) == ("tp", 6, 1)
    assert (dp["group"], dp["comm_ns"], dp["overlap_ns"]) == ("dp", 6, 3)


@given(st.lists(CALL, max_size=6), st.lists(SPAN, max_size=4))
def test_groups_add_up_to_the_whole(
    calls: list[tuple[str | None, int, int]], compute: list[tuple[int, int]]
) -> None:
    (whole,) = split(calls, compute, "total")
    parts = split(calls, compute, "group")
    assert sum(p["comm_ns"] for p in parts) == whole["comm_ns"]
    assert sum(p["exposed_comm_ns"] for p in parts) == whole["exposed_comm_ns"]
    fair: dict[str | None, Fraction] = {g: Fraction(0) for g, _, _ in calls}
    for t in range(50):
        on = [g for g, s, n in calls if s <= t < s + n]
        for group in on:
            fair[group] += Fraction(1, len(on))
    for p in parts:  # each nanosecond is given whole: off by less than one for each cut
        assert abs(p["comm_ns"] - fair[p["group"]]) <= 2 * len(calls)
