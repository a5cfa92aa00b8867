"""Jobs of more rows than are held: the same answers, in memory that does not grow with the rows."""

import tracemalloc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.errors import MissingTable
from htk.schema import JOB_OPERATIONS
from htk.straggler.fidelity import fidelity
from htk.straggler.job import Job, job_of
from htk.straggler.slowdown import steps_by_replica, steps_by_stage
from htk.straggler.streamed import StepBatches, StreamedBlocks, _Times, job_of_any_size
from tests.operation_job import JobPlan, simulate

PLANS = {
    "1f1b": JobPlan(noise=0.1, seed=1, steps=12, worker={(2, 1): 1.3}),
    "interleaved": JobPlan(noise=0.1, seed=3, steps=9, chunks=2, worker={(1, 3): 1.2}),
    "data parallel": JobPlan(noise=0.1, seed=5, steps=10, stages=1, replicas=7),
}


def as_logged(rows: pa.Table, by: str = "rank") -> pa.Table:
    """A chunk for each rank, as files of ranks are opened together, or one of all; by step."""
    rows = rows.sort_by([("step", "ascending"), ("start_ns", "ascending")])
    if by == "one":
        return rows.combine_chunks()
    ranks = rows[by].to_numpy()
    return pa.concat_tables([rows.filter(pa.array(ranks == r)) for r in np.unique(ranks)])


def by_step(job: Job, values: Any) -> list[int]:
    """Values of the steps, in the order of their numbers."""
    return list(np.asarray(values)[..., np.argsort(job.steps)].ravel().tolist())


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("by", ["rank", "one"])
def test_steps_looked_at_some_at_a_time_answer_as_all_at_once(name: str, by: str) -> None:
    rows = as_logged(simulate(PLANS[name]), by)
    whole, streamed = job_of(rows), job_of_any_size(rows, 100, rows.num_rows // 4)
    assert isinstance(streamed.blocks, StreamedBlocks) and len(streamed.blocks) >= 3
    assert np.array_equal(streamed.rank, whole.rank) and streamed.facts == whole.facts
    assert streamed.usual == pytest.approx(whole.usual, rel=1e-12)
    for value in ("steps", "recorded", "replayed", "ideal_steps"):
        assert by_step(streamed, getattr(streamed, value)) == by_step(whole, getattr(whole, value))
    assert by_step(streamed, steps_by_replica(streamed)) == by_step(whole, steps_by_replica(whole))
    assert by_step(streamed, steps_by_stage(streamed)) == by_step(whole, steps_by_stage(whole))
    assert fidelity(streamed).verdict == fidelity(whole).verdict


def test_what_does_not_fit_is_left_out_and_counted_alike() -> None:
    """A worker that logs nothing in one step, an unknown type in another."""
    table = as_logged(simulate(PLANS["1f1b"]))
    rows = table.to_pylist()
    gap = rows[0]["rank"], 13
    rows = [row for row in rows if (row["rank"], row["step"]) != gap]
    next(row for row in rows if row["step"] == 15)["type"] = "lunch"
    damaged = as_logged(pa.Table.from_pylist(rows, schema=JOB_OPERATIONS))
    whole, streamed = job_of(damaged), job_of_any_size(damaged, 100, len(rows) // 5)
    assert isinstance(streamed.blocks, StreamedBlocks)
    assert streamed.facts == whole.facts and whole.facts["unknown_types"] == {"lunch": 1}
    assert sorted(streamed.steps) == sorted(whole.steps) and 13 not in streamed.steps


def test_rows_out_of_order_and_ranks_that_share_a_worker_are_held() -> None:
    rows = simulate(PLANS["1f1b"])  # in no order
    assert StepBatches.of(rows, 100) is None
    assert not isinstance(job_of_any_size(rows, 100).blocks, StreamedBlocks)
    again = rows.to_pylist()
    twins = [row | {"rank": row["rank"] + 100} for row in again]
    both = as_logged(pa.Table.from_pylist(again + twins, schema=JOB_OPERATIONS))
    assert not isinstance(job_of_any_size(both, 100).blocks, StreamedBlocks)
    assert job_of_any_size(both, 100).facts["tensor_parallel_ranks_left_out"] == 16


def test_without_a_whole_step_it_is_said() -> None:
    rows = as_logged(simulate(PLANS["1f1b"]))
    odd = rows["rank"].to_numpy() == rows["step"].to_numpy() % 16
    with pytest.raises(MissingTable, match="no step is whole"):
        job_of_any_size(rows.filter(pa.array(~odd)), 100, 500)


@pytest.mark.parametrize("count", [1, 2, 7, 1000, 1001])
def test_medians_from_a_file_are_medians(count: int) -> None:
    rng = np.random.default_rng(count)
    values = rng.integers(-(2**40), 2**61, count)
    values[: count // 3] = 5
    times = _Times()
    for part in np.array_split(values, 3):
        times.append(part)
    middle = sorted(values.tolist())[(count - 1) // 2], sorted(values.tolist())[count // 2]
    assert times.median() == (middle[0] + middle[1]) / 2
    times.close()


def test_memory_does_not_grow_with_the_steps() -> None:
    """Ten times the rows: the same peak, but for a few values of each step."""
    once = as_logged(simulate(JobPlan(noise=0.1, seed=1, steps=10)))

    def repeated(times: int) -> pa.Table:
        position = once.column_names.index("step")
        steps = [
            once.set_column(position, "step", pa.array(once["step"].to_numpy() + 10 * k))
            for k in range(times)
        ]
        return as_logged(pa.concat_tables(steps), "one")

    def peak(table: pa.Table, held: int) -> int:
        tracemalloc.start()
        job = job_of_any_size(table, held, 10_000)
        assert isinstance(job.blocks, StreamedBlocks) is not bool(held)
        job.ideal_steps.sum()
        fidelity(job)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = repeated(4), repeated(40)
    assert many.num_rows > 200_000
    assert peak(many, 0) < 1.25 * peak(few, 0)
    assert peak(many, 10**9) > 4 * peak(few, 10**9), "held, it grows"
