"""Whom waits are attributed to: three groups in a chain, worked out by hand.

Groups a of ranks 2 and 5, b of 5 and 7, c of 7 and 9. Each begins with a call that nobody is late
to. Then rank 2 computes and is late to a; what that costs the others follows from group to group.
"""

from typing import Any

import numpy as np
import pytest

from htk.base.columns.types import NONE
from htk.base.errors import MissingTable
from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.own_time import own_times
from htk.quantities.measures.blame import Blame, _first_causes, blame_ranks, need_waits
from htk.quantities.measures.collective_calls import CollectiveCalls
from tests.tables import make

Row = dict[str, Any]
GROUPS = {"a": (2, 5), "b": (5, 7), "c": (7, 9)}


def call(
    group: str, rank: int, start: int, end: int, members: tuple[int, ...] | None = None
) -> Row:
    members = members or GROUPS[group]
    return {
        "rank": rank, "source": "kineto", "timing": "gpu", "group": group, "type": "all_reduce",
        "group_size": len(members), "group_ranks": "[" + ",".join(map(str, members)) + "]",
        "start_ns": start, "end_ns": end,
    }  # fmt: skip


FIRST = [call(group, rank, 0, 10) for group, members in GROUPS.items() for rank in members]
# Rank 2 computes from 10 to 60: rank 5 waits 40 in a. Rank 5 then comes to b at 75, 53 after
# rank 7 that came at 22; and rank 7 to c at 90, 60 after rank 9.
CHAIN = [
    call("a", 2, 60, 70),
    call("a", 5, 20, 70),
    call("b", 5, 75, 85),
    call("b", 7, 22, 85),
    call("c", 7, 90, 99),
    call("c", 9, 30, 99),
]
WORK = [{"rank": 2, "kind": "compute", "start_ns": 10, "end_ns": 60}]


def calls_of(rows: list[Row], **tables: list[Row]) -> CollectiveCalls:
    collectives = make("collectives", rows)
    ranks = sorted({(row["rank"], row.get("cycle", 0)) for row in rows})
    windows = make(
        "rank_windows",
        [{"rank": r, "cycle": c, "start_ns": 0, "end_ns": 2000} for r, c in ranks],
    )
    empty = make("ranks", tables.get("ranks", []))
    return CollectiveCalls.from_tables(
        collectives, collective_matches(collectives, windows, empty), empty
    )


def blamed(rows: list[Row], work: list[Row] = WORK) -> Blame:
    """Blame where the GPU was busy in `work` and in the calls."""
    comm = [{**row, "kind": "comm"} for row in rows]
    names = ("rank", "cycle", "device", "kind", "start_ns", "end_ns")
    busy = [{k: row[k] for k in names if k in row} for row in (*work, *comm)]
    calls = calls_of(rows)
    return blame_ranks(calls, lambda: own_times(calls.table, make("activities", busy)))


def test_what_a_late_rank_costs_follows_from_group_to_group() -> None:
    rows = FIRST + CHAIN
    answer = blamed(rows)
    a2, b5, c7 = (len(FIRST) + k for k in (0, 2, 4))
    late = [k for k in range(len(rows)) if answer.late[k]]
    assert late == [a2, b5, c7]
    assert answer.lateness[late].tolist() == [40, 53, 60]
    assert answer.held_up[late].tolist() == [False, True, True]
    assert answer.cause[late].tolist() == [a2, a2, a2]
    assert [k for k in range(len(rows)) if answer.blamed[k]] == [a2]
    # Each of the others can have waited 40 because of rank 2, for rank 5 waited no longer.
    assert answer.waited[late].tolist() == [40, 40, 40]
    assert answer.cost[a2] == 120 and answer.cost.sum() == 120
    assert answer.collectives[a2] == 3
    assert answer.excess[a2, 0] == 50, "it computed, and rank 5 did not"
    assert (answer.cause[answer.cause != NONE] == a2).all()


