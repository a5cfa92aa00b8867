"""Simulated jobs with planted causes: the cause is named, and what curing it wins is right."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import htk
from htk.analyses import find_analysis
from htk.base.core.analysis import coverage_of
from htk.base.schema import JOB_LAYOUTS, JOB_OPERATIONS
from htk.quantities.straggler.causes import Causes
from htk.quantities.straggler.changes import LikePeers, lengths_even, stages_even, steps_changed
from htk.quantities.straggler.streamed import job_of
from tests.operation_job import JobPlan, simulate

SCHEDULES = {
    "1f1b": JobPlan(noise=0.01, steps=8, micro_batches=6),
    "interleaved": JobPlan(noise=0.01, steps=8, stages=2, chunks=2, micro_batches=6),
    "data parallel": JobPlan(noise=0.01, steps=10, stages=1, replicas=6),
}
PLANTS: dict[str, dict[str, Any]] = {
    "worker": {"worker": {(2, 0): 1.6}},
    "stage_split": {"stage": {-1: 1.6}},
    "sequence_lengths": {"lengths": 0.6},
    "communication": {"reduce_slow": {step: 30.0 for step in (12, 15)}},
    "late_host": {"late_ms": 300.0},
}
CASES = [
    (schedule, cause, seed)
    for schedule, plan in SCHEDULES.items()
    for cause in PLANTS
    for seed in (1, 2, 3)
    if not (cause == "stage_split" and plan.stages == 1)
]


def planted(schedule: str, cause: str, seed: int) -> JobPlan:
    plan, plant = SCHEDULES[schedule], dict(PLANTS[cause])
    if "stage" in plant:
        plant["stage"] = {plan.stages - 1: 1.6}
    return replace(plan, seed=seed, **plant)


def answer(name: str, rows: Any, **options: Any) -> list[dict[str, Any]]:
    table = find_analysis(name)(rows, JOB_LAYOUTS.empty_table(), **options)
    listed: list[dict[str, Any]] = table.to_pylist()
    return listed


@pytest.mark.parametrize(("schedule", "cause", "seed"), CASES)
def test_the_planted_cause_is_named(schedule: str, cause: str, seed: int) -> None:
    rows = simulate(planted(schedule, cause, seed))
    found = answer("straggler_causes", rows)
    assert [row["cause"] for row in found if row["likely"]] == [cause]
    assert found[0]["cause"] == cause, "the likely one comes first"
    assert all(row["evidence"] and row["advice"] for row in found)
    if cause == "worker":
        assert "dp rank 2, stage 0" in found[0]["evidence"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_job_without_stragglers_has_no_likely_cause(schedule: str) -> None:
    found = answer("straggler_causes", simulate(replace(SCHEDULES[schedule], seed=5)))
    assert not any(row["likely"] for row in found)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_cured_worker_is_the_job_in_which_it_never_was_slow(schedule: str) -> None:
    sick = job_of(simulate(planted(schedule, "worker", 4)))
    well = job_of(simulate(replace(planted(schedule, "worker", 4), worker={})))
    (cured,) = steps_changed(sick, [LikePeers(2, 0)])
    assert cured.mean() == pytest.approx(well.replayed.mean(), rel=0.01)
    assert Causes(sick).slowest == [(2, 0)]


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved"])
def test_even_stages_are_the_job_whose_stages_share_the_same_work(schedule: str) -> None:
    plan = planted(schedule, "stage_split", 4)
    uneven = job_of(simulate(plan))
    mean = 1 + 0.6 / plan.stages
    even = job_of(simulate(replace(plan, stage={s: mean for s in range(plan.stages)})))
    (steps,) = steps_changed(uneven, [stages_even])
    assert steps.mean() == pytest.approx(even.replayed.mean(), rel=0.01)


def test_balanced_lengths_keep_slow_workers_and_stages() -> None:
    plan = replace(SCHEDULES["1f1b"], seed=6, worker={(1, 2): 1.5}, stage={3: 1.3})
    job = job_of(simulate(plan))
    (steps,) = steps_changed(job, [lengths_even])
    assert steps.mean() == pytest.approx(job.replayed.mean(), rel=0.01)


def test_whatif_saves_what_the_causes_say() -> None:
    rows = simulate(planted("1f1b", "worker", 2))
    first, *changes = answer("straggler_whatif", rows, gpus=128)
    assert first["change"] == "as recorded" and first["saved_ms"] == 0
    by_change = {row["change"]: row for row in changes}
    cured = by_change["dp rank 2, stage 0 like its peers"]
    assert cured["saved_ms"] == max(row["saved_ms"] for row in changes)
    assert cured["step_ms_mean"] + cured["saved_ms"] == pytest.approx(first["step_ms_mean"])
    hours = cured["saved_ms"] * 8 * 128 / 3.6e6
    assert cured["saved_gpu_hours"] == pytest.approx(hours)
    usual = by_change["every operation at its usual duration"]
    assert usual["slowdown"] == pytest.approx(1.0)
    healthy = answer("straggler_whatif", rows, dp_rank=0, stage=3, operation="optimizer")
    assert [row["change"] for row in healthy][1] == "dp rank 0, stage 3 like its peers"
    assert healthy[1]["saved_ms"] == pytest.approx(0, abs=0.02 * first["step_ms_mean"])
    assert [r["change"] for r in healthy if "median" in r["change"]] == ["optimizer at its median"]


def test_options_that_name_nothing_are_refused() -> None:
    rows = simulate(SCHEDULES["data parallel"])
    for options in ({"dp_rank": 99}, {"stage": 7}, {"operation": "forward_pipeline"}):
        with pytest.raises(htk.HtkError, match="was not recorded; there are"):
            answer("straggler_whatif", rows, **options)


def test_who_was_slowest_how_often_and_how_long_on_end() -> None:
    """Worker (1, 2) is slow in all steps, but (3, 0) slower still in three on end of them."""
    plan = replace(SCHEDULES["1f1b"], worker={(1, 2): 1.5}, seed=8)
    calm, storm = simulate(plan), simulate(replace(plan, worker={(1, 2): 1.5, (3, 0): 2.5}))
    steps = range(12, 15)
    rows = pa.concat_tables(
        [
            calm.filter([s not in steps for s in calm["step"].to_pylist()]),
            storm.filter([s in steps for s in storm["step"].to_pylist()]),
        ]
    )
    found = {(r["dp_rank"], r["stage"]): r for r in answer("slowdown_by_worker", rows)}
    assert (found[1, 2]["slowest_steps"], found[1, 2]["longest_run"]) == (5, 3)
    assert (found[3, 0]["slowest_steps"], found[3, 0]["longest_run"]) == (3, 3)
    assert sum(row["slowest_steps"] for row in found.values()) == 8


def test_a_job_whose_rows_contradict_its_schedule_is_refused() -> None:
    """One stage's clock is 200 ms ahead: it computes before its input is sent."""
    rows = simulate(SCHEDULES["1f1b"]).to_pylist()
    for row in rows:
        if row["stage"] == 2:
            row["start_ns"] -= 200_000_000
            row["end_ns"] -= 200_000_000
    table = pa.Table.from_pylist(rows, schema=JOB_OPERATIONS)
    for name in ("straggler_slowdown", "slowdown_by_type"):
        with pytest.raises(htk.HtkError, match="refused: steps replay"):
            answer(name, table)


def test_a_late_host_is_named_beside_what_was_not_logged() -> None:
    rows = simulate(planted("1f1b", "late_host", 1))
    table = find_analysis("straggler_slowdown")(rows, JOB_LAYOUTS.empty_table())
    assert "launch delay: the host was late, or" in coverage_of(table)["replay"]["verdict"]
