"""Who is late, in what, at what cost: by hand, on a public job, on a simulated one."""

from pathlib import Path
from typing import Any

import pytest

from bench.causes import simulated, step_ns
from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.quantities.derived.match import collective_matches
from htk.quantities.derived.window_times import rank_window_times
from htk.traces.trace.opening import open_trace
from htk.verdicts.causes.stragglers import stragglers
from tests.tables import answer_of, make
from tests.thinned import thinned


def call(rank: int, event: int, start: int, end: int) -> dict[str, Any]:
    return {"rank": rank, "event": event, "source": "kineto", "timing": "gpu", "group": "0",
            "group_size": 2, "group_ranks": "[0,1]", "seq": event, "seq_kind": "collective",
            "type": "all_reduce", "start_ns": start, "end_ns": end}  # fmt: skip


def found(*calls: dict[str, Any], work: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    collectives = make("collectives", list(calls))
    windows = make("rank_windows", [{"rank": r, "start_ns": 0, "end_ns": 100} for r in (0, 1)])
    matches = collective_matches(collectives, windows, make("ranks", []))
    rows = answer_of(
        stragglers,
        collectives=collectives,
        collective_matches=matches,
        aligned_matches=matches,
        activities=make("activities", work),
        rank_window_times=rank_window_times(make("activities", work), windows),
    )
    return {r["rank"]: r for r in rows}


def test_who_computes_longer_is_late_in_compute() -> None:
    """Both leave the first collective at 10; rank 0 comes at 30, rank 1 at 50."""
    work = [
        {"rank": 0, "kind": "compute", "start_ns": 10, "end_ns": 30},
        {"rank": 1, "kind": "compute", "start_ns": 10, "end_ns": 45},
    ]
    rows = found(
        call(0, 1, 0, 10), call(1, 1, 0, 10), call(0, 2, 30, 60), call(1, 2, 50, 60), work=work
    )
    late = rows[1]
    assert (late["cost_to_others_ns"], late["lateness_ns"], late["times_blamed"]) == (20, 20, 1)
    assert (late["late_in"], late["compute_ns"], late["host_ns"]) == ("compute", 15, 5)
    assert rows[0]["late_in"] is None and rows[0]["wait_ns"] == 20


def test_of_one_rank_nothing_can_be_said() -> None:
    with pytest.raises(MissingTable, match="all ranks of the job"):
        found(call(0, 1, 0, 10), work=[])


def test_the_rank_with_the_shortest_step_is_the_late_one(shared: Path) -> None:
    """Rank 7 of this public job has the shortest step, and the others wait for it most."""
    rows = ask_trace(open_trace(shared / "traces/dlrm_8rank"), "stragglers").to_pylist()
    assert rows[0]["rank"] == 7 and rows[0]["late_in"] == "host"
    assert rows[0]["recorded_ns"] == min(r["recorded_ns"] for r in rows)


JOB: dict[str, Any] = {
    "model": "gpt3-126m", "gpu": "a100-80gb", "nodes": 1, "gpus_per_node": 4, "micro_batch": 4,
    "strategy": "full_shard", "layers": 3, "seq": 1024, "steps": 3, "seed": 3, "stacks": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("plant", "late_in"),
    thinned(
        [
            ("straggler:rank=2,factor=1.4", "compute"),
            ("starved_loader:rank=2,ms=20", "host"),
            ("full_allocator:rank=2,times=3,ms=8", "host"),
        ]
    ),
)
def test_a_planted_straggler(plant: str, late_in: str, tmp_path: Path) -> None:
    """A step gains without its lateness what the same job takes less that was simulated without;
    and it is late by no more than its own work exceeds the others'."""
    slow = simulated(JOB, [plant], tmp_path)
    true_ns = step_ns(slow) - step_ns(simulated(JOB, [], tmp_path))
    first, second, *_ = ask_trace(open_trace(slow), "stragglers").to_pylist()
    assert (first["rank"], first["late_in"]) == (2, late_in)
    assert first["step_gain_ns"] == pytest.approx(true_ns, rel=0.1)
    assert first["step_gain_ns_lo90"] <= true_ns <= first["step_gain_ns_hi90"]
    assert (second["step_gain_ns"] or 0) < 0.02 * true_ns
    assert first["lateness_ns"] <= 1.1 * JOB["steps"] * true_ns


def test_others_that_compute_while_they_wait_make_nobody_later(tmp_path: Path) -> None:
    """Compute of the slow rank is 40 % longer than the others' 10 ms a step at most."""
    slow = simulated(JOB, ["straggler:rank=2,factor=1.4"], tmp_path)
    trace = open_trace(slow)
    first, *_ = ask_trace(trace, "stragglers").to_pylist()
    computed = {r["rank"]: r["compute_ns"] for r in ask_trace(trace, "time_breakdown").to_pylist()}
    assert first["compute_ns"] <= computed[2] - min(computed.values())
    by_step = ask_trace(trace, "straggler_steps").to_pylist()
    late = sum(row["lateness_ns"] for row in by_step if row["rank"] == 2)
    assert late == pytest.approx(first["lateness_ns"], rel=0.1)
