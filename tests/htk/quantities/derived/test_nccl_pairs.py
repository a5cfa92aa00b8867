"""Which record of NCCL's is which call of the profiler: two groups of two ranks, by hand.

Groups "0" of ranks 1 and 4, "1" of ranks 2 and 3, whose calls come 4 ms later. Their communicators
number their ranks from 0, and were recorded longer than the profiler ran. What group 0 calls the
communicator of group 1 has called too, but not the other way round.
"""

from typing import Any

import numpy as np
import pytest

from htk.base.columns.types import NONE
from htk.quantities.derived import nccl_pairs
from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.nccl_pairs import CallsByRank, CommunicatorOf, RecordPairs
from tests.tables import make

Row = dict[str, Any]
MEMBERS = {"0": (1, 4), "1": (2, 3)}
COMMS = {"0": 700, "1": 70}  # the hashes are not in the order of the groups
LATER = {"0": 0, "1": 4_000_000}
SIZES = {"0": (100, 200, 100, 300), "1": (100, 200, 400, 300)}
MS = 1_000_000


def profiled(group: str, rank: int, k: int, **more: Any) -> Row:
    """The k-th call of a rank, 10 ms apart."""
    start = k * 10 * MS + LATER[group]
    return {
        "rank": rank, "source": "kineto", "timing": "gpu", "group": group, "group_size": 2,
        "group_ranks": str(list(MEMBERS[group])).replace(" ", ""), "type": "all_reduce",
        "in_bytes": SIZES[group][k], "start_ns": start, "end_ns": start + MS,
    } | more  # fmt: skip


def recorded(group: str, comm_rank: int, k: int, **more: Any) -> Row:
    """NCCL's record of the same call, from 0.2 ms after it began; it has no global rank."""
    start = k * 10 * MS + LATER[group]
    return {
        "rank": None, "source": "inspector", "timing": "gpu", "comm_hash": COMMS[group],
        "comm_rank": comm_rank, "group_size": 2, "type": "all_reduce",
        "in_bytes": SIZES[group][k] if k >= 0 else 999, "seq": 50 + k, "seq_kind": "collective",
        "start_ns": start + 200_000, "end_ns": start + MS,
    } | more  # fmt: skip


def job(**of_records: Any) -> tuple[list[Row], list[Row]]:
    """Calls of the profiler, and records of NCCL with one earlier call on each rank."""
    calls = [profiled(g, rank, k) for g in MEMBERS for rank in MEMBERS[g] for k in range(4)]
    records = [
        recorded(g, place, k, **of_records) for g in COMMS for place in (1, 0) for k in range(-1, 4)
    ]
    return calls, records


class Sides:
    """Both sides of some rows, and the groups that communicators are taken for."""

    def __init__(self, calls: list[Row], records: list[Row]) -> None:
        table = make("collectives", [*records, *calls])
        self.rows = CollectiveRows(table)
        self.ours = nccl_pairs.group_calls_by_rank(self.rows, "kineto")
        self.theirs = nccl_pairs.group_calls_by_rank(self.rows, "inspector")
        self.taken_for = nccl_pairs.groups_of_communicators(self.rows, self.ours, self.theirs)
        self.listed = [*records, *calls]

    def pairs(self, match: np.ndarray | None = None) -> RecordPairs:
        alone = np.full(self.rows.length, NONE, np.int64)
        return nccl_pairs.pair_records(
            self.rows, alone if match is None else match, self.ours, self.theirs, self.taken_for
        )

    def groups(self) -> dict[str, int]:
        """The number of each process group among all groups and communicators."""
        return {
            self.listed[rows[0]]["group"]: number for (number, _), rows in self.ours.rows.items()
        }

    def comm(self, group: str) -> int:
        """The number of a group's communicator among all groups and communicators."""
        row = next(k for k, r in enumerate(self.listed) if r.get("comm_hash") == COMMS[group])
        return int(self.rows.group[row])


