"""Matching over ranks and waiting: small cases by hand, then the same under damage."""

import random
from typing import Any

import pyarrow as pa
import pytest

from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.clocks import rank_clocks
from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.match_reasons import APART
from tests.htk.quantities.derived.collective_rows import (
    NO_RANKS,
    NO_WINDOWS,
    Row,
    call,
    collectives,
)
from tests.thinned import thinned


def matched(*rows: Row) -> list[Row]:
    return collective_matches(collectives(*rows), NO_WINDOWS, NO_RANKS).to_pylist()


def column(found: list[Row], name: str) -> list[Any]:
    return [r[name] for r in found]


def test_all_wait_for_the_last() -> None:
    found = matched(call(0, 100, 200), call(1, 130, 201), call(2, 150, 199))
    assert column(found, "match") == [0, 0, 0]
    assert column(found, "wait_ns") == [50, 20, 0]
    assert column(found, "transfer_ns") == [50, 51, 49]
    assert column(found, "span_ns") == [51, 51, 51]
    assert column(found, "last_rank") == [2, 2, 2]


def test_a_wait_is_no_longer_than_the_call() -> None:
    """A clock that is off by more than a call lasts."""
    found = matched(call(0, 100, 200), call(1, 900, 1000))
    assert column(found, "wait_ns") == [100, 0]
    assert column(found, "transfer_ns") == [0, 100]


@pytest.mark.parametrize(
    ("kind", "waits"),
    [
        ("broadcast", [20, 0, 0]),  # for the root, rank 1; rank 2 came after it
        ("scatter", [20, 0, 0]),
        ("reduce", [0, 30, 0]),  # only the root waits for the others
        ("gather", [0, 30, 0]),
        ("all_to_all", [50, 30, 0]),
    ],
)
def test_who_depends_on_whom(kind: str, waits: list[int]) -> None:
    rows = [call(r, s, 200, type=kind, root=1) for r, s in enumerate((100, 120, 150))]
    for row in rows:
        row |= {"group_ranks": "[0,1,2]", "group_size": 3}
    assert column(matched(*rows), "wait_ns") == waits


def test_matches_are_numbered_by_who_starts_first() -> None:
    found = matched(
        call(0, 50, 200, group="b"), call(1, 60, 200, group="b"),
        call(0, 10, 200, group="a"), call(1, 150, 200, group="a"),
        call(0, 55, 200, group="c"), call(1, 56, 200, group="c"),
    )  # fmt: skip
    assert column(found, "match") == [1, 1, 0, 0, 2, 2]


def test_only_calls_of_unnamed_groups_by_their_order_are_guessed() -> None:
    named = [call(r, 10, 20) for r in (0, 1)]
    numbered = [call(r, 30, 40, group=None, comms_id="7") for r in (0, 1)]
    unnamed = [call(r, 50, 60, group=None) for r in (0, 1)]
    found = matched(*named, *numbered, *unnamed)
    assert column(found, "match") == [0, 0, 1, 1, 2, 2]
    assert column(found, "guessed") == [False] * 4 + [True] * 2


def test_wait_or_transfer_of_a_call_that_nobody_else_recorded() -> None:
    """All of its time; of a group of one, a call that waits and one without times, none is told."""
    found = matched(
        call(0, 100, 170), call(0, 200, 230, group_size=1, group="me"),
        call(0, 300, 310, type="wait"), call(0, 400, 460, timing="watchdog"),
        call(0, 500, 590, group="pair"), call(1, 510, 590, group="pair"),
    )  # fmt: skip
    assert column(found, "undetermined_ns") == [70, None, None, None, 0, 0]


def test_roots_are_ranks_of_the_group() -> None:
    more = {"type": "broadcast", "root": 0, "group_ranks": "[4,7]", "group_size": 2}
    found = matched(call(4, 150, 200, **more), call(7, 100, 200, **more))
    assert column(found, "wait_ns") == [0, 50]


def test_an_unknown_root_is_a_reason() -> None:
    found = matched(call(0, 100, 200, type="broadcast"), call(1, 120, 200, type="broadcast"))
    assert column(found, "wait_ns")[0] is None
    assert found[0]["match"] == 0 and "root" in found[0]["reason"]


