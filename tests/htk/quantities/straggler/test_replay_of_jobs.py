"""Replays of jobs against a simulator that knows nothing of them, and against brute force."""

import numpy as np
import pyarrow as pa
import pytest

from htk.analyses import find_analysis
from htk.base.core.analysis import coverage_of
from htk.base.errors import AnalysisError, MissingTable
from htk.base.schema import JOB_LAYOUTS, JOB_OPERATIONS
from htk.quantities.straggler.job import Job
from htk.quantities.straggler.slowdown import Chosen, Keeping, steps_by_replica, steps_by_stage
from htk.quantities.straggler.streamed import job_of
from tests.operation_job import JobPlan, simulate, step_times

SCHEDULES = {
    "1f1b": JobPlan(noise=0.1, seed=1, worker={(2, 1): 1.3}),
    "1f1b, fewer micro-batches than stages": JobPlan(noise=0.1, seed=2, micro_batches=2),
    "interleaved": JobPlan(noise=0.1, seed=3, chunks=2, worker={(1, 3): 1.2}),
    "interleaved, three chunks": JobPlan(noise=0.1, seed=4, stages=2, chunks=3, micro_batches=4),
    "data parallel": JobPlan(noise=0.1, seed=5, stages=1, replicas=7, worker={(5, 0): 1.4}),
    "one replica": JobPlan(noise=0.1, seed=6, replicas=1),
    "batched": JobPlan(noise=0.1, seed=7, send=4.0, batched=True, worker={(2, 1): 1.3}),
    "batched with both neighbours": JobPlan(
        noise=0.1, seed=8, send=4.0, replicas=2, stages=3, chunks=2, micro_batches=6, batched=True
    ),
}


def steps_keeping(job: Job, kept: Chosen) -> np.ndarray:
    """Return step times with these operations as recorded and all others as usual, in ns."""
    return job.by_step(Keeping((kept,), job.usual))[0]


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_untouched_replay_is_the_simulated_job(name: str) -> None:
    rows = simulate(SCHEDULES[name])
    job = job_of(rows)
    assert job.steps.tolist() == list(range(10, 16))
    assert job.recorded.tolist() == step_times(rows).tolist()
    assert job.replayed.tolist() == job.recorded.tolist()


@pytest.mark.parametrize("name", SCHEDULES)
def test_curing_what_was_planted_gives_the_job_without_it(name: str) -> None:
    """Durations of a job without noise: usual durations are those without the plant."""
    plan = SCHEDULES[name]
    sick, well = (
        job_of(simulate(JobPlan(**{**plan.__dict__, "noise": 0.0, "worker": worker})))
        for worker in ({(0, 0): 1.5}, {})
    )
    usual = well.usual
    sick.__dict__["usual"] = usual
    assert (sick.replayed > well.replayed).all()
    assert sick.ideal_steps.tolist() == well.replayed.tolist()

    def planted(block: object) -> np.ndarray:
        chosen = np.zeros((len(block.program.stage), 1, len(sick.replicas)), bool)  # type: ignore[attr-defined]
        chosen[block.program.stage == 0, :, 0] = True  # type: ignore[attr-defined]
        return chosen

    cured = steps_keeping(sick, lambda block: ~planted(block))
    assert cured.tolist() == well.replayed.tolist()
    assert steps_keeping(sick, planted).tolist() == sick.replayed.tolist()


@pytest.fixture(scope="module", params=["1f1b", "interleaved", "data parallel"])
def job(request: pytest.FixtureRequest) -> Job:
    return job_of(simulate(SCHEDULES[request.param]))


def test_a_replica_beside_one_usual_replica_stands_for_all(job: Job) -> None:
    """Brute force: all replicas replayed, one of them as recorded."""
    for stage in (None, *range(len(job.stages))):
        fast = steps_by_replica(job, stage)
        for replica in range(len(job.replicas)):
            kept = np.arange(len(job.replicas)) == replica
            slow = steps_keeping(
                job,
                lambda b, kept=kept, stage=stage: (
                    kept[None, None, :]
                    & ((stage is None) | (b.program.stage == stage))[:, None, None]
                    if stage is not None
                    else kept[None, None, :]
                ),
            )
            assert fast[replica].tolist() == slow.tolist(), (stage, replica)


def test_stages_are_kept_one_at_a_time(job: Job) -> None:
    whole = steps_by_stage(job)
    assert whole.shape == (len(job.stages), 6)
    if len(job.stages) == 1:
        assert whole[0].tolist() == job.replayed.tolist()
    else:
        assert (whole < job.replayed).any()


def test_launch_delays_are_told_from_blocking() -> None:
    """A late host delays the step, and no operation is slower for it."""
    late = job_of(simulate(JobPlan(late_ms=30.0, seed=9)))
    prompt = job_of(simulate(JobPlan()))
    assert late.replayed.tolist() == prompt.replayed.tolist()
    assert (late.recorded - late.replayed > 10e6).all()
    block = next(iter(late.blocks))
    ends = block.replay.ends(block.own, block.delay)
    assert ends.tolist() == block.end.tolist(), "with its delays a job replays as recorded"


def test_a_reduction_that_starts_within_the_backward_waits_for_that_part_of_it() -> None:
    rows = simulate(JobPlan(replicas=2, stages=1, micro_batches=1, steps=2)).to_pylist()
    for row in rows:
        if row["type"] == "grads_reduce_scatter":
            row["start_ns"] -= 20_000_000  # half of the backward
            row["end_ns"] -= 12_000_000
        elif row["type"] in ("clip_grads", "optimizer"):
            row["start_ns"] -= 12_000_000
            row["end_ns"] -= 12_000_000
    job = job_of(pa.Table.from_pylist(rows, schema=JOB_OPERATIONS))
    block = next(iter(job.blocks))
    assert job.replayed.tolist() == job.recorded.tolist()
    assert sorted(set(block.program.part.tolist())) == [0.5, 1.0]
    own = block.own.copy()
    own[block.program.type == 1] *= 2  # backwards of 80 ms: the reduction starts after 40
    grown = block.replay.step_times(own) - block.replayed
    assert grown.tolist() == [37_000_000] * 2  # 3 ms stay hidden behind the longer backward


