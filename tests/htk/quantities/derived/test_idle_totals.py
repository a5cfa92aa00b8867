"""Totals of idle time against a twin by loops over pieces, and made of each rank by itself."""

from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from htk.base.schema import DERIVED
from htk.quantities.derived.explained_idle import Stalls, explain_idle
from htk.quantities.derived.idle_totals import idle_costs, rank_idle_times, step_idle_times
from tests.tables import make

MS = 1_000_000
FREE = ("cudaFree", "hipFree")
ALLOCATED = ("cudaFree", "cudaMalloc")

_gap = st.tuples(
    st.sampled_from([None, None, 7]),
    st.integers(0, 300_000),
    st.lists(
        st.tuples(
            st.sampled_from(["host_sync", "host_operator", "unrecorded_gpu_work_suspected"]),
            st.sampled_from([1_000, 700_000, MS, 3 * MS]),
        ),
        min_size=1,
        max_size=3,
    ),
)
_stall = st.tuples(
    st.sampled_from(
        [("host_sync", "cudaStreamSynchronize"), ("host_sync", None), ("host_operator", "aten::mm")]
        + [("host_allocation", name) for name in ALLOCATED]
    ),
    st.integers(0, 4 * MS),
    st.sampled_from([1_000, 900_000, 5 * MS]),
)
_rank = st.tuples(st.lists(_gap, max_size=5), st.lists(_stall, max_size=5), st.integers(2, 6 * MS))
Job = list[tuple[list[Any], list[Any], int]]


def rows_of(job: Job) -> dict[str, list[dict[str, Any]]]:
    """Rows of pieces, stalls and windows of each rank; the recorded window may cut what is idle,
    and its first half is step 4."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for rank, (gaps, stalls, end) in enumerate(job):
        who = {"rank": rank, "cycle": rank % 2}
        begun = {None: 0, 7: 0}
        for stream, until, pieces in gaps:
            first = now = begun[stream] + until
            last = first + sum(length for _, length in pieces)
            for cause, length in pieces:
                times = {"start_ns": now, "end_ns": now + length}
                gap = {"gap_start_ns": first, "gap_end_ns": last, "stream": stream}
                rows["idle_causes"].append(who | times | gap | {"cause": cause})
                now += length
            begun[stream] = last
        for (cause, name), start, length in sorted(stalls, key=lambda s: (s[1], str(s))):
            times = {"start_ns": start, "end_ns": start + length}
            rows["stalls"].append(who | times | {"cause": cause, "name": name})
        rows["rank_windows"].append(who | {"start_ns": 0, "end_ns": end, "complete": True})
        half = (end + 1) // 2
        steps = ((4, 0, half, True), (None, half, end, False))
        rows["step_windows"] += [
            who | {"step": n, "start_ns": a, "end_ns": b, "complete": c} for n, a, b, c in steps
        ]
    return rows


def tables_of(rows: dict[str, list[dict[str, Any]]]) -> dict[str, pa.Table]:
    names = ("idle_causes", "stalls", "rank_windows", "step_windows")
    return {name: make(name, rows[name]) for name in names}


def times_by_hand(rows: dict[str, list[dict[str, Any]]], windows: str) -> dict[Any, Any]:
    sums: dict[Any, Any] = {}
    for piece in rows["idle_causes"]:
        for window in rows[windows]:
            start = max(piece["start_ns"], window["start_ns"])
            end = min(piece["end_ns"], window["end_ns"])
            if window["rank"] != piece["rank"] or end <= start:
                continue
            key = (piece["rank"], piece["stream"], window.get("step"), piece["cause"])
            idle, gaps, _ = sums.get(key, (0, set(), True))
            sums[key] = (idle + end - start, gaps | {piece["gap_start_ns"]}, window["complete"])
    return {key: (idle, len(gaps), whole) for key, (idle, gaps, whole) in sums.items()}


@given(st.lists(_rank, min_size=1, max_size=3))
def test_times_are_sums_of_pieces_within_windows(job: Job) -> None:
    rows = rows_of(job)
    tables = tables_of(rows)
    for windows, maker in (("rank_windows", rank_idle_times), ("step_windows", step_idle_times)):
        held = maker(tables["idle_causes"], tables[windows])
        assert held.schema.equals(DERIVED["rank_idle_times"])
        found = {
            (r["rank"], r["stream"], r["step"], r["cause"]): (
                r["idle_ns"],
                r["gaps"],
                r["complete"],
            )
            for r in held.to_pylist()
        }
        assert len(found) == held.num_rows
        assert found == times_by_hand(rows, windows)


def costs_by_hand(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    pieces = [row for row in rows["idle_causes"] if row["stream"] is None]
    tables = tables_of(rows)
    told = explain_idle(Stalls.from_table(tables["stalls"]), make("idle_causes", pieces))
    alike: dict[tuple[Any, ...], list[tuple[int, int, int]]] = defaultdict(list)
    for piece, stall, ns in zip(pieces, told.stall.tolist(), told.idle_ns.tolist(), strict=True):
        end = rows["rank_windows"][piece["rank"]]["end_ns"]
        start, end = piece["start_ns"], min(piece["end_ns"], end)
        if end <= start:
            continue
        call = rows["stalls"][stall] if stall >= 0 else {"cause": None, "name": None}
        blocks = call["cause"] == "host_sync"
        suspected = piece["cause"] == "unrecorded_gpu_work_suspected"
        blocked = min(ns, end - start) if blocks and not suspected else 0
        (step,) = (
            w["step"]
            for w in rows["step_windows"]
            if w["rank"] == piece["rank"] and w["start_ns"] <= start < w["end_ns"]
        )
        frees = frees_in(rows["stalls"], piece["rank"], start, end)
        key = (piece["rank"], step, piece["cause"], end - start >= MS, call["name"], blocks, frees)
        alike[(*key, blocked > 0, end - start > blocked)].append((start, end - start, blocked))
    costs = []
    for key, found in alike.items():
        start, length, _ = max(found, key=lambda f: f[1])  # of several the first
        sums = [sum(column) for column in list(zip(*found, strict=True))[1:]]
        costs.append((*key[:-2], len(found), *sums, start, length))
    return costs


def frees_in(stalls: list[dict[str, Any]], rank: int, start: int, end: int) -> bool:
    """Whether the last call that frees before the span's end lasts until after its start."""
    begun = [
        call
        for call in stalls
        if call["rank"] == rank and str(call["name"]).startswith(FREE) and call["start_ns"] < end
    ]
    last = max((call["start_ns"] for call in begun), default=None)
    ends = {call["end_ns"] for call in begun if call["start_ns"] == last}
    return any(e > start for e in ends)