def assert_true(sides: Sides, pairs: RecordPairs, by: int) -> None:
    """Each call has the record of its group, rank and number; records have none."""
    for row, entry in enumerate(sides.listed):
        if entry["source"] != "kineto":
            assert pairs.row[row] == NONE
            continue
        group = entry["group"]
        k = entry["start_ns"] // (10 * MS)
        record = sides.listed[pairs.row[row]]
        assert pairs.row[row] != NONE and pairs.by[row] == by
        assert record["comm_hash"] == COMMS[group]
        assert record["comm_rank"] == MEMBERS[group].index(entry["rank"])
        assert record["seq"] == 50 + k


def test_sources_that_may_have_recorded_the_same_calls() -> None:
    calls, records = job()
    others = [{**records[0], "source": name} for name in ("nccl_debug", "flight_recorder")]
    table = make("collectives", [*calls, *records, *others])
    assert nccl_pairs.sources_beside(table) == ["inspector", "nccl_debug"]


def test_sides_hold_each_ranks_calls_in_order() -> None:
    calls, records = job()
    sides = Sides(list(reversed(calls)), records)
    assert isinstance(sides.theirs, CallsByRank)
    assert sorted(rank for _, rank in sides.ours.rows) == [1, 2, 3, 4]
    assert sorted(rank for _, rank in sides.theirs.rows) == [0, 0, 1, 1]
    for rows in (*sides.ours.rows.values(), *sides.theirs.rows.values()):
        starts = [sides.listed[k]["start_ns"] for k in rows.tolist()]
        assert starts == sorted(starts) and len(starts) in (4, 5)
    barrier = profiled("0", 1, 0, type="barrier", start_ns=5 * MS, end_ns=6 * MS)
    assert len(Sides([*calls, barrier], records).ours.rows) == 4
    assert all(len(rows) == 4 for rows in Sides([*calls, barrier], records).ours.rows.values())


def test_each_communicator_is_taken_for_the_group_of_its_calls() -> None:
    sides = Sides(*job())
    group = sides.groups()
    assert sides.taken_for == {
        sides.comm("0"): CommunicatorOf(group["0"], {0: 1, 1: 4}, False),
        sides.comm("1"): CommunicatorOf(group["1"], {0: 2, 1: 3}, False),
    }


def test_times_tell_which_record_is_which_call() -> None:
    sides = Sides(*job())
    pairs = sides.pairs()
    assert_true(sides, pairs, nccl_pairs.TIME)
    assert not pairs.guessed.any() and not pairs.comm_guessed.any()


def test_a_record_whose_time_does_not_overlap_is_a_guess() -> None:
    calls, records = job()
    for record in records:
        record["start_ns"] += 3 * MS
        record["end_ns"] += 3 * MS
    sides = Sides(calls, records)
    pairs = sides.pairs()
    assert_true(sides, pairs, nccl_pairs.TIME)
    assert pairs.guessed[len(records) :].all()


def test_without_times_a_group_that_one_communicator_alone_fits_is_given_to_that() -> None:
    """Both communicators have made all calls of group 0, only one those of group 1: 400 bytes."""
    calls, records = job(timing=None)
    sides = Sides(calls, records)
    group = sides.groups()
    assert {comm: named.group for comm, named in sides.taken_for.items()} == {
        sides.comm(name): group[name] for name in MEMBERS
    }
    assert all(named.guessed for named in sides.taken_for.values())


def test_times_that_are_equal_tell_no_groups_apart() -> None:
    """Without its four milliseconds group 1 ends when group 0 does, in all of its calls."""
    calls, records = job()
    for row in (*calls, *records):
        late = LATER["1"] if row.get("group") == "1" or row.get("comm_hash") == COMMS["1"] else 0
        row["start_ns"] -= late
        row["end_ns"] -= late
        row["in_bytes"] = 100 if row["in_bytes"] == 400 else row["in_bytes"]
    assert all(named.guessed for named in Sides(calls, records).taken_for.values())


def test_order_tells_it_without_times_where_one_shift_fits() -> None:
    """100 200 100 300 stands in 999 100 200 100 300 only from the second on."""
    calls, records = job(timing=None)
    sides = Sides(calls, records)
    pairs = sides.pairs()
    assert_true(sides, pairs, nccl_pairs.ORDER)
    assert pairs.guessed[len(records) :].all(), "order alone is a guess"


