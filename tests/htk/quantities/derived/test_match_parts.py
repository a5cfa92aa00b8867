"""Matching by partition is matching all at once, bit for bit, however the groups are dealt out."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.match_parts import (
    MatchedPart,
    Partition,
    Planner,
    ends_of_all,
    ends_of_part,
    match_part,
    numbers_in_all,
    put_together,
    split_calls,
    survey_groups,
)
from tests.htk.quantities.derived.collective_rows import (
    NO_RANKS,
    NO_WINDOWS,
    Row,
    call,
    collectives,
)
from tests.htk.quantities.derived.random_jobs import random_job
from tests.thinned import thinned


def in_parts(
    files: Sequence[pa.Table], windows: pa.Table, ranks: pa.Table, rows_at_once: int
) -> tuple[pa.Table, int]:
    """Match the calls of files by partition; return the number of partitions, too."""
    planner = Planner()
    for file in files:
        planner.add(survey_groups(file))
    plan = planner.plan(rows_at_once)
    pieces: dict[int, list[pa.Table]] = {partition.number: [] for partition in plan.partitions}
    first = 0
    for file, part_of_group in zip(files, plan.of_file, strict=True):
        for number, piece in split_calls(file, part_of_group, first).items():
            pieces[number].append(piece)
        first += file.num_rows
    joined = {k: pa.concat_tables(found).unify_dictionaries() for k, found in pieces.items()}

    def matched(partition: Partition, *more: Any) -> MatchedPart:
        return match_part(joined[partition.number], partition, windows, ranks, *more)

    parts = [matched(partition) for partition in plan.partitions]
    if any(partition.judges_guesses for partition in plan.partitions):
        told = [
            ends_of_part(joined[p.number], part)
            for p, part in zip(plan.partitions, parts, strict=True)
        ]
        certain = ends_of_all(told, plan.ranks)
        parts = [
            matched(p, certain) if p.judges_guesses else part
            for p, part in zip(plan.partitions, parts, strict=True)
        ]
    numbered = zip(parts, numbers_in_all(parts), strict=True)
    return put_together(numbered, first), len(plan.partitions)


def together(files: Sequence[pa.Table], windows: pa.Table, ranks: pa.Table) -> pa.Table:
    return collective_matches(pa.concat_tables(files).unify_dictionaries(), windows, ranks)


@pytest.mark.parametrize("seed", thinned(range(25), 5))
def test_any_partition_gives_the_matches_of_one_table(seed: int) -> None:
    files, windows, ranks = random_job(seed)
    whole = together(files, windows, ranks)
    for rows_at_once in (1, 60, 10**6):
        parted, _ = in_parts(files, windows, ranks, rows_at_once)
        assert parted.equals(whole) or parted.to_pylist() == whole.to_pylist()
    assert whole["match"].null_count < whole.num_rows


def test_random_jobs_hold_what_may_go_wrong() -> None:
    """Else the property says little: guesses that are judged by other partitions, several
    partitions, calls that lack members, that began before a recording, and that nobody matched."""
    jobs = [random_job(seed) for seed in range(25)]
    found = [together(*job).to_pylist() for job in jobs]
    rows = [row for answer in found for row in answer]
    assert {row["matched_by"] for row in rows} == {"comms_id", "sequence", "order", None}
    assert any(row["guessed"] for row in rows) and any(row["before_window"] for row in rows)
    assert len({row["reason"] for row in rows}) >= 7
    assert any(row["blamed"] for row in rows) and any(row["undetermined_ns"] for row in rows)
    assert max(in_parts(*job, 1)[1] for job in jobs) >= 4


def test_a_guess_is_judged_by_the_clocks_of_other_partitions() -> None:
    """Rank 1's clock is 500 us ahead, as calls of a named group tell; of two unnamed calls one
    ends at one time on that clock, the other 300 us apart. By themselves both would match."""
    us = 1000
    rows: list[list[Row]] = [[], []]
    for k in range(12):
        for rank, ahead in ((0, 0), (1, 500)):
            end = (1000 * (k + 1) + ahead) * us
            rows[rank].append(call(rank, end - (90 + k) * us, end, seq=k, seq_kind="collective"))
    for k, apart in ((12, 0), (13, 300)):
        for rank, ahead in ((0, 0), (1, 500 + apart)):
            end = (1000 * (k + 1) + ahead) * us
            rows[rank].append(call(rank, end - 90 * us, end, group=None, in_bytes=k))
    files = [collectives(*own) for own in rows]
    answer, partitions = in_parts(files, NO_WINDOWS, NO_RANKS, 1)
    assert partitions == 2
    found = answer["match"].to_pylist()
    assert found[12] == found[26] == 12
    assert found[13] is None and found[27] is None


def test_what_bears_on_each_other_is_of_one_partition() -> None:
    """Calls of one Comms Id, groups of one name of which a record lacks the list, unknown ones."""
    ranks = ({"group_ranks": "[0,1]"}, {"group_ranks": "[2,3]"})
    alone = [
        call(0, 1, 2, group="a", comms_id="7"), call(1, 1, 2, group="b", comms_id="7"),
        call(0, 1, 2, group="c"), call(0, 1, 2, group="d"),
        call(0, 1, 2, group="tp", **ranks[0]), call(2, 1, 2, group="tp", **ranks[1]),
    ]  # fmt: skip
    assert _partitions(alone) == 5
    assert _partitions([*alone, call(3, 1, 2, group="tp")]) == 4
    unknown = [call(r, 1, 2, group=None, library=name) for r, name in enumerate(("nccl", "gloo"))]
    assert _partitions(unknown) == 1


def _partitions(rows: Sequence[Row]) -> int:
    planner = Planner()
    for row in rows:
        planner.add(survey_groups(collectives(row)))
    return len(planner.plan(1).partitions)


def test_streams_of_named_groups_do_not_hide_which_unnamed_calls_are_one() -> None:
    """Rank 0 has a named group on a stream that rank 1 has not."""
    rows = [
        call(0, 0, 5, group="tp", stream=20),
        *(call(r, 10 + r, 20, group=None, stream=24) for r in (0, 1)),
    ]
    found = collective_matches(collectives(*rows), NO_WINDOWS, NO_RANKS)
    assert found["match"].to_pylist() == [None, 0, 0]


def test_files_without_calls_give_an_empty_table() -> None:
    assert in_parts([collectives(), collectives()], NO_WINDOWS, NO_RANKS, 10)[0].num_rows == 0
    assert in_parts([], NO_WINDOWS, NO_RANKS, 10)[1] == 0
