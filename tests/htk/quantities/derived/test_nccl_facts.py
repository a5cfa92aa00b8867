"""Facts of NCCL's records for the profiler's collectives, by hand."""

from typing import Any

from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.nccl_facts import collective_facts
from tests.tables import make

HASH = 0xABC
Row = dict[str, Any]


def call(source: str, rank: int, start: int, **more: Any) -> Row:
    plain = {"source": source, "rank": rank, "type": "all_reduce", "in_bytes": 64}
    times = {"start_ns": start, "end_ns": start + 50 + rank}
    return {**plain, **times, "timing": "gpu", "group_size": 2, **more}


def profiled(rank: int, start: int, **more: Any) -> Row:
    return call(
        "kineto", rank, start, group="0", group_ranks="[0,1]", seq_kind="collective", **more
    )


def recorded(rank: int, start: int, seq: int, **more: Any) -> Row:
    own = {"comm_hash": HASH, "comm_rank": rank, "seq": seq, "seq_kind": "function"}
    facts = {"algorithm": "RING", "protocol": "LL", "channels": 4, "event": 10 * rank + seq}
    return call("inspector", rank, start, **(own | facts | more))


def facts_of(rows: list[Row], channels: list[Row]) -> list[Row]:
    collectives = make("collectives", rows)
    matches = collective_matches(collectives, make("rank_windows", []), make("ranks", []))
    listed: list[Row] = collective_facts(
        collectives, matches, make("comm_channels", channels)
    ).to_pylist()
    return listed


def test_each_call_has_the_facts_of_its_record_and_of_its_channels() -> None:
    """Two calls on two ranks; the second one's channels took 7 and 30 ns on rank 0, and 11 on
    rank 1, where a channel without an end tells nothing."""
    ours = [profiled(rank, 1_000 * k + rank, seq=k) for rank in range(2) for k in range(2)]
    theirs = [
        recorded(rank, 1_000 * k + rank, k, protocol="LL" if k else "SIMPLE")
        for rank in range(2)
        for k in range(2)
    ]
    at = {"source": "inspector", "comm_hash": HASH, "type": "all_reduce", "seq": 1}
    channels = [
        at | {"rank": rank, "comm_rank": rank, "channel": k, "start_ns": 5, "end_ns": end}
        for k, (rank, end) in enumerate(((0, 12), (0, 35), (1, 16), (1, None)))
    ]
    found = facts_of([*ours, *theirs], channels)
    told = ("facts_from", "algorithm", "protocol", "channels", "comm_hash", "comm_rank", "seq")
    assert [tuple(row[name] for name in told) for row in found[:4]] == [
        ("inspector", "RING", "LL" if k else "SIMPLE", 4, HASH, rank, k)
        for rank in range(2)
        for k in range(2)
    ]
    assert [(row["channel_ns_min"], row["channel_ns_max"]) for row in found[:4]] == [
        (None, None), (7, 30), (None, None), (11, 11),
    ]  # fmt: skip
    assert [row["source_duration_ns"] for row in found[:4]] == [50, 50, 51, 51]
    assert [row["record_event"] for row in found[:4]] == [0, 1, 10, 11]
    assert {row["facts_from"] for row in found[4:]} == {None}


def test_calls_without_records_have_no_facts() -> None:
    alone = [profiled(rank, 1_000 + rank, seq=1) for rank in range(2)]
    values = [value for row in facts_of(alone, []) for value in row.values()]
    assert set(values) == {None}
