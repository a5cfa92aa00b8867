"""Own time between collectives, and what fills it, against a twin that asks every instant."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from htk.base.columns.types import NONE
from htk.base.schema import TABLES
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.own_time import fastest_member, own_time, own_times, subtract_fastest
from tests.tables import make

RANKS, GROUPS = (1, 2, 5), ("a", "b")
KINDS = ("compute", "comm", "memory")


@st.composite
def jobs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls of two groups in two cycles; on each rank and group one behind the other."""
    clock: dict[tuple[int, int, str], int] = {}
    rows = []
    for match in range(draw(st.integers(1, 6))):
        group, cycle = draw(st.sampled_from(GROUPS)), draw(st.integers(0, 1))
        for rank in draw(st.lists(st.sampled_from(RANKS), min_size=1, unique=True)):
            start = clock.get((rank, cycle, group), 0) + draw(st.integers(0, 15))
            end = start + draw(st.integers(1, 10))
            clock[rank, cycle, group] = end
            rows.append(
                {
                    "rank": rank, "cycle": cycle, "group": group, "device": rank % 2,
                    "start_ns": start, "end_ns": end, "match": match, "source": "kineto",
                    "timing": "gpu", "type": "all_reduce",
                }
            )  # fmt: skip
    return draw(st.permutations(rows))


ACTIVITIES = st.lists(
    st.tuples(
        st.sampled_from(RANKS), st.sampled_from(KINDS), st.integers(0, 40), st.integers(0, 9)
    ),
    max_size=10,
)


def previous(row: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    same = ("rank", "cycle", "group")
    before = [
        r for r in rows if all(r[k] == row[k] for k in same) and r["start_ns"] < row["start_ns"]
    ]
    return max(before, key=lambda r: r["start_ns"], default=None)


@given(jobs(), ACTIVITIES)
def test_as_instant_by_instant(
    rows: list[dict[str, Any]], busy: list[tuple[int, str, int, int]]
) -> None:
    names = set(TABLES["collectives"].names)
    table = pa.Table.from_pylist(
        [{k: v for k, v in row.items() if k in names} for row in rows],
        schema=TABLES["collectives"],
    )
    activities = make(
        "activities",
        [
            {"rank": r, "device": r % 2, "kind": kind, "start_ns": s, "end_ns": s + n}
            for r, kind, s, n in busy
        ],
    )
    own = own_time(CollectiveRows(table), table)
    parts = own.parts(activities)
    match = np.array([row["match"] for row in rows])
    fastest = fastest_member(own, match, np.ones(len(rows), bool))
    lengths: dict[int, list[tuple[int, int]]] = {}
    for k, row in enumerate(rows):
        before = previous(row, rows)
        assert bool(own.has_previous[k]) == (before is not None)
        if before is None:
            assert parts[k].tolist() == [0, 0, 0, 0]
            continue
        window = range(min(before["end_ns"], row["start_ns"]), row["start_ns"])
        lengths.setdefault(row["match"], []).append((len(window), k))
        expected = [0, 0, 0, 0]
        for t in window:
            running = [kd for r, kd, s, n in busy if r == row["rank"] and s <= t < s + n]
            expected[min((KINDS.index(kind) for kind in running), default=3)] += 1
        assert parts[k].tolist() == expected
    excess = subtract_fastest(parts, fastest)
    for k, row in enumerate(rows):
        known = lengths.get(row["match"], [])
        if k not in [j for _, j in known]:
            assert fastest[k] == NONE and not excess[k].any()
            continue
        least = min(length for length, _ in known)
        assert fastest[k] in [j for length, j in known if length == least]
        assert excess[k].tolist() == (parts[k] - parts[fastest[k]]).tolist()


def test_each_source_is_counted_by_itself() -> None:
    """The profiler's two calls, a log's three of the same, and one of no source, by hand."""
    log = {"source": "nccl_debug", "timing": "gpu", "group": "0", "rank": 1}
    rows = [
        {**log, "start_ns": 0, "end_ns": 10},
        {**log, "source": "kineto", "start_ns": 1, "end_ns": 11},
        {**log, "start_ns": 30, "end_ns": 40},
        {**log, "source": None, "start_ns": 45, "end_ns": 46},
        {**log, "source": "kineto", "start_ns": 31, "end_ns": 41},
        {**log, "start_ns": 50, "end_ns": 60},
    ]
    work = [(12, 20, "compute"), (18, 25, "comm"), (42, 44, "memory"), (59, 70, "compute")]
    busy = [{"rank": 1, "kind": k, "start_ns": s, "end_ns": e} for s, e, k in work]
    columns = own_times(make("collectives", rows), make("activities", busy)).to_pylist()
    parts = [tuple(row.values()) for row in columns]
    assert parts == [
        (0, 0, 0, 0),  # the log's first
        (0, 0, 0, 0),  # the profiler's first
        (8, 5, 0, 7),  # the log's: from 10 to 30
        (0, 0, 0, 0),
        (8, 5, 0, 7),  # the profiler's: from 11 to 31
        (0, 0, 2, 8),  # the log's: from 40 to 50
    ]
