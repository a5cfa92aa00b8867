"""Whom a collective waits for, where the late rank was held up by another group."""

import random
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from htk.analyses.comm.comm_wait import comm_wait
from htk.analyses.comm.late_arrivals import late_arrivals
from htk.verdicts.causes.straggler_steps import straggler_steps
from htk.verdicts.causes.stragglers import stragglers
from tests.thinned import thinned

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
    step = {"cycle": 0, "step": 1, "start_ns": 0, "end_ns": 1_000_000, "complete": True}
    windows = [{**step, "rank": r, "device": r} for r in range(4)]
    answers = []
    for analysis in (comm_wait, stragglers, straggler_steps):
        rows = ask(analysis, {**tables, "step_windows": windows}, align=False).to_pylist()
        answers.append({row["rank"]: tuple(row[name] for name in names) for row in rows})
    return answers


def test_a_late_rank_costs_the_same_in_every_table(ask: Ask, call: Callable[..., Row]) -> None:
    """Rank 3 computes for 1000 ns: 950 in c, and 950 each of the 1200 in b and the 1450 in a: were
    it on time, b would begin 950 earlier; transfers took the rest."""
    for answer in _costs(ask, _tables(call, (3, 1300, 2300))):
        assert answer == {0: (0, 0, 0), 1: (0, 0, 0), 2: (0, 0, 0), 3: (3, 3 * 950, 950)}


def test_each_cause_costs_what_it_held_up(ask: Ask, call: Callable[..., Row]) -> None:
    """Rank 1 is late in a by its own compute, so that rank 3 has held up b alone."""
    for answer in _costs(ask, _tables(call, (3, 1300, 2300), (1, 1200, 2500))):
        assert answer == {0: (0, 0, 0), 1: (1, 1450, 1450), 2: (0, 0, 0), 3: (2, 2 * 950, 950)}


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


def test_of_a_wait_no_more_is_charged_than_was_waited_on_the_way(
    ask: Ask, call: Callable[..., Row]
) -> None:
    """Rank 2 waits 400 in c for rank 3, which computes. Then b is slow to begin for another reason,
    too: rank 2 itself does nothing for 300, less than half. Ranks 0 and 1 wait for it in b, 750 and
    200: rank 3 costs them 400 and 200."""
    calls = (
        ("b", 0, 1000, 1100),
        ("b", 1, 1000, 1100),
        ("b", 2, 1000, 1100),
        ("c", 2, 1100, 1150),
        ("c", 3, 1100, 1150),
        ("c", 2, 1150, 1600),
        ("c", 3, 1550, 1600),
        ("b", 0, 1150, 2000),
        ("b", 1, 1700, 2000),
        ("b", 2, 1900, 2000),
    )
    members = {"b": "[0,1,2]", "c": "[2,3]"}
    rows = [
        call(r, a, b, group=g, group_ranks=members[g], group_size=3 if g == "b" else 2)
        for g, r, a, b in calls
    ]
    kinds = [{"rank": r, "cycle": 0, "device": r, "kind": "comm", "start_ns": a, "end_ns": b}
             for _, r, a, b in calls]  # fmt: skip
    kinds.append({**kinds[0], "rank": 3, "device": 3, "kind": "compute",
                  "start_ns": 1150, "end_ns": 1550})  # fmt: skip
    for answer in _costs(ask, {"collectives": rows, "activities": kinds}):
        assert answer[3] == (2, 400 + 400 + 200, 400)
        assert answer[2] == (0, 0, 0)


GROUPS = {"a": (0, 1), "b": (1, 2), "c": (2, 3), "d": (0, 1, 2, 3), "e": (1, 3), "f": (0, 2, 3)}
Call = tuple[int, str, int, int]  # rank, group, start, end


def _job(seed: int) -> list[list[Call]]:
    """Collectives in one order on all ranks, each of which idles for a while before it joins."""
    chance = random.Random(seed)
    clock = [1000] * 4
    job: list[list[Call]] = []
    for _ in range(60):
        group = chance.choice(sorted(GROUPS))
        members = GROUPS[group]
        start = {
            r: clock[r] + chance.choice((chance.randint(10, 90), chance.randint(500, 999)))
            for r in members
        }
        end = max(start.values()) + chance.randint(20, 60)
        job.append([(r, group, start[r], end) for r in members])
        clock = [end if r in members else clock[r] for r in range(4)]
    return job