def test_messages_by_their_order_between_two_ranks() -> None:
    rows = [
        call(0, 100, 200, type="send", peer=1, in_bytes=8),
        call(0, 210, 300, type="send", peer=2),
        call(0, 310, 400, type="send", peer=1, in_bytes=9),
        call(1, 150, 200, type="recv", peer=0, in_bytes=8),
        call(1, 305, 400, type="recv", peer=0, in_bytes=9),
    ]
    found = matched(*rows)
    assert found[0]["match"] == found[3]["match"] != found[2]["match"] == found[4]["match"]
    assert column(found, "wait_ns") == [50, None, 0, 0, 5]
    assert "counterpart" in found[1]["reason"] or "recorded" in found[1]["reason"]


def test_by_comms_id_whatever_the_order() -> None:
    found = matched(
        call(0, 10, 20, comms_id="9"),
        call(0, 30, 40, comms_id="7"),
        call(1, 10, 20, comms_id="7"),
        call(1, 30, 40, comms_id="9"),
    )
    assert column(found, "match") == [0, 1, 1, 0]
    assert set(column(found, "matched_by")) == {"comms_id"}


def test_by_sequence_within_groups_of_one_name() -> None:
    """Split groups share a name; their ranks tell them apart."""
    rows = [
        call(r, 10, 20, seq=3, seq_kind="collective", group="tp", group_ranks=ranks)
        for r, ranks in enumerate(("[0,1]", "[0,1]", "[2,3]", "[2,3]"))
    ]
    found = matched(*rows)
    assert column(found, "match") == [0, 0, 1, 1]
    assert set(column(found, "matched_by")) == {"sequence"}


def test_a_group_whose_ranks_one_record_lacks_is_the_one_of_its_name_and_size() -> None:
    """dp of four ranks is known by one list, tp by two: there a record without ranks fits none."""
    numbered = {"seq": 3, "seq_kind": "collective"}
    rows = [
        call(0, 10, 20, group="dp", group_size=4, group_ranks="[0,1,2,3]", **numbered),
        call(1, 11, 20, group="dp", group_size=4, **numbered),
        call(2, 12, 20, group="dp", group_size=4, group_ranks="[0,1,2,3]", **numbered),
        call(0, 30, 40, group="tp", group_size=2, group_ranks="[0,1]", **numbered),
        call(1, 31, 40, group="tp", group_size=2, group_ranks="[0,1]", **numbered),
        call(2, 32, 40, group="tp", group_size=2, group_ranks="[2,3]", **numbered),
        call(3, 33, 40, group="tp", group_size=2, **numbered),
        call(0, 50, 60, group="dp", group_size=2, **numbered),
    ]
    assert column(matched(*rows), "match") == [0, 0, 0, 1, 1, None, None, None]


@pytest.mark.parametrize(("kind", "by"), [("collective", "sequence"), ("plan", "order")])
def test_a_plan_s_numbers_say_nothing_of_the_calls(kind: str, by: str) -> None:
    """The ranks number two calls crosswise; numbers of a plan count something else."""
    rows = [
        call(rank, 100 * k, 100 * k + 20, group="tp", seq=seq, seq_kind=kind)
        for rank, numbers in ((0, (5, 4)), (1, (4, 5)))
        for k, seq in enumerate(numbers)
    ]
    found = matched(*rows)
    first, second, other_first, other_second = column(found, "match")
    crosswise = (first, second) == (other_second, other_first)
    assert crosswise if by == "sequence" else (first, second) == (other_first, other_second)
    assert set(column(found, "matched_by")) == {by}


def test_calls_that_wait_take_no_part_whatever_their_number() -> None:
    """Nor do calls of nobody: a rank that is not known."""
    numbered = {"group": "tp", "seq": 3, "seq_kind": "collective"}
    rows = [call(r, 10, 20, type=t, **numbered) for r in (0, 1) for t in ("wait", "all_reduce")]
    nobody = call(0, 10, 20, **numbered) | {"rank": None}
    found = matched(*rows, nobody)
    assert column(found, "match") == [None, 0, None, 0, None]
    assert column(found, "members_present")[1] == 2


def test_nothing_gives_nothing() -> None:
    assert matched() == []
    matches = collective_matches(collectives(), NO_WINDOWS, NO_RANKS)
    assert rank_clocks(collectives(), matches, NO_RANKS).num_rows == 0


