"""Calls that send and receive several messages: which of them meet, by hand and by brute force."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa

import htk
from htk.base.schema import DERIVED, TABLES
from htk.base.schema.operation_types import CALLS
from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.messages import one_row_a_message
from tests.job_profiles import STREAMS, JobProfiles
from tests.operation_job import JobPlan, simulate

Message = tuple[str, int | None]


def calls(*listed: tuple[int, int, list[Message]]) -> pa.Table:
    """(rank, start, messages); a single one is a plain call."""
    rows: list[dict[str, Any]] = []
    for rank, start, messages in listed:
        type_, peer = messages[0] if len(messages) == 1 else ("send_recv", None)
        several = json.dumps(messages) if len(messages) > 1 else None
        rows.append(
            {
                "rank": rank, "cycle": 0, "source": "kineto", "timing": "gpu", "group": "pp",
                "group_size": 4, "group_ranks": "[0,1,2,3]", "library": "nccl",
                "start_ns": start, "end_ns": start + 50,
                "type": type_, "peer": peer, "messages": several,
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=TABLES["collectives"])


def matches(table: pa.Table) -> list[dict[str, Any]]:
    windows, ranks = DERIVED["rank_windows"].empty_table(), TABLES["ranks"].empty_table()
    return collective_matches(table, windows, ranks).to_pylist()


def test_each_message_is_a_row() -> None:
    table, row = one_row_a_message(
        calls((0, 5, [("recv", 2)]), (1, 7, [("send", 0), ("recv", None)]), (2, 9, [("send", 0)]))
    )
    assert row.tolist() == [0, 1, 1, 2]
    expected = [("recv", 2), ("send", 0), ("recv", None), ("send", 0)]
    assert list(zip(*(table[c].to_pylist() for c in ("type", "peer")), strict=True)) == expected
    assert table["start_ns"].to_pylist() == [5, 7, 7, 9]


def test_calls_whose_messages_are_each_others_are_one() -> None:
    found = matches(
        calls(
            (0, 10, [("send", 1)]),
            (1, 12, [("recv", 0)]),
            (0, 100, [("send", 1), ("recv", 1)]),
            (1, 130, [("send", 0), ("recv", 0)]),
            (1, 200, [("send", 0), ("send", 2)]),  # two calls
            (0, 210, [("recv", 1)]),
            (2, 220, [("recv", 1)]),
            (0, 300, [("send", 1), ("recv", None)]),
        )
    )
    numbers = [row["match"] for row in found]
    assert numbers[0] == numbers[1] != numbers[2] == numbers[3]
    assert [row["wait_ns"] for row in found[:4]] == [2, 0, 30, 0]
    assert numbers[4] == numbers[5] == numbers[6] not in (None, numbers[0], numbers[2])
    assert [row["wait_ns"] for row in found[4:7]] == [20, 0, 0], "for the later of two"
    assert [row["last_rank"] for row in found[4:7]] == [2, 0, 2]
    assert (
        numbers[7] is None
        and found[7]["reason"] == "which calls its messages meet was not recorded"
    )


def test_a_call_of_a_ring_waits_for_its_neighbours_alone() -> None:
    """Four ranks send to the next; rank 2 comes 30 late, and rank 0 has nothing to do with it."""
    found = matches(
        calls(*((r, 10 + 30 * (r == 2), [("send", (r + 1) % 4), ("recv", (r - 1) % 4)])
                for r in range(4)))
    )  # fmt: skip
    assert {row["match"] for row in found} == {0}
    assert [row["wait_ns"] for row in found] == [0, 30, 0, 30]
    assert [row["span_ns"] for row in found] == [50, 20, 50, 20]
    assert [(row["members_expected"], row["members_present"]) for row in found] == [(3, 3)] * 4


def test_calls_that_go_over_into_each_other_have_waits_and_no_number() -> None:
    """Rank 1's first call meets rank 0's, and its second the same: one chain, twice on rank 1."""
    found = matches(
        calls(
            (0, 10, [("send", 1), ("recv", 1)]),
            (1, 15, [("recv", 0), ("send", 2)]),
            (1, 40, [("send", 0), ("recv", 2)]),
            (2, 18, [("recv", 1), ("send", 1)]),
        )
    )
    assert [row["match"] for row in found] == [None] * 4
    assert [row["wait_ns"] for row in found] == [30, 3, 0, 22]
    assert [row["reason"] for row in found] == [None] * 4


def test_batched_calls_of_a_pipeline_are_matched_as_they_were_simulated(tmp_path: Path) -> None:
    plan = JobPlan(replicas=2, stages=3, micro_batches=5, steps=2, noise=0.1, batched=True)
    rows = simulate(plan)
    trace = htk.open(JobProfiles(rows, batched=True).write(tmp_path))
    expected = latest_starts(rows.to_pylist())
    collectives = trace.tables["collectives"]
    found = zip(
        collectives.to_pylist(), trace.tables["collective_matches"].to_pylist(), strict=True
    )
    exchanging = [(c, m) for c, m in found if c["messages"]]
    assert len(exchanging) == len(expected)
    for call, match in exchanging:
        assert match["common_start_ns"] == expected[call["rank"], call["start_ns"]]
        assert match["wait_ns"] == match["common_start_ns"] - call["start_ns"]
        assert match["undetermined_ns"] == 0 and match["reason"] is None


def latest_starts(rows: list[dict[str, Any]]) -> dict[tuple[int, int], int]:
    """The later start of the two calls of each message; in 1F1B two calls meet in all of theirs."""
    pairs: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for type_ in STREAMS:
        back = type_ in ("forward_recv", "backward_send")
        seen: dict[Any, int] = defaultdict(int)
        for row in sorted(rows, key=lambda r: r["start_ns"]):
            if type_ in CALLS.get(row["type"], (row["type"],)):
                lane = type_.split("_")[0], row["dp_rank"], row["stage"] - back
                pairs[*lane, seen[lane]].append(row)
                seen[lane] += 1
    latest: dict[tuple[int, int], int] = {}
    for pair in pairs.values():
        assert len(pair) == 2
        for row in pair:
            latest[row["rank"], row["start_ns"]] = max(r["start_ns"] for r in pair)
    return latest