class _Twin:
    """The definition, word by word, over lists."""

    def __init__(self, job: list[list[Call]]) -> None:
        self.job = job
        self.cost = dict.fromkeys(range(4), 0)
        for number in range(len(job)):
            row = self.late(number)
            if row is None:
                continue
            cause, limit = self.first_cause(number, row)
            if cause is not None:
                waits = [self.wait(number, r) for r, *_ in job[number] if r != row[0]]
                self.cost[cause] += sum(min(wait, limit) for wait in waits)

    def wait(self, number: int, rank: int) -> int:
        latest = max(start for _, _, start, _ in self.job[number])
        return sum(latest - start for r, _, start, _ in self.job[number] if r == rank)

    def since(self, number: int, row: Call) -> int | None:
        """When the group's collective before ended on the rank."""
        before = [c[3] for rows in self.job[:number] for c in rows if c[:2] == row[:2]]
        return before[-1] if before else None

    def own(self, number: int, row: Call) -> int:
        before = self.since(number, row)
        return row[2] - before if before is not None else -1

    def late(self, number: int) -> Call | None:
        rows = self.job[number]
        own = {row: self.own(number, row) for row in rows}
        first = min(own.values()) < 0
        by = {row: row[2] if first else own[row] for row in rows}
        worst = max(rows, key=lambda row: (by[row], -row[0]))
        others = sum(self.wait(number, row[0]) for row in rows if row is not worst)
        behind = first or own[worst] > min(own.values())
        return worst if others > 0 and behind else None

    def other_waits(self, number: int, row: Call) -> list[tuple[int, int]]:
        """Waits in other groups since the group's collective before, and in which."""
        since = self.since(number, row)
        assert since is not None
        return [
            (self.wait(k, row[0]), k)
            for k, rows in enumerate(self.job[:number])
            for c in rows
            if c[0] == row[0] and c[1] != row[1] and since < c[3] <= row[2]
        ]

    def communicating(self, number: int, row: Call) -> int:
        since = self.since(number, row)
        assert since is not None
        spans = [c for rows in self.job for c in rows if c[0] == row[0]]
        return sum(max(0, min(c[3], row[2]) - max(c[2], since)) for c in spans)

    def first_cause(self, number: int, row: Call) -> tuple[int | None, int]:
        if self.since(number, row) is None:
            return row[0], sys.maxsize
        rows = self.job[number]
        own = {c: self.own(number, c) for c in rows}
        fastest = min(rows, key=lambda c: own[c])
        excess = self.communicating(number, row) - self.communicating(number, fastest)
        lateness = own[row] - min(own.values())
        if 2 * excess <= lateness:
            return row[0], sys.maxsize
        waits = self.other_waits(number, row)
        if 2 * sum(wait for wait, _ in waits) <= lateness:
            return None, 0
        wait, upstream = max(waits, key=lambda pair: pair[0])
        late = self.late(upstream)
        if late is None or self.since(upstream, late) is None:
            return None, 0
        cause, limit = self.first_cause(upstream, late)
        return cause, min(wait, limit)


@pytest.mark.parametrize("seed", thinned(range(12), 3))
def test_costs_are_those_of_the_definition(ask: Ask, call: Callable[..., Row], seed: int) -> None:
    job = _job(seed)
    calls = [c for rows in job for c in rows]
    collectives = [
        call(r, a, b, group=g, group_ranks=str(list(GROUPS[g])), group_size=len(GROUPS[g]))
        for r, g, a, b in calls
    ]
    kinds = [{"rank": r, "cycle": 0, "device": r, "kind": "comm", "start_ns": a, "end_ns": b}
             for r, _, a, b in calls]  # fmt: skip
    expected = _Twin(job).cost
    assert sum(expected.values()) > 5000
    for answer in _costs(ask, {"collectives": collectives, "activities": kinds}):
        assert {rank: row[1] for rank, row in answer.items()} == expected
