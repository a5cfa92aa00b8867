"""Communication that independent work could hide: jobs that were simulated with and without it."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace

JOB: dict[str, Any] = {
    "model": "hideable", "layers": 4, "hidden": 1024, "heads": 8, "ffn": 2816, "vocab": 8000,
    "gpu": "a100-80gb", "nodes": 1, "gpus_per_node": 2, "micro_batch": 4, "seq": 1024,
    "steps": 3, "stacks": False, "intra_gbps": 30.0, "noise": 0.0,
}  # fmt: skip


class Asked(NamedTuple):
    trace: Trace
    answer: Result

    @property
    def step_ns(self) -> float:
        windows = self.trace.tables["step_windows"].to_pandas()
        whole = windows[windows["complete"]]
        return float((whole["end_ns"] - whole["start_ns"]).median())

    def sum_of(self, column: str) -> int:
        return sum(value or 0 for value in self.answer.table[column].to_pylist())


def simulated(folder: Path, **options: Any) -> Asked:
    simulate_job(check_config(Config(**JOB | options)), folder)
    trace = open_trace(folder, OpenOptions(cache=False))
    return Asked(trace, ask_trace(trace, "hideable_comm"))


@pytest.fixture(scope="module", params=("ddp", "full_shard", "shard_grad_op"))
def jobs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Asked]:
    """Return a job with transfers on the stream of the compute, and with them on their own."""
    return [
        simulated(tmp_path_factory.mktemp("job"), strategy=request.param, synchronous=in_turn)
        for in_turn in (True, False)
    ]


def test_the_gain_is_what_a_stream_of_its_own_gains(jobs: list[Asked]) -> None:
    in_turn, beside = jobs
    gained = in_turn.step_ns - beside.step_ns
    assert gained > 0.05 * in_turn.step_ns
    together = in_turn.answer.coverage["all_together"]
    assert together["step_gain_ns"] == pytest.approx(gained, abs=0.03 * in_turn.step_ns)


def test_what_runs_beside_compute_has_little_left(jobs: list[Asked]) -> None:
    in_turn, beside = jobs
    assert beside.sum_of("hideable_ns") < 0.2 * in_turn.sum_of("hideable_ns")


def test_rows_add_up(jobs: list[Asked]) -> None:
    for job in jobs:
        breakdown = ask_trace(job.trace, "time_breakdown").table.to_pandas()
        per_step = breakdown["exposed_comm_ns"].mean() / JOB["steps"]
        assert job.sum_of("exposed_ns") == pytest.approx(per_step, rel=0.02)


def test_only_activations_are_needed_at_once(tmp_path: Path) -> None:
    job = simulated(tmp_path, gpus_per_node=4, strategy="ddp", tensor_parallel=2)
    rows = {row["carried"]: row for row in job.answer.table.to_pylist()}
    assert set(rows) == {"activations", "gradients"}
    assert rows["activations"]["hideable_ns"] is None
    assert rows["activations"]["exposed_ns"] > 0
    assert "mm" in rows["gradients"]["beside"]
