"""Jobs of more rows than are held: the same answers, in memory that does not grow with the rows."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from htk.answers.ask import ask_trace
from htk.base.errors import MissingTable
from htk.base.schema import JOB_OPERATIONS
from htk.base.spread.workplace import Errand, Workplace, announce_errand
from htk.quantities.straggler.fidelity import measure_fidelity
from htk.quantities.straggler.job import Job
from htk.quantities.straggler.streamed import StepTables, StreamedBlocks, job_of, job_of_any_size
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.operation_job import JobPlan, simulate
from tests.thinned import thinned

QUESTIONS = (
    "straggler_slowdown",
    "slowdown_by_type",
    "slowdown_by_stage",
    "slowdown_by_worker",
    "straggler_causes",
    "straggler_whatif",
)
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


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few steps each."""
    monkeypatch.setattr("htk.quantities.straggler.streamed._ROWS_AT_ONCE", 1_500)


def _no_table(name: str) -> None:
    raise AssertionError(f"{name} is read here, by nobody else")


def streamed(rows: pa.Table) -> Job:
    """The job under a limit that a single row would pass."""
    with announce_errand(Errand(Workplace(memory_bytes=1), _no_table)):
        return job_of_any_size(rows)


@pytest.mark.parametrize(
    ("name", "by"),
    thinned([("1f1b", "rank"), ("interleaved", "one"), ("data parallel", "rank")], 3),
)
def test_each_question_is_answered_alike_some_steps_at_a_time(
    name: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, whatever the memory; and whether it was streamed is looked at, too."""
    rows = as_logged(simulate(PLANS[name]), by)
    for k, part in enumerate(rows.to_batches()):
        columns = pa.Table.from_batches([part]).drop_columns(["cycle", "index_in_type"])
        parquet.write_table(columns, tmp_path / f"rank{k}.parquet")
    monkeypatch.setattr("htk.quantities.straggler.streamed._ROWS_AT_ONCE", rows.num_rows // 4)
    kinds: list[type] = []
    made = job_of_any_size

    def noted(operations: pa.Table) -> Job:
        job = made(operations)
        kinds.append(type(job.blocks))
        assert len(list(job.blocks)) >= 3
        return job

    monkeypatch.setattr("htk.quantities.straggler.answer.job_of_any_size", noted)
    held, limited = open_trace(tmp_path), open_trace(tmp_path, OpenOptions(memory_bytes=64 << 20))
    monkeypatch.setattr("htk.quantities.straggler.streamed._BYTES_PER_ROW", 64 << 20)
    for question in QUESTIONS:
        answer, again = ask_trace(held, question), ask_trace(limited, question)
        assert again.table.equals(answer.table) and answer.table.num_rows
        assert dict(again.coverage) == dict(answer.coverage)
    assert kinds[1::2] == [StreamedBlocks] * len(QUESTIONS) and StreamedBlocks not in kinds[::2]


def test_what_does_not_fit_is_left_out_and_counted_alike(few_at_once: None) -> None:
    """A worker that logs nothing in one step, an unknown type in another."""
    table = as_logged(simulate(PLANS["1f1b"]))
    rows = table.to_pylist()
    gap = rows[0]["rank"], 13
    rows = [row for row in rows if (row["rank"], row["step"]) != gap]
    next(row for row in rows if row["step"] == 15)["type"] = "lunch"
    damaged = as_logged(pa.Table.from_pylist(rows, schema=JOB_OPERATIONS))
    whole, parted = job_of(damaged), streamed(damaged)
    assert isinstance(parted.blocks, StreamedBlocks)
    assert parted.facts == whole.facts and whole.facts["unknown_types"] == {"lunch": 1}
    assert parted.steps.tolist() == whole.steps.tolist() and 13 not in parted.steps
    assert measure_fidelity(parted).figures == measure_fidelity(whole).figures


def test_rows_out_of_order_and_ranks_that_share_a_worker_are_held(few_at_once: None) -> None:
    rows = simulate(PLANS["1f1b"])  # in no order
    assert StepTables.from_table(rows, None) is None
    assert not isinstance(streamed(rows).blocks, StreamedBlocks)
    assert streamed(rows).replayed.tolist() == job_of(as_logged(rows)).replayed.tolist()
    again = rows.to_pylist()
    twins = [row | {"rank": row["rank"] + 100, "end_ns": row["end_ns"] + 9} for row in again]
    both = as_logged(pa.Table.from_pylist(again + twins, schema=JOB_OPERATIONS))
    assert not isinstance(streamed(both).blocks, StreamedBlocks)
    assert streamed(both).facts["tensor_parallel_ranks_left_out"] == 16


def test_without_a_whole_step_it_is_said(few_at_once: None) -> None:
    rows = as_logged(simulate(PLANS["1f1b"]))
    odd = rows["rank"].to_numpy() == rows["step"].to_numpy() % 16
    for make in (streamed, job_of):
        with pytest.raises(MissingTable, match="no step is whole"):
            make(rows.filter(pa.array(~odd)))


def test_memory_does_not_grow_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the rows: the same peak, but for a few values of each step."""
    monkeypatch.setattr("htk.quantities.straggler.streamed._ROWS_AT_ONCE", 10_000)
    once = as_logged(simulate(JobPlan(noise=0.1, seed=1, steps=10)))

    def repeated(times: int) -> pa.Table:
        position = once.column_names.index("step")
        steps = [
            once.set_column(position, "step", pa.array(once["step"].to_numpy() + 10 * k))
            for k in range(times)
        ]
        return as_logged(pa.concat_tables(steps), "one")

    def peak(table: pa.Table, held: bool) -> int:
        tracemalloc.start()
        job = job_of(table) if held else streamed(table)
        assert isinstance(job.blocks, StreamedBlocks) is not held
        job.ideal_steps.sum()
        measure_fidelity(job)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = repeated(4), repeated(40)
    assert many.num_rows > 200_000
    assert peak(many, False) < 1.25 * peak(few, False)
    assert peak(many, True) > 4 * peak(few, True), "held, it grows"
