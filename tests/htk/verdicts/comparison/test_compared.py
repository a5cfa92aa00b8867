"""What changed between two simulated runs: named with its ranks, and as large as the simulator has
it; and nothing between equal runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.changed_jobs import Pair, true_parts
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.comparison.compared import compare_work
from htk.verdicts.comparison.differences import list_differences

JOB = Config(model="gpt3-126m", layers=3, gpus_per_node=4, micro_batch=2, steps=5, stacks=False)
SLOW = "straggler:rank=2,factor=1.35"
LOADER = "starved_loader:step=10,ms=8,rank=1"


def recorded(folder: Path, job: Config) -> Trace:
    simulate_job(job, folder)
    return open_trace(folder)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return recorded(tmp_path_factory.mktemp("base"), JOB)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return recorded(tmp_path_factory.mktemp("slow"), replace(JOB, run=1, plants=(SLOW, LOADER)))


def test_a_slow_gpu_and_a_slow_loader_each_have_their_part(base: Trace, slow: Trace) -> None:
    parts = true_parts(Pair(JOB, (SLOW, LOADER)))
    causes = {cause.kind: cause for cause in compare_work(base.tables, slow.tables).causes}
    assert set(causes) == {"gpu", "loader"}
    assert causes["gpu"].ranks == (2,) and causes["loader"].ranks == (1,)
    assert causes["gpu"].change == pytest.approx(0.35, abs=0.02)
    assert causes["loader"].change == pytest.approx(8e6, rel=0.05)
    assert causes["gpu"].part_ns == pytest.approx(parts[SLOW], rel=0.2)
    assert causes["loader"].part_ns == pytest.approx(parts[LOADER], rel=0.2)
    assert all(cause.is_replayed for cause in causes.values())


def test_the_verdict_names_the_rank_first(base: Trace, slow: Trace) -> None:
    answer = list_differences(base, slow)
    verdict, ranks, then = answer.coverage["in_short"]
    assert verdict.startswith("step +") and "unexplained" not in verdict
    assert "wait for rank 2, whose kernels take 35 % longer" in verdict
    assert "data loading takes 8.0" in verdict and "on rank 1" in verdict
    assert ranks.startswith("rank 2 alone: compute +3") and "other ranks: compute" in ranks
    assert "htk whatif NEW --fix-rank 2" in then
    rows = [row for row in answer if row["by"] == "cause"]
    assert {row["ranks"] for row in rows} == {"1", "2"}
    assert all(row["basis"] == "replayed" and row["change"] == "slower" for row in rows)
    total = next(row for row in answer if row["name"] == "total")
    assert sum(row["diff_ns"] for row in rows) == pytest.approx(total["diff_ns"], rel=0.1)


def test_turned_round_the_step_is_faster_by_the_same_causes(base: Trace, slow: Trace) -> None:
    causes = {cause.kind: cause for cause in compare_work(slow.tables, base.tables).causes}
    assert set(causes) == {"gpu", "loader"}
    assert causes["gpu"].change == pytest.approx(1 / 1.35 - 1, abs=0.02)
    forth = {c.kind: c.part_ns for c in compare_work(base.tables, slow.tables).causes}
    for kind, cause in causes.items():
        assert cause.part_ns == pytest.approx(-forth[kind], rel=0.3)


def test_equal_runs_have_no_cause(tmp_path: Path, base: Trace) -> None:
    again = recorded(tmp_path, replace(JOB, run=2))
    assert not compare_work(base.tables, again.tables).causes
    assert not any(row["significant"] for row in list_differences(base, again))


def test_products_alone_are_no_slow_gpu(tmp_path: Path, base: Trace) -> None:
    plant = "regressed_kernel:name=gemm,step=10,factor=1.3"
    (cause,) = compare_work(
        base.tables, recorded(tmp_path, replace(JOB, run=1, plants=(plant,))).tables
    ).causes
    assert cause.kind == "kernel" and cause.ranks == (0, 1, 2, 3)
    assert cause.change == pytest.approx(0.3, abs=0.02)
    assert len(cause.by_rank) > 1 and all("gemm" in name for name in cause.by_rank)


def test_other_ranks_than_before_are_said_first(base: Trace) -> None:
    one_rank = base.sel(ranks=[0])
    assert "another number of ranks" in list_differences(base, one_rank).coverage["in_short"][0]
    assert not compare_work(base.tables, one_rank.tables).causes


def test_recordings_without_a_collective_or_a_step_in_common_are_compared() -> None:
    samples = Path(__file__).parents[4] / "sample_traces"
    paths = ("kineto/rank0.pt.trace.json", "simulated", "memory_snapshot")
    traces = [open_trace(samples / path) for path in paths]
    for before in traces:
        for after in traces:
            assert list_differences(before, after, n=5).coverage["in_short"]
