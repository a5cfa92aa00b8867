"""What all members recorded, and who sends to whom."""

from htk.quantities.derived.match import collective_matches
from htk.quantities.measures.collective_calls import CollectiveCalls
from htk.quantities.measures.complete_collectives import CompleteCollectives
from tests.htk.quantities.measures.timed_calls import calls_of
from tests.tables import make

MB = 1 << 20


def test_only_what_all_members_recorded_is_a_transfer() -> None:
    calls = calls_of([((1, 5), 4 * MB, 90_000), ((2, 3), 8 * MB, 70_000)], group_size=2)
    complete = CompleteCollectives.from_calls(calls)
    assert complete.members == [(1, 5), (2, 3)]
    assert complete.group.tolist() == [0, 1]
    assert complete.time_ns.tolist() == [90_000, 70_000]
    lacking = calls_of([((1, 5), 4 * MB, 90_000)], group_size=3, group_ranks="[1,5,6]")
    assert CompleteCollectives.from_calls(lacking).members == []


def test_the_two_directions_between_two_ranks_are_two_groups() -> None:
    rows = [
        {
            "rank": rank, "source": "kineto", "timing": "gpu", "group": "pp", "group_size": 8,
            "type": "send" if rank == sender else "recv", "in_bytes": MB, "out_bytes": MB,
            "peer": 6 - rank, "start_ns": start, "end_ns": start + 1000,
        }
        for sender, start in ((2, 0), (4, 5000), (2, 9000))
        for rank in (2, 4)
    ]  # fmt: skip
    ranks = make("ranks", [{"rank": rank} for rank in range(8)])
    collectives = make("collectives", rows)
    matches = collective_matches(collectives, make("rank_windows", []), ranks)
    complete = CompleteCollectives.from_calls(
        CollectiveCalls.from_tables(collectives, matches, ranks)
    )
    by_group = [complete.members[group] for group in complete.group.tolist()]
    assert by_group == [(2, 4), (4, 2), (2, 4)]
    assert complete.ways == [[(2, 4)], [(4, 2)]]
    assert complete.moved.tolist() == [MB] * 3


def test_of_one_rank_that_is_looked_at_the_members_are_those_of_the_group() -> None:
    """Selecting a rank leaves a group as it is: its transfers were matched over all ranks."""
    calls = calls_of([((1, 5), 4 * MB, 90_000), ((2, 3), 8 * MB, 70_000)])
    of_rank = calls.rows.rank == 5
    table, matches = (t.filter(of_rank) for t in (calls.table, calls.matches))
    complete = CompleteCollectives.from_calls(
        CollectiveCalls.from_tables(table, matches, calls.ranks)
    )
    assert complete.members == [(1, 5)]
    assert complete.time_ns.tolist() == [90_000]
