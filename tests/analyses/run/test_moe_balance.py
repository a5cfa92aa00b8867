"""Tokens of experts, by what each rank receives."""

import pytest

from htk.analyses.run.moe_balance import moe_balance
from htk.base.errors import MissingTable
from tests.tables import answer_of, make


def exchange(rank: int, event: int, tokens: int | None, **more: object) -> dict:
    """Tokens of four elements in half precision."""
    told = {} if tokens is None else {"out_shapes": f"[[{tokens},4]]", "out_bytes": tokens * 8}
    times = {"start_ns": event * 100, "end_ns": event * 100 + 50, "timing": "gpu"}
    common = {"source": "kineto", "type": "all_to_all", "group": "ep", "group_ranks": "[0,1]"}
    return {**common, **times, **told, "rank": rank, "event": event, **more}


def answer(rows: list[dict]) -> list[dict]:
    matches = [{"wait_ns": None} for _ in rows]
    kernels = [{k: r.get(k, 0) for k in ("rank", "cycle", "event")} for r in rows]
    return answer_of(
        moe_balance,
        collectives=make("collectives", rows),
        aligned_matches=make("aligned_matches", matches),
        kernels=make("kernels", kernels),
        kernel_links=make("kernel_links", [{"step": r["event"] // 2} for r in rows]),
    )


def test_two_ranks_and_two_layers_over_two_steps() -> None:
    first, second = (30, 10), (20, 20)
    rows = [
        exchange(rank, step * 2 + layer, tokens[rank])
        for rank in (0, 1)
        for step in (0, 1)
        for layer, tokens in enumerate((first, second))
    ]
    found = answer(rows)
    assert [(r["layer"], r["rank"], r["count"], r["received_tokens"]) for r in found] == [
        (0, 0, 2, 60),
        (0, 1, 2, 20),
        (1, 0, 2, 40),
        (1, 1, 2, 40),
    ]
    assert [(r["share_pct"], r["over_mean"], r["over_mean_max"]) for r in found] == [
        (75, 1.5, 1.5),
        (25, 0.5, 1.5),
        (50, 1, 1),
        (50, 1, 1),
    ]
    assert found[0]["received_bytes"] == 480
    assert found[0]["wait_ns"] is None  # not matched
    assert found[0]["total_ns"] == 100


def test_layers_are_numbered_within_the_steps_of_a_cycle() -> None:
    """Both cycles have steps 0 and 1, of two layers each."""
    rows = [
        exchange(rank, step * 2 + layer, (30, 20)[layer], cycle=cycle)
        for rank in (0, 1)
        for cycle in (0, 1)
        for step in (0, 1)
        for layer in (0, 1)
    ]
    answered = [(r["layer"], r["rank"], r["count"], r["received_tokens"]) for r in answer(rows)]
    assert answered == [(0, 0, 4, 120), (0, 1, 4, 120), (1, 0, 4, 80), (1, 1, 4, 80)]


def test_what_is_not_recorded_is_no_zero() -> None:
    (row,) = answer([exchange(0, 0, None)])
    assert (row["received_tokens"], row["received_bytes"], row["over_mean_max"]) == (None,) * 3
    (row,) = answer([exchange(0, 0, 5)])
    assert (row["received_tokens"], row["over_mean_max"]) == (5, None)  # alone: no balance


def test_no_experts() -> None:
    with pytest.raises(MissingTable, match="all-to-all"):
        answer([])
