"""A pipeline whose messages are slow between two of its stages, beside quick all-reduces."""

from typing import Any

import pyarrow as pa
import pytest

from htk.analyses.comm.slow_links import slow_links
from htk.base.core.analysis import coverage_of
from htk.quantities.derived.match import collective_matches
from tests.tables import make

RANKS = 8
SIZE = 16 << 20
RATE, SLOW_RATE, PAIR_RATE = 19.8, 3.96, 198.0  # bytes a ns
ROUNDS = 12


def _calls(
    slow: tuple[int, int] | None, recorded: range, *, batched: bool = False
) -> tuple[pa.Table, pa.Table]:
    """Return messages along eight stages of one group and all-reduces of pairs, and the ranks."""
    rows: list[dict[str, Any]] = []
    clock = 0
    for number in range(ROUNDS):
        for sender in range(RANKS - 1):
            ends = (sender, sender + 1)
            transfer = round(SIZE / (SLOW_RATE if ends == slow else RATE))
            rows += [
                _row(rank, kind, number, clock, clock + 500 + transfer, everyone=True, peer=peer)
                for rank, kind, peer in ((sender, "send", ends[1]), (ends[1], "recv", sender))
            ]
            clock += transfer + 10_000
        for first in range(0, RANKS, 2):
            end = clock + 500 + round(SIZE / PAIR_RATE)
            rows += [
                _row(rank, "all_reduce", number, clock, end, everyone=False)
                for rank in (first, first + 1)
            ]
        clock += 200_000
    hosts = [{"rank": r, "host": f"h{r // 4}", "world_size": RANKS} for r in recorded]
    kept = [row for row in rows if row["rank"] in recorded]
    for row in kept if batched else []:
        if row["peer"] is not None:
            row["messages"] = f'[["{row["type"]}",{row["peer"]},{SIZE}]]'
            row["out_bytes" if row["type"] == "send" else "in_bytes"] = 0
            row["type"] = "send_recv"
    return make("collectives", kept), make("ranks", hosts)


def _row(
    rank: int, kind: str, number: int, start: int, end: int, *, everyone: bool, peer: int = -1
) -> dict[str, Any]:
    members = list(range(RANKS)) if everyone else [rank // 2 * 2, rank // 2 * 2 + 1]
    return {
        "rank": rank, "source": "kineto", "timing": "gpu", "group": "pp" if everyone else "tp",
        "group_ranks": str(members).replace(" ", ""), "group_size": len(members), "type": kind,
        "in_bytes": SIZE, "out_bytes": SIZE, "start_ns": start + 500 * (rank % 2), "end_ns": end,
        "peer": peer if everyone else None, "seq": None if everyone else number,
        "seq_kind": None if everyone else "collective",
    }  # fmt: skip


def _answer(
    slow: tuple[int, int] | None,
    recorded: range = range(RANKS),
    *,
    batched: bool = False,
    **options: Any,
) -> pa.Table:
    collectives, ranks = _calls(slow, recorded, batched=batched)
    matches = collective_matches(collectives, make("rank_windows", []), ranks)
    facts = make("collective_facts", [{} for _ in range(collectives.num_rows)])
    log = (make("comm_transports", []), make("comm_inits", []))
    return slow_links(collectives, matches, matches, ranks, facts, *log, align=False, **options)


@pytest.mark.parametrize("slow", [(4, 5), (1, 2), (6, 7)])
def test_a_slow_path_is_named_with_its_direction_and_its_own_rates(slow: tuple[int, int]) -> None:
    (first, *_) = _answer(slow).to_pylist()
    assert f"path from rank {slow[0]} to rank {slow[1]}" in first["may_be"]
    assert first["direction"] == f"from {slow[0]} to {slow[1]}"
    assert first["busbw_gbps"] == pytest.approx(SLOW_RATE, rel=0.01)
    assert first["expected_gbps"] == pytest.approx(RATE, rel=0.01)
    assert first["slowdown"] == pytest.approx(RATE / SLOW_RATE, rel=0.1)


@pytest.mark.parametrize("slow", [(4, 5), (1, 2)])
def test_a_slow_path_is_seen_in_batches_of_messages_too(slow: tuple[int, int]) -> None:
    answer = _answer(slow, batched=True)
    (first, *_) = answer.to_pylist()
    assert first["direction"] == f"from {slow[0]} to {slow[1]}"
    assert first["busbw_gbps"] == pytest.approx(SLOW_RATE, rel=0.01)
    assert first["slowdown"] == pytest.approx(RATE / SLOW_RATE, rel=0.1)
    assert "messages within nodes" in coverage_of(answer)["judged"]


def test_equal_paths_are_judged_and_healthy() -> None:
    answer = _answer(None)
    coverage = coverage_of(answer)
    assert answer.num_rows == 0
    messages = 2 * ROUNDS * (RANKS - 1)
    within, between = messages * 6 // 7, messages // 7
    assert coverage["judged"] == {
        "collectives within nodes": f"{RANKS * ROUNDS} of {RANKS * ROUNDS} calls",
        "messages within nodes": f"{within} of {within} calls",
        "messages between nodes": f"0 of {between} calls",
    }
    verdict = coverage["verdict"]
    assert verdict.startswith("no slow link")
    assert verdict.endswith(f"not judged: {between} of {between} calls of messages between nodes")


def test_the_rate_of_adapters_judges_a_path_that_has_no_like() -> None:
    """One path joins the two nodes of four GPUs; it has a quarter of a node's adapters."""
    (first, *_) = _answer((3, 4), inter_gbps=4 * 26.0).to_pylist()
    assert "path from rank 3 to rank 4" in first["may_be"]
    assert first["slowdown"] > 3
    assert _answer(None, inter_gbps=4 * 26.0).num_rows == 0


def test_a_verdict_says_which_calls_were_not_judged() -> None:
    """Of the first node alone, nothing tells of the links to the other."""
    coverage = coverage_of(_answer((3, 4), range(4)))
    verdict = coverage["verdict"]
    assert verdict.startswith("no slow link")
    left = f"{ROUNDS} of {ROUNDS} calls of messages between unknown hosts"
    assert verdict.endswith(f"not judged: {left}")
    assert sum(coverage["not_judged_because"].values()) == ROUNDS


def test_of_one_rank_nothing_is_judged() -> None:
    coverage = coverage_of(_answer((3, 4), range(3, 4)))
    assert coverage["probability_that_nothing_is_slow"] is None
    assert coverage["verdict"] == "nothing could be judged"