def test_steps_that_are_not_whole_are_left_out_and_counted() -> None:
    rows = simulate(JobPlan(steps=3))
    keep = [
        not (row["step"] == 11 and row["dp_rank"] == 2 and row["type"] == "optimizer")
        for row in rows.to_pylist()
    ]
    job = job_of(rows.filter(keep))
    assert job.steps.tolist() == [10, 12]
    assert job.facts["steps_left_out"] == 1
    with pytest.raises(MissingTable, match="no step is whole"):
        job_of(rows.slice(0, 40))


def test_unknown_types_are_counted_and_take_no_part() -> None:
    rows = simulate(JobPlan(steps=2)).to_pylist()
    extra = [{**rows[0], "type": "checkpoint"}, {**rows[1], "type": "checkpoint"}]
    job = job_of(pa.Table.from_pylist(rows + extra, schema=JOB_OPERATIONS))
    assert job.facts["unknown_types"] == {"checkpoint": 2}
    assert job.facts["operations_left_out"] == 2
    assert job.replayed.tolist() == job.recorded.tolist()


def test_ranks_that_share_each_layer_are_one_worker() -> None:
    rows = simulate(JobPlan(steps=2)).to_pylist()
    both = [
        {**r, "rank": 2 * r["rank"] + t, "end_ns": r["end_ns"] + t} for r in rows for t in (0, 1)
    ]
    job = job_of(pa.Table.from_pylist(both, schema=JOB_OPERATIONS))
    assert job.facts["tensor_parallel_ranks_left_out"] == 16
    assert job.recorded.tolist() == step_times(simulate(JobPlan(steps=2))).tolist()


def test_sends_that_no_receive_meets_are_refused() -> None:
    rows = simulate(JobPlan(steps=1))
    keep = [
        not (
            row["type"] == "forward_recv"
            and row["stage"] == 2
            and row["chunk"] == 0
            and row["start_ns"] > 5_050_000_000
        )
        for row in rows.to_pylist()
    ]
    with pytest.raises(AnalysisError, match="stage"):
        job_of(rows.filter(keep))


def test_a_stage_without_rows_is_missed() -> None:
    rows = simulate(JobPlan(steps=1))
    with pytest.raises(MissingTable, match="stage 1 are missing"):
        job_of(rows.filter([stage != 1 for stage in rows["stage"].to_pylist()]))


def test_damage_costs_neither_memory_nor_time() -> None:
    """Each row claims a rank and a stage of its own, or a model chunk beyond reason."""
    row = simulate(JobPlan(steps=1, replicas=1, stages=1)).to_pylist()[0]
    far = [{**row, "dp_rank": k, "stage": k} for k in range(2000)]
    with pytest.raises(MissingTable, match="2000 data-parallel ranks by 2000 stages"):
        job_of(pa.Table.from_pylist(far, schema=JOB_OPERATIONS))
    rows = simulate(JobPlan(steps=1, replicas=1, stages=1)).to_pylist()
    rows[0]["chunk"] = (1 << 31) - 1
    with pytest.raises(AnalysisError, match="model chunks, expected at most"):
        job_of(pa.Table.from_pylist(rows, schema=JOB_OPERATIONS))


def test_replicas_that_the_layout_has_and_no_row_names_are_counted() -> None:
    layout = {name: 1 for name in JOB_LAYOUTS.names if name not in ("job", "environment")} | {
        "dp_size": 9
    }
    layouts = pa.Table.from_pylist([layout], schema=JOB_LAYOUTS)
    answer = find_analysis("straggler_slowdown")(simulate(JobPlan(steps=2)), layouts)
    assert coverage_of(answer)["dp_ranks_missing"] == 5


def test_files_of_two_jobs_are_refused() -> None:
    """Their ranks would pass for those of one larger job."""
    same = {name: 1 for name in JOB_LAYOUTS.names if name not in ("job", "environment")} | {
        "dp_size": 4
    }
    alike, two = ([same, same], [same, same | {"pp_size": 2}])
    rows = simulate(JobPlan(steps=2))
    ask = find_analysis("straggler_slowdown")
    assert ask(rows, pa.Table.from_pylist(alike, schema=JOB_LAYOUTS)).num_rows
    with pytest.raises(AnalysisError, match=r"2 jobs \(dp 4 × pp 1 × tp 1 and dp 4 × pp 2"):
        ask(rows, pa.Table.from_pylist(two, schema=JOB_LAYOUTS))


@pytest.mark.parametrize("ranked", [True, False])
def test_rows_that_were_read_twice_are_refused_as_that(ranked: bool) -> None:
    """A copy of the file, or its timeline, which names no ranks and rounds its times."""
    rows = simulate(JobPlan(steps=2)).to_pylist()
    again = [
        row | {"start_ns": row["start_ns"] + k % 3, "rank": row["rank"] if ranked else None}
        for k, row in enumerate(rows)
    ]
    both = pa.Table.from_pylist(rows + again, schema=JOB_OPERATIONS)
    with pytest.raises(AnalysisError, match=r"read twice \(128 of the 256 forwards of step 10"):
        job_of(both)
    few = [row for row in again if row["step"] == 11][:20]
    job = job_of(pa.Table.from_pylist(rows + few, schema=JOB_OPERATIONS))
    assert job.steps.tolist() == [10], "a step with some rows twice is left out, as any other"
