"""Whom a collective waits for, where the late rank was held up by another group."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from htk.analyses.causes.straggler_steps import straggler_steps
from htk.analyses.causes.stragglers import stragglers
from htk.analyses.comm.comm_wait import comm_wait
from htk.analyses.comm.late_arrivals import late_arrivals

Row = dict[str, Any]
Ask = Callable[..., pa.Table]

# Group, rank, start and end. Rank 3 computes from 1300 to 2300; rank 2 waits for it in c, so that
# rank 1 waits for rank 2 in b, and rank 0 for rank 1 in a.
CHAIN = (
    ("a", 0, 1000, 1100),
    ("a", 1, 1000, 1100),
    ("b", 1, 1100, 1200),
    ("b", 2, 1100, 1200),
    ("c", 2, 1200, 1300),
    ("c", 3, 1200, 1300),
    ("c", 2, 1350, 2400),
    ("c", 3, 2300, 2400),
    ("b", 1, 1250, 2550),
    ("b", 2, 2450, 2550),
    ("a", 0, 1150, 2700),
    ("a", 1, 2600, 2700),
)
MEMBERS = {"a": "[0,1]", "b": "[1,2]", "c": "[2,3]"}


def _tables(call: Callable[..., Row], *computing: tuple[int, int, int]) -> dict[str, list[Row]]:
    collectives = [
        call(rank, start, end, group=group, group_ranks=MEMBERS[group], group_size=2)
        for group, rank, start, end in CHAIN
    ]
    kinds = [("comm", rank, start, end) for _, rank, start, end in CHAIN]
    kinds += [("compute", *row) for row in computing]
    activities = [
        {"rank": r, "cycle": 0, "device": r, "kind": kind, "start_ns": s, "end_ns": e}
        for kind, r, s, e in kinds
    ]
    return {"collectives": collectives, "activities": activities}


def _answered(table: pa.Table) -> dict[str, tuple[Any, ...]]:
    rows = [row for row in table.to_pylist() if row["wait_total_ns"]]
    columns = ("blamed_rank", "held_up_rank", "last_rank", "lateness_ns", "wait_total_ns")
    return {row["group"]: tuple(row[c] for c in columns) for row in rows}


def test_the_first_cause_is_blamed_over_three_groups(ask: Ask, call: Callable[..., Row]) -> None:
    table = ask(late_arrivals, _tables(call, (3, 1300, 2300)), n=0, align=False)
    assert _answered(table) == {
        "c": (3, None, 3, 950, 950),
        "b": (3, 2, 2, 1200, 1200),
        "a": (3, 1, 1, 1450, 1450),
    }


def _costs(ask: Ask, tables: dict[str, list[Row]]) -> list[dict[int, tuple[int, int, int]]]:
    """What others waited because of each rank, how often, and its own lateness, in each table."""
    names = ("times_blamed", "cost_to_others_ns", "lateness_ns")
    step = {"cycle": 0, "step": 1, "start_ns": 0, "end_ns": 3000, "complete": True}
    windows = [{**step, "rank": r, "device": r} for r in range(4)]
    answers = []
    for analysis in (comm_wait, stragglers, straggler_steps):
        rows = ask(analysis, {**tables, "step_windows": windows}, align=False).to_pylist()
        answers.append({row["rank"]: tuple(row[name] for name in names) for row in rows})
    return answers


def test_a_late_rank_costs_the_same_in_every_table(ask: Ask, call: Callable[..., Row]) -> None:
    """Rank 3 computes for 1000 ns: 950 in c, and what that holds up: 1200 in b, 1450 in a."""
    for answer in _costs(ask, _tables(call, (3, 1300, 2300))):
        assert answer == {0: (0, 0, 0), 1: (0, 0, 0), 2: (0, 0, 0), 3: (3, 3600, 950)}


def test_each_cause_costs_what_it_held_up(ask: Ask, call: Callable[..., Row]) -> None:
    """Rank 1 is late in a by its own compute, so that rank 3 has held up b alone."""
    for answer in _costs(ask, _tables(call, (3, 1300, 2300), (1, 1200, 2500))):
        assert answer == {0: (0, 0, 0), 1: (1, 1450, 1450), 2: (0, 0, 0), 3: (2, 2150, 950)}


def test_what_a_slow_transfer_holds_up_is_blamed_on_nobody(
    ask: Ask, call: Callable[..., Row]
) -> None:
    """In c both transfer for 1000 ns; rank 2 waits 50 of them, which is not why rank 1 waits."""
    calls = (
        ("b", 1, 1100, 1200),
        ("b", 2, 1100, 1200),
        ("c", 2, 1200, 1250),
        ("c", 3, 1200, 1250),
        ("c", 2, 1300, 2400),
        ("c", 3, 1350, 2400),
        ("b", 1, 1250, 2550),
        ("b", 2, 2450, 2550),
    )
    rows = [call(r, a, b, group=g, group_ranks=MEMBERS[g], group_size=2) for g, r, a, b in calls]
    kinds = [{"rank": r, "cycle": 0, "device": r, "kind": "comm", "start_ns": a, "end_ns": b}
             for _, r, a, b in calls]  # fmt: skip
    tables = {"collectives": rows, "activities": kinds}
    for answer in _costs(ask, tables):
        assert answer[2] == (0, 0, 0) and answer[3] == (1, 50, 50)
    late = _answered(ask(late_arrivals, tables, n=0, align=False))
    assert late["b"] == (None, 2, 2, 1200, 1200)


def test_a_rank_that_computes_itself_is_not_held_up(ask: Ask, call: Callable[..., Row]) -> None:
    """Rank 1 computes beside what it waits for in b: its own 1050 ns, of 1450."""
    table = ask(late_arrivals, _tables(call, (3, 1300, 2300), (1, 1200, 2500)), n=0, align=False)
    assert _answered(table)["a"][:2] == (1, None)


def test_a_collective_that_a_cut_file_lacks_blames_nobody(
    ask: Ask, call: Callable[..., Row]
) -> None:
    """Rank 2's file ends before the second one; whom it would have waited for is not known."""
    rows = [call(r, 1000, 1100, group_size=3, group_ranks="[0,1,2]") for r in (0, 1, 2)]
    rows += [call(0, 1200, 1700, group_size=3), call(1, 1600, 1700, group_size=3)]
    step = {"cycle": 0, "step": 1, "start_ns": 0, "end_ns": 2000, "complete": True}
    windows = [{**step, "rank": r, "device": r} for r in (0, 1, 2)]
    tables = {"collectives": rows, "step_windows": windows}
    cells = ask(straggler_steps, tables, align=False).to_pylist()
    assert {row["times_blamed"] for row in cells} == {0}
    whole = [*rows, call(2, 1650, 1700, group_size=3, group_ranks="[0,1,2]")]
    cells = ask(straggler_steps, {**tables, "collectives": whole}, align=False).to_pylist()
    assert {row["rank"]: row["times_blamed"] for row in cells} == {0: 0, 1: 0, 2: 1}
