"""Where the time goes: by hand, against a twin that counts nanoseconds, against public traces."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.time.comm_compute_overlap import comm_compute_overlap
from htk.analyses.time.time_breakdown import time_breakdown
from htk.answers.ask import ask_trace
from htk.quantities.derived.windows import rank_windows
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make

KINDS = ("compute", "comm", "memory")
ACTIVITY = st.tuples(st.sampled_from(KINDS), st.integers(0, 30), st.integers(0, 10))


def activities(rows: list[tuple[str, int, int]]) -> Any:
    spans = [{"kind": k, "start_ns": s, "end_ns": s + n, "stream": 7} for k, s, n in rows]
    return make("activities", spans)


def windows(table: Any) -> Any:
    kernels = table.drop_columns(["rank", "cycle"])
    return make("rank_windows", rank_windows(kernels, make("cut_windows", [])).to_pylist())


def test_by_hand() -> None:
    """
    compute  ####----##      0-4, 8-10
    comm     --####----      2-6
    memory   -----##---      5-7
    """
    table = activities([("compute", 0, 4), ("compute", 8, 2), ("comm", 2, 4), ("memory", 5, 2)])
    (row,) = answer_of(time_breakdown, activities=table, rank_windows=windows(table))
    assert {k: v for k, v in row.items() if k.endswith("_ns")} == {
        "total_ns": 10,
        "busy_ns": 9,
        "compute_ns": 6,
        "comm_ns": 4,
        "exposed_comm_ns": 2,
        "memory_ns": 2,
        "exposed_memory_ns": 1,
        "other_ns": 0,
        "idle_ns": 1,
    }
    assert (row["compute_pct"], row["idle_pct"]) == (60.0, 10.0)


def test_whole_graphs_are_other_only_where_nothing_of_a_known_kind_runs() -> None:
    """
    other    ####----##      0-4, 8-10
    comm     --####----      2-6
    """
    table = activities([("other", 0, 4), ("other", 8, 2), ("comm", 2, 4)])
    (row,) = answer_of(time_breakdown, activities=table, rank_windows=windows(table))
    parts = {name: row[f"{name}_ns"] for name in ("compute", "exposed_comm", "other", "idle")}
    assert parts == {"compute": 0, "exposed_comm": 4, "other": 4, "idle": 2}


@given(st.lists(ACTIVITY, min_size=1, max_size=12))
def test_against_counting_every_nanosecond(rows: list[tuple[str, int, int]]) -> None:
    table = activities(rows)
    on = {k: {t for kind, s, n in rows if kind == k for t in range(s, s + n)} for k in KINDS}
    low, high = min(s for _, s, _ in rows), max(s + n for _, s, n in rows)
    busy = set().union(*on.values())
    (row,) = answer_of(time_breakdown, activities=table, rank_windows=windows(table))
    assert row["total_ns"] == high - low
    assert row["busy_ns"] == len(busy) == row["total_ns"] - row["idle_ns"]
    assert row["compute_ns"] == len(on["compute"])
    assert row["comm_ns"] == len(on["comm"])
    assert row["exposed_comm_ns"] == len(on["comm"] - on["compute"])
    assert row["memory_ns"] == len(on["memory"])
    assert row["exposed_memory_ns"] == len(on["memory"] - on["compute"] - on["comm"])
    (both,) = answer_of(comm_compute_overlap, activities=table, rank_windows=windows(table))
    assert both["overlap_ns"] == len(on["comm"] & on["compute"])
    assert both["exposed_comm_ns"] == row["exposed_comm_ns"]


def test_without_communication_there_is_no_share_of_it() -> None:
    table = activities([("compute", 0, 4)])
    (row,) = answer_of(comm_compute_overlap, activities=table, rank_windows=windows(table))
    assert row["overlap_pct"] is None and row["comm_ns"] == 0


def test_steps_cut_what_crosses_them() -> None:
    table = activities([("compute", 0, 10)])
    rows = [
        {"step": 3, "start_ns": 0, "end_ns": 4, "complete": True},
        {"step": 4, "start_ns": 4, "end_ns": 10, "complete": False},
    ]
    steps = make("step_windows", rows)
    found = answer_of(time_breakdown, activities=table, step_windows=steps, options={"per": "step"})
    assert [(r["step"], r["compute_ns"], r["complete"]) for r in found] == [
        (3, 4, True),
        (4, 6, False),
    ]


SAMPLED = ("dlrm_8rank/worker0", "ns_resolution", "trace_diff/test", "resnet", "mi210", "b200")


@pytest.mark.parametrize("part", SAMPLED)
def test_public_traces_to_the_nanosecond(shared: Path, part: str) -> None:
    """Figures of an independent reading by plain json and decimals."""
    for line in (shared / "truth/oracle.jsonl").read_text().splitlines():
        truth = json.loads(line)
        if part not in truth["trace"] or not truth["gpu"]:
            continue
        trace = open_trace(shared / truth["trace"])
        (row,) = ask_trace(trace, "time_breakdown").to_pylist()
        names = ("total", "busy", "idle", "compute", "comm", "memory")
        for name in [*names, "exposed_comm", "exposed_memory"]:
            assert row[f"{name}_ns"] == truth[f"{name}_ns"], name
        assert trace.tables["events"].num_rows == truth["complete_events"]