@given(st.lists(_rank, min_size=1, max_size=3, unique_by=lambda rank: str(rank)))
def test_costs_are_sums_of_pieces_that_are_alike(job: Job) -> None:
    frees = [[s[1] for s in stalls if s[0][1] == "cudaFree"] for _, stalls, _ in job]
    if any(len(starts) > len(set(starts)) for starts in frees):
        return  # two frees at once: which is the last is not defined
    rows = rows_of(job)
    held = idle_costs(*(tables_of(rows)[name] for name in _READS))
    assert held.schema.equals(DERIVED["idle_costs"])
    found = [tuple(v for k, v in row.items() if k != "cycle") for row in held.to_pylist()]
    assert sorted(map(str, found)) == sorted(map(str, costs_by_hand(rows)))
    at = [(row["rank"], row["longest_start_ns"]) for row in held.to_pylist()]
    assert at == sorted(at), "as their longest pieces come"


_READS = ("idle_causes", "rank_windows", "step_windows", "stalls")


@given(st.lists(_rank, min_size=1, max_size=3))
def test_totals_of_ranks_one_after_the_other_are_those_of_all(job: Job) -> None:
    """As files make them: without the columns that say whose rows they are."""
    rows = rows_of(job)
    whole = idle_costs(*(tables_of(rows)[name] for name in _READS)).to_pylist()
    parts: list[dict[str, Any]] = []
    for rank in range(len(job)):
        own = {n: [r for r in rows[n] if r["rank"] == rank] for n in _READS}
        bare = [t.drop_columns(["rank", "cycle"]) for t in (make(n, own[n]) for n in _READS)]
        made = idle_costs(*bare)
        assert not {"rank", "cycle"} & set(made.column_names)
        parts += [{"rank": rank, "cycle": rank % 2} | row for row in made.to_pylist()]
    assert parts == whole