def test_what_began_before_a_recording() -> None:
    windows = pa.Table.from_pylist(
        [{"rank": r, "cycle": 0, "start_ns": s} for r, s in ((0, 50), (1, 120))],
        schema=DERIVED["rank_windows"],
    )
    rows = [call(0, 100, 200), call(1, 150, 200), call(0, 300, 400), call(1, 310, 400)]
    found = collective_matches(collectives(*rows), windows, NO_RANKS)
    assert found["before_window"].to_pylist() == [True, True, False, False]


@pytest.mark.parametrize("seed", thinned(range(15), 3))
def test_random_jobs_with_losses(seed: int) -> None:
    """Calls of different sizes, lost at the ends and in the middle, on clocks that are apart."""
    dice = random.Random(seed)
    truth, rows = [], []
    for rank in range(dice.randint(2, 6)):
        shift, lost = dice.randint(0, 1000), set(dice.sample(range(60), dice.randint(0, 4)))
        first, last = dice.randint(0, 8), 60 - dice.randint(0, 8)
        for k in (k for k in range(first, last) if k not in lost):
            start = 1000 * k + dice.randint(0, 300) + shift
            rows.append(call(rank, start, 1000 * k + 500 + shift, in_bytes=1 + k * 37 % 60))
            truth.append(k)
    order = list(range(len(rows)))
    dice.shuffle(order)
    found = matched(*(rows[k] for k in order))
    together: dict[int, set[int]] = {}
    for k, row in zip(order, found, strict=True):
        if row["match"] is not None:
            together.setdefault(row["match"], set()).add(truth[k])
            assert row["wait_ns"] + row["transfer_ns"] == rows[k]["end_ns"] - rows[k]["start_ns"]
    assert all(len(calls) == 1 for calls in together.values())  # never two calls in one match
    seen = [k for k in set(truth) if truth.count(k) > 1]
    assert len(together) >= 0.9 * len(seen)


def test_nobody_ends_before_the_last_has_begun() -> None:
    """One end is torn away; the starts still bound the offset."""
    rows = [call(0, 0, 100_000), call(1, 99_000, 100_000), call(2, 50_000, 60_000)]
    table = collectives(*rows)
    clocks = rank_clocks(table, collective_matches(table, NO_WINDOWS, NO_RANKS), NO_RANKS)
    assert clocks["violations"].to_pylist() == [0, 0, 0]


def _two_jobs(seed: int) -> tuple[list[Row], pa.Table]:
    """Ranks 0 and 1 of one job and 2 and 3 of another, whose groups, numbers and host are equal."""
    dice = random.Random(seed)
    rows = []
    for ranks in ((0, 1), (2, 3)):
        now = dice.randint(0, 10**8)
        for seq in range(20):
            now += dice.randint(10**6, 5 * 10**7)
            listed = {"group_ranks": "[0,1,2,3]", "group_size": 4, "seq": seq}
            rows += [call(rank, now - 10_000 * rank, now + 50_000, **listed) for rank in ranks]
    hosts = [{"rank": rank, "host": "node-0"} for rank in range(4)]
    return rows, pa.Table.from_pylist(hosts, schema=TABLES["ranks"])


@pytest.mark.parametrize("seed", range(5))
def test_calls_that_cannot_be_one_on_their_hosts_clock_are_none(seed: int) -> None:
    rows, hosts = _two_jobs(seed)
    found = collective_matches(collectives(*rows), NO_WINDOWS, hosts).to_pylist()
    assert {row["match"] for row in found} == {None}
    assert {row["reason"] for row in found} == {APART}
    elsewhere = collective_matches(collectives(*rows), NO_WINDOWS, NO_RANKS)
    assert None not in elsewhere["match"].to_pylist(), "clocks of other hosts may be apart"


@pytest.mark.parametrize("ahead", [0, 4_900_000])
def test_a_process_may_be_ahead_of_its_host_all_the_time(ahead: int) -> None:
    rows = [
        call(rank, 10**7 * k + rank * ahead, 10**7 * k + rank * ahead + 40_000 + rank, seq=k)
        for rank in range(2)
        for k in range(10)
    ]
    hosts = pa.Table.from_pylist(
        [{"rank": r, "host": "h"} for r in range(2)], schema=TABLES["ranks"]
    )
    found = collective_matches(collectives(*rows), NO_WINDOWS, hosts).to_pylist()
    assert [row["match"] for row in found] == [*range(10)] * 2
