"""Rows of pipelined jobs cut from the profiles of simulated ones: the rows that were simulated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import htk
from htk.answers.export.operation_rows import cut_operations, write_operations
from htk.answers.export.pipeline_rows import pipeline_rows
from htk.answers.export.reductions import reductions_of_gradients
from htk.base.errors import MissingTable
from htk.base.schema.operation_types import CODES, NAMES
from tests.job_profiles import STREAMS, JobProfiles, Row
from tests.operation_job import JobPlan, simulate
from tests.thinned import thinned

PLANS = {
    "two stages": JobPlan(replicas=2, stages=2, micro_batches=4, steps=2, noise=0.05, seed=1),
    "three stages, a slow worker": JobPlan(
        replicas=2, stages=3, micro_batches=5, steps=2, noise=0.05, seed=2, worker={(1, 1): 1.5}
    ),
    "four stages, a long last stage": JobPlan(
        replicas=3, stages=4, micro_batches=6, steps=2, noise=0.05, seed=3, stage={3: 1.6}
    ),
    "interleaved": JobPlan(
        replicas=2, stages=3, chunks=2, micro_batches=6, steps=2, noise=0.05, seed=11
    ),
    "interleaved, two stages": JobPlan(
        replicas=2, stages=2, chunks=2, micro_batches=8, steps=2, noise=0.05, seed=10
    ),
    "interleaved, two stages, three chunks, a slow worker": JobPlan(
        replicas=2, stages=2, chunks=3, micro_batches=4, noise=0.1, seed=18, worker={(1, 0): 1.4}
    ),
    "interleaved, three chunks, a slow worker": JobPlan(
        replicas=2, stages=4, chunks=3, micro_batches=8, steps=1, seed=12, worker={(0, 2): 1.5}
    ),
    "fewer micro-batches than stages": JobPlan(
        replicas=2, stages=4, micro_batches=2, steps=2, noise=0.05, seed=4, lengths=0.4
    ),
}


def listed(rows: pa.Table) -> list[Row]:
    return sorted(rows.to_pylist(), key=lambda r: (r["rank"], r["step"], r["type"], r["start_ns"]))


BATCHED = {
    "batched, two stages": JobPlan(replicas=2, stages=2, micro_batches=4, steps=2, seed=14),
    "batched, a slow worker": JobPlan(
        replicas=2, stages=3, micro_batches=5, steps=2, noise=0.05, seed=15, worker={(1, 1): 1.5}
    ),
    "batched, four stages": JobPlan(replicas=3, stages=4, micro_batches=6, noise=0.05, steps=2),
    "batched with both neighbours": JobPlan(
        replicas=2, stages=3, chunks=2, micro_batches=6, steps=2, noise=0.05, seed=16
    ),
    "batched, fewer micro-batches than stages": JobPlan(
        replicas=2, stages=4, micro_batches=2, steps=2, noise=0.05, seed=17
    ),
}
for plan in BATCHED.values():
    plan.batched = True


@pytest.mark.parametrize("name", thinned((*PLANS, *BATCHED)))
def test_the_rows_that_were_simulated_come_back(name: str, tmp_path: Path) -> None:
    plan = (PLANS | BATCHED)[name]
    rows = simulate(plan)
    JobProfiles(rows, batched=plan.batched).write(tmp_path)
    assert listed(cut_operations(htk.open(tmp_path))) == listed(rows)


def all_forwards_first(plan: JobPlan, stage: int) -> list[tuple[str, int, int]]:
    batches = range(plan.micro_batches)
    return [(way, 0, batch) for way in ("forward", "backward") for batch in batches]


def test_gpipe_comes_back_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.operation_job.order_of", all_forwards_first)
    rows = simulate(PLANS["three stages, a slow worker"])
    JobProfiles(rows).write(tmp_path / "profiles")
    write_operations(htk.open(tmp_path / "profiles"), tmp_path / "rows")
    cut = htk.open(tmp_path / "rows")
    assert listed(cut_operations(htk.open(tmp_path / "profiles"))) == listed(rows)
    answer = htk.run(cut, "straggler_causes")
    assert "dp rank 1, stage 1 (rank 3)" in answer.to_pylist()[0]["evidence"]
    assert answer.coverage["replay"]["step_error_pct"] < 0.1


def test_one_pipeline_reduces_with_nobody(tmp_path: Path) -> None:
    rows = simulate(JobPlan(replicas=1, stages=3, micro_batches=4, steps=2, seed=5))
    JobProfiles(rows).write(tmp_path)
    expected = [row for row in listed(rows) if row["type"] != "grads_reduce_scatter"]
    assert listed(cut_operations(htk.open(tmp_path))) == expected


def causes_of(plan: JobPlan, folder: Path) -> list[Row]:
    JobProfiles(simulate(plan), batched=plan.batched).write(folder / "profiles")
    write_operations(htk.open(folder / "profiles"), folder / "rows")
    answer = htk.run(htk.open(folder / "rows"), "straggler_causes")
    assert answer.coverage["replay"]["step_error_pct"] < 0.1
    assert answer.coverage["pp_size"] == plan.stages
    return [row for row in answer.to_pylist() if row["likely"]]


@pytest.mark.parametrize("batched", [False, True])
def test_a_slow_worker_is_named(batched: bool, tmp_path: Path) -> None:
    plan = JobPlan(replicas=2, stages=3, micro_batches=6, steps=3, noise=0.01, seed=6)
    plan.batched = batched
    plan.worker = {(1, 2): 1.5}
    (cause,) = causes_of(plan, tmp_path)
    assert cause["cause"] == "worker" and "dp rank 1, stage 2 (rank 5)" in cause["evidence"]


def test_a_long_last_stage_is_named(tmp_path: Path) -> None:
    plan = JobPlan(replicas=2, stages=4, micro_batches=6, steps=3, noise=0.01, seed=7)
    plan.stage = {3: 1.6}
    (cause,) = causes_of(plan, tmp_path)
    assert cause["cause"] == "stage_split" and "stage 3 alone" in cause["evidence"]


def test_a_healthy_job_names_nobody(tmp_path: Path) -> None:
    plan = JobPlan(replicas=2, stages=2, micro_batches=6, steps=3, noise=0.01, seed=8)
    assert causes_of(plan, tmp_path) == []


SMALL = JobPlan(replicas=2, stages=3, micro_batches=4, steps=1, seed=9)


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ((3,), "rank 3 was not recorded, with which rank 1 exchanges activations"),
        ((1, 3, 5), "rank 1 was not recorded, with which rank 0 shares a"),
    ],
)
def test_missing_ranks_are_named(missing: tuple[int, ...], said: str, tmp_path: Path) -> None:
    JobProfiles(simulate(SMALL)).write(tmp_path, without=missing)
    with pytest.raises(
        MissingTable, match=f"{said}.*; rows of a job need the profiles of all ranks"
    ):
        cut_operations(htk.open(tmp_path))


def without_peers(row: Row, args: Row) -> Row:
    return {name: value for name, value in args.items() if not name.endswith(" Rank")}


def unnamed(row: Row, args: Row) -> Row:
    return {} if row["type"] in STREAMS else args


def without_group(row: Row, args: Row) -> Row:
    if row["type"] == "grads_reduce_scatter":
        del args["Process Group Ranks"]
    return args


def to_a_third_rank(row: Row, args: Row) -> Row:
    if row["rank"] == 2 and row["type"] == "forward_send":
        args["Dst Rank"] = 5
    return args


def across_stages(row: Row, args: Row) -> Row:
    if row["type"] == "grads_reduce_scatter":
        args |= {"Process Group Ranks": "[0, 1, 2, 3]", "Group size": 4}
    return args


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_peers, r"a (send|recv) whose peer was not recorded"),
        (unnamed, r"a kernel that sends and receives several messages, which were not recorded"),
        (without_group, r"the ranks of rank \d's reduce_scatter were not recorded"),
        (to_a_third_rank, r"messages with others than a stage before and one after"),
        (across_stages, r"reduce_scatter among 4 ranks, which are not the 2 replicas of one"),
    ],
)
def test_what_cannot_be_told_is_refused(change: Any, said: str, tmp_path: Path) -> None:
    for batched in (False, True) if change is not unnamed else (True,):
        rows = simulate(replace(SMALL, batched=batched))
        JobProfiles(rows, change, batched=batched).write(tmp_path)
        with pytest.raises(MissingTable, match=said):
            cut_operations(htk.open(tmp_path))


def test_a_slow_worker_of_an_interleaved_job_is_named(tmp_path: Path) -> None:
    plan = JobPlan(replicas=2, stages=3, chunks=2, micro_batches=6, steps=3, noise=0.01, seed=13)
    plan.worker = {(0, 1): 1.5}
    (cause,) = causes_of(plan, tmp_path)
    assert cause["cause"] == "worker" and "dp rank 0, stage 1 (rank 2)" in cause["evidence"]


STEP = (  # of the only stage: what the host launches in order, its micro-batch, start and end
    ("clip_grads", -1, 0, 1),  # another small figure of the step
    ("forward_compute", 0, 10, 20),
    ("backward_compute", 0, 30, 50),
    ("forward_compute", 1, 50, 60),
    ("backward_compute", 1, 60, 80),
    ("grads_all_reduce", -1, 75, 95),
    ("optimizer", -1, 95, 99),  # the norm
    ("clip_grads", -1, 100, 102),
    ("clip_grads", -1, 103, 108),
    ("optimizer", -1, 110, 120),
    ("clip_grads", -1, 130, 131),  # a statistic of the step, as Megatron reduces some
)


def by_hand(*step: tuple[str, int, int, int]) -> dict[str, Any]:
    types, batch, start, end = (np.array(column) for column in zip(*step, strict=True))
    zeros, order = np.zeros(len(step), np.int64), np.arange(len(step))
    codes = np.array([CODES[name] for name in types.tolist()])
    columns = {name: zeros.copy() for name in ("rank", "step", "stage", "chunk")}
    columns |= {"launched": order, "type": codes}
    return columns | {"micro_batch": batch, "start_ns": start * 1000, "end_ns": end * 1000}


def test_reductions_of_the_norm_are_a_row_and_the_optimizer_begins_after_them() -> None:
    rows = pipeline_rows(reductions_of_gradients(by_hand(*STEP)), 1, is_interleaved=False)
    kept = [
        (NAMES[code], start // 1000, end // 1000)
        for code, start, end in zip(rows["type"], rows["start_ns"], rows["end_ns"], strict=True)
        if code in (CODES["clip_grads"], CODES["optimizer"])
    ]
    assert kept == [("clip_grads", 100, 108), ("optimizer", 110, 120)]
    assert len(rows["type"]) == len(STEP) - 4


@pytest.mark.parametrize("type_", ["grads_all_reduce", "params_all_gather"])
def test_what_belongs_to_units_of_a_stage_is_refused(type_: str) -> None:
    amid = (*STEP[:4], (type_, -1, 58, 59), *STEP[4:])
    with pytest.raises(MissingTable, match="between the micro-batches of step 0"):
        pipeline_rows(by_hand(*amid), 1, is_interleaved=False)


def test_a_pass_without_its_message_is_refused() -> None:
    with pytest.raises(MissingTable, match="0 rows of forward_send in step 0 and 2 forwards"):
        pipeline_rows(by_hand(*STEP), 2, is_interleaved=False)