def test_where_two_shifts_fit_nothing_is_paired() -> None:
    calls = [profiled("0", rank, k, in_bytes=100) for rank in (1, 4) for k in range(3)]
    records = [
        recorded("0", place, k, in_bytes=100, timing=None) for place in (0, 1) for k in range(4)
    ]
    assert (Sides(calls, records).pairs().row == NONE).all()


def test_groups_with_the_same_calls_are_told_apart_by_time_or_guessed() -> None:
    calls, records = job()
    for row in (*calls, *records):
        if row["in_bytes"] == 400:
            row["in_bytes"] = 100
    sides = Sides(calls, records)
    assert not any(named.guessed for named in sides.taken_for.values())
    assert_true(sides, sides.pairs(), nccl_pairs.TIME)
    untimed = Sides(calls, [{**record, "timing": None} for record in records])
    assert all(named.guessed for named in untimed.taken_for.values())
    assert untimed.pairs().comm_guessed[len(records) :].all()


def test_of_another_size_is_no_communicator_of_a_group() -> None:
    calls, records = job()
    assert not Sides(calls, [{**record, "group_size": 4} for record in records]).taken_for
    others = [{**record, "in_bytes": record["in_bytes"] + 1} for record in records]
    assert not Sides(calls, others).taken_for, "less than half of the calls agree"


def test_ranks_agree_on_the_number_of_a_collective() -> None:
    """On rank 4 the first record was lost, and its order fits one record later than is true.

    Rank 1 is sure of its records by time. The calls of one collective have one number, so that
    rank 4 takes the record of that number; of the call whose record was lost it has none.
    """
    calls = [profiled("0", rank, k, in_bytes=100) for rank in (1, 4) for k in range(4)]
    records = [recorded("0", 0, k, in_bytes=100) for k in range(4)]
    records += [recorded("0", 1, k, in_bytes=100, timing=None) for k in range(1, 4)]
    sides = Sides(calls, records)
    match = np.array([NONE] * len(records) + [0, 1, 2, 3] * 2)
    pairs = sides.pairs(match)
    seq = {
        (row["rank"], row["start_ns"] // (10 * MS)): sides.listed[record]["seq"]
        for row, record in zip(sides.listed, pairs.row.tolist(), strict=True)
        if row["source"] == "kineto" and record != NONE
    }
    assert seq == {
        (1, 0): 50, (1, 1): 51, (1, 2): 52, (1, 3): 53, (4, 1): 51, (4, 2): 52, (4, 3): 53
    }  # fmt: skip
    on_four = [k for k, row in enumerate(sides.listed) if row["rank"] == 4]
    assert pairs.by[on_four].tolist() == [NONE, *[nccl_pairs.SEQUENCE] * 3]
    assert not pairs.guessed.any(), "rank 1 was sure"


def test_what_all_calls_of_a_kind_say_alike() -> None:
    """All calls of 100 bytes took one algorithm; those of 200 differ, one of 300 does not say."""
    records = [recorded("0", place, k) for place in (0, 1) for k in range(4)]
    sides = Sides([], records)
    sizes = np.array([record["in_bytes"] for record in records])
    algorithm = np.where(sizes == 200, [0, 0, 0, 0, 1, 1, 1, 1], 5)
    algorithm[sizes == 300] = [NONE, 5]
    protocol = np.full(len(records), 2)
    comm = sides.comm("0")
    answers = nccl_pairs.common_answers(sides.rows, sides.theirs, comm, (algorithm, protocol))
    assert {size for _, size in answers} == {100, 300}
    assert sizes[list(answers.values())].tolist() == [size for _, size in answers]


@pytest.mark.parametrize("listed", [True, False])
def test_members_of_a_group(listed: bool) -> None:
    """Where the ranks of a group were not recorded, each rank stands for itself."""
    calls = [profiled("0", rank, 0) for rank in (4, 1)]
    if not listed:
        calls = [{**call, "group_ranks": None} for call in calls]
    sides = Sides(calls, [])
    (group,) = sides.ours.size
    expected = {0: 1, 1: 4} if listed else {1: 1, 4: 4}
    assert nccl_pairs.members_of(sides.rows, sides.ours, group) == expected
