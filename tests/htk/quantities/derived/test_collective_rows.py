"""What matching reads of collectives, and the order of calls whose recordings differ."""

import pytest

from htk.quantities.derived.collective_rows import CollectiveRows
from htk.quantities.derived.match import collective_matches
from tests.htk.quantities.derived.collective_rows import (
    NO_RANKS,
    NO_WINDOWS,
    Row,
    call,
    collectives,
)


def matched(*rows: Row) -> list[Row]:
    return collective_matches(collectives(*rows), NO_WINDOWS, NO_RANKS).to_pylist()


def test_hosts_are_those_that_matching_was_told() -> None:
    rows = CollectiveRows(collectives(*[call(rank, 0, 1) for rank in (2, 0, 1, 3)]))
    rows.host_of = {0: "a", 1: "b", 2: "a"}
    assert rows.host.tolist() == [0, 0, 1, -1]
    assert rows.share_host(0, 2) and not rows.share_host(0, 1) and not rows.share_host(3, 3)


@pytest.mark.parametrize(
    "known", [{"group": "tp"}, {"comm_hash": 7}, {"group_ranks": "[0,1]"}], ids=str
)
def test_any_name_makes_a_group_known(known: Row) -> None:
    """Ranks 0 and 1 call out of turn with the unnamed groups of ranks 2 and 3."""
    rows = [call(r, 10 * r, 100, group=None) | known for r in (0, 1)]
    unnamed = [call(r, 10 * r, 100, group=None) for r in (2, 3)]
    found = CollectiveRows(collectives(*rows, *unnamed))
    assert found.unknown_group.tolist() == [False, False, True, True]
    assert len(set(found.group[:2].tolist())) == 1
    assert found.group[0] not in found.group[2:]


def steps(rank: int, names: str, first: int = 0) -> list[Row]:
    """A call for each letter, 100 apart; a letter is a size."""
    return [
        call(rank, 100 * (first + k) + rank, 100 * (first + k) + 50, in_bytes=ord(name))
        for k, name in enumerate(names)
    ]


def pairs(found: list[Row], length: int) -> list[int | None]:
    """For each call of rank 1 the place of its partner on rank 0."""
    place = {found[k]["match"]: k for k in range(length) if found[k]["match"] is not None}
    return [place.get(r["match"]) for r in found[length:]]


@pytest.mark.parametrize(
    ("own", "first", "expected"),
    [
        ("abcdef", 0, [0, 1, 2, 3, 4, 5]),
        ("bcdef", 1, [1, 2, 3, 4, 5]),  # missed the first
        ("abcd", 0, [0, 1, 2, 3]),  # stopped early
        ("cde", 2, [2, 3, 4]),
        ("abdef", 0, [0, 1, 3, 4, 5]),  # lost one in the middle
        ("abxcdef", 0, [0, 1, None, 2, 3, 4, 5]),  # made one more
        ("acbdef", 0, [0, None, None, 3, 4, 5]),  # in another order
    ],
)
def test_by_order_when_calls_are_missing(own: str, first: int, expected: list[int | None]) -> None:
    found = matched(*steps(0, "abcdef"), *steps(1, own, first))
    assert pairs(found, 6) == expected


def test_a_program_that_repeats_itself_is_told_by_time() -> None:
    found = matched(*steps(0, "abababab"), *steps(1, "ababab", 2))
    assert pairs(found, 8) == [2, 3, 4, 5, 6, 7]


def test_equal_recordings_match_call_by_call_whatever_the_clocks_say() -> None:
    """Rank 1's clock is three calls ahead."""
    found = matched(*steps(0, "aaaaaa"), *steps(1, "aaaaaa", 3))
    assert pairs(found, 6) == [0, 1, 2, 3, 4, 5]


def test_a_kernel_whose_name_says_nothing_fits_any_call() -> None:
    rows = [*steps(0, "abc"), *steps(1, "abc")]
    rows[3] |= {"type": "unknown", "in_bytes": None}
    assert pairs(matched(*rows), 3) == [0, 1, 2]
