"""Why wait and transfer of a call are unknown: each reason by a call worked out by hand."""

import pytest

from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.match_reasons import LACKING, REASONS, TOO_MANY, UNTOLD
from tests.htk.quantities.derived.collective_rows import (
    NO_RANKS,
    NO_WINDOWS,
    Row,
    call,
    collectives,
)

PAIR = (call(0, 1, 5), call(1, 2, 5))


def reasons(*rows: Row) -> list[str | None]:
    answer = collective_matches(collectives(*rows), NO_WINDOWS, NO_RANKS)
    return [row["reason"] for row in answer.to_pylist()]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], None),
        ([call(0, 6, 7, type="wait")], "moves nothing"),
        ([call(0, 6, 7, group="me", group_size=1)], "a group of one rank"),
        ([call(0, 6, 7, group="me")], "no other rank of its group was recorded"),
        ([call(0, 6, 7, type="send_recv")], "which calls its messages meet was not recorded"),
        ([call(0, 6, 7)], "no counterpart on the other ranks"),
        ([call(r, 6, 7, timing="watchdog") for r in (0, 1)], "times are those of the watchdog"),
        ([call(r, 6, 7, timing="none") for r in (0, 1)], "not timed"),
        ([call(r, 6, 7, type="broadcast") for r in (0, 1)], "its root is unknown or was not"
         " recorded"),
    ],
    ids=str,
)  # fmt: skip
def test_each_reason(rows: list[Row], expected: str | None) -> None:
    *_, last = reasons(*PAIR, *rows)
    assert last == expected and (expected is None or expected in REASONS)
    assert reasons(*PAIR, *rows)[:2] == [None, None]


def test_two_groups_of_which_nobody_tells_who_is_in_which() -> None:
    """Four ranks call in groups of two that are not recorded; their ends tell nothing."""
    rows = [call(r, 10, 20, group=None, group_size=2) for r in range(4)]
    assert reasons(*rows) == [UNTOLD] * 4


def test_more_ranks_than_the_group_has_are_no_one_call() -> None:
    """Four ranks say one name and one number of a group of two."""
    rows = [call(r, 10, 20, group_size=2, seq=1, seq_kind="collective") for r in range(4)]
    assert reasons(*rows) == [TOO_MANY] * 4


def test_members_that_were_not_recorded_leave_it_known_in_part() -> None:
    rows = [call(r, 10 + r, 20, group_size=3) for r in (0, 1)]
    assert reasons(*rows) == [LACKING] * 2
