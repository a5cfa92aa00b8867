"""Who calls another kind of group than ranks in like places: jobs of eight ranks, by hand."""

from collections.abc import Sequence

from htk.quantities.measures.call_history import CallSite, GroupId, Histories, RecordedCall
from htk.quantities.measures.call_patterns import wrong_turns

WORLD = GroupId("world", tuple(range(8)))
NEIGHBOURS = [GroupId(f"tp{k}", (2 * k, 2 * k + 1)) for k in range(4)]  # 0 and 1, 2 and 3, …
REPLICAS = [GroupId(f"dp{k}", (k, k + 4)) for k in range(4)]  # 0 and 4, 1 and 5, …
ALL, TP, DP = "all", "tp", "dp"
USUAL = (ALL, TP, ALL, DP)


def group_of(rank: int, what: str) -> GroupId:
    return {ALL: WORLD, TP: NEIGHBOURS[rank // 2], DP: REPLICAS[rank % 4]}[what]


def history(
    called: dict[int, Sequence[str]], first_record: dict[int, int] | None = None
) -> Histories:
    """What each rank called, in order; all know all groups. The ring may have lost the first."""
    calls: dict[int, list[RecordedCall]] = {}
    for rank, names in called.items():
        first = (first_record or {}).get(rank, 0)
        sites = [CallSite(group_of(rank, name), k) for k, name in enumerate(names)]
        calls[rank] = [RecordedCall(rank, site, first + k) for k, site in enumerate(sites)]
    status = {(rank, group_of(rank, what)): {} for rank in called for what in (ALL, TP, DP)}
    descriptions = dict.fromkeys((WORLD, *NEIGHBOURS, *REPLICAS), "undefined")
    return Histories(calls, {}, status, descriptions, {}, set(), set(), set(), {}, {}, [])


def job(others: dict[int, Sequence[str]]) -> dict[int, Sequence[str]]:
    return {rank: others.get(rank, USUAL) for rank in range(8)}


def test_one_rank_takes_the_group_of_its_replicas_for_that_of_its_neighbour() -> None:
    """Both groups have two members; only how far apart these are tells one from the other."""
    (turn,) = wrong_turns(history(job({5: (ALL, DP, ALL, TP)})))
    assert (turn.ranks, turn.others, turn.number) == ((5,), (0, 1, 2, 3, 4, 6, 7), 2)
    assert turn.call.call_site.group == REPLICAS[1] and turn.call.rank == 5
    assert turn.expected.call_site.group == NEIGHBOURS[0] and turn.expected.rank == 0


def test_the_first_turn_counts_and_three_ranks_of_eight_are_few() -> None:
    wrong = (ALL, TP, DP, DP)
    (turn,) = wrong_turns(history(job({2: wrong, 3: wrong, 7: wrong})))
    assert (turn.ranks, turn.number) == ((2, 3, 7), 3)
    assert turn.call.call_site.group == REPLICAS[2]
    assert turn.expected.call_site.group == WORLD


def test_half_against_half_tells_nothing() -> None:
    wrong = (ALL, DP, ALL, DP)
    assert wrong_turns(history(job(dict.fromkeys(range(4), wrong)))) == []
    assert wrong_turns(history(job({}))) == []


def test_two_ranks_have_no_majority_and_three_have() -> None:
    right, wrong = USUAL, (ALL, DP)
    assert wrong_turns(history({0: right, 1: wrong})) == []
    (turn,) = wrong_turns(history({0: right, 1: wrong, 2: right}))
    assert (turn.ranks, turn.others) == ((1,), (0, 2))


def test_who_stops_early_takes_no_wrong_turn() -> None:
    assert wrong_turns(history(job({6: (ALL, TP)}))) == []


def test_ranks_whose_beginning_is_lost_are_not_compared() -> None:
    """Their first record is the ring's, not the job's."""
    assert wrong_turns(history(job({5: (DP, ALL)}), {5: 40})) == []


def test_messages_between_two_ranks_belong_to_no_pattern() -> None:
    messages = history(job({}))
    for rank in (1, 6):
        message = CallSite(WORLD, 9, (rank, 0))
        messages.calls[rank].insert(1, RecordedCall(rank, message, 1))
    assert wrong_turns(messages) == []