def test_a_rank_that_is_late_on_its_own_account_too() -> None:
    """Rank 5 waits 10 in a and computes 40 itself: most of its lateness in b is its own."""
    late = [call("a", 2, 30, 35), call("a", 5, 20, 35), call("b", 5, 75, 85), call("b", 7, 22, 85)]
    work = [
        {"rank": 2, "kind": "compute", "start_ns": 10, "end_ns": 30},
        {"rank": 5, "kind": "compute", "start_ns": 35, "end_ns": 75},
    ]
    rows = FIRST + late
    answer = blamed(rows, work)
    a2, b5 = len(FIRST), len(FIRST) + 2
    assert [k for k in range(len(rows)) if answer.blamed[k]] == [a2, b5]
    assert (answer.cost[a2], answer.cost[b5]) == (10, 53)
    assert answer.collectives[[a2, b5]].tolist() == [1, 1]


def test_a_slow_transfer_is_nobodys() -> None:
    """Nobody waits in a, which only takes long; rank 5 is late to b because of that."""
    slow = [call("a", 2, 20, 70), call("a", 5, 20, 70), call("b", 5, 75, 85), call("b", 7, 22, 85)]
    answer = blamed(FIRST + slow, [])
    b5 = len(FIRST) + 2
    assert answer.late[b5] and answer.held_up[b5] and answer.cause[b5] == NONE
    assert answer.cost.sum() == 0 and not answer.blamed.any()


def test_cycles_hold_each_other_up_in_nothing() -> None:
    """The same in another recording of the ranks, a second later: costs stay where they arose."""
    again = [
        {**row, "cycle": 1, "start_ns": row["start_ns"] + 1000, "end_ns": row["end_ns"] + 1000}
        for row in FIRST + CHAIN
    ]
    work = [*WORK, {**WORK[0], "cycle": 1, "start_ns": 1010, "end_ns": 1060}]
    rows = FIRST + CHAIN + again
    answer = blamed(rows, work)
    firsts = [len(FIRST), len(FIRST + CHAIN) + len(FIRST)]
    assert [k for k in range(len(rows)) if answer.blamed[k]] == firsts
    assert answer.cost[firsts].tolist() == [120, 120]


def test_what_a_cut_recording_lacks_is_on_no_account() -> None:
    """Group a of three ranks, one of which ends early: its later call is not that of all."""
    members = (2, 5, 6)
    rows = [call("a", rank, 0, 10, members) for rank in members]
    rows += [call("a", 2, 60, 70, members), call("a", 5, 20, 70, members)]
    answer = blamed(rows)
    assert answer.on_all_ranks.tolist() == [True] * 3 + [False] * 2
    assert answer.cost.sum() == 0


def test_waits_are_needed_and_their_lack_is_explained() -> None:
    need_waits(calls_of(FIRST + CHAIN))
    with pytest.raises(MissingTable, match="no collective was found on two ranks"):
        need_waits(calls_of([FIRST[0], CHAIN[0]]))
    untimed = [{**row, "timing": None, "seq": 1, "seq_kind": "collective"} for row in FIRST[:2]]
    with pytest.raises(MissingTable, match="2 calls of collectives were recorded without their"):
        need_waits(calls_of(untimed))


def test_ranks_that_wait_for_each_other_are_nobodys_fault() -> None:
    """Two collectives of two rows: the late one of each was held up in the other. Of a third, the
    late row was held up in the first; of a fourth, on nobody's account but its own."""
    match = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    late = np.array([True, False] * 4)
    held_up = np.array([True, False, True, False, True, False, False, False])
    held_up_in = np.array([3, NONE, 1, NONE, 1, NONE, NONE, NONE])
    wait = np.array([0, 7, 0, 5, 0, 4, 0, 3])
    cause, _ = _first_causes(match, late, held_up, held_up_in, late, wait)
    assert cause.tolist() == [NONE] * 6 + [6, NONE]
    # Were the first late on its own account, the second and third would be late because of it.
    held_up[0] = False
    cause, limit = _first_causes(match, late, held_up, held_up_in, late, wait)
    assert cause.tolist() == [0, NONE, 0, NONE, 0, NONE, 6, NONE]
    assert limit[[2, 4]].tolist() == [7, 7], "as long as it was waited there"
