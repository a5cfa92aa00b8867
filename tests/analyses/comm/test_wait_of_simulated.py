"""Waiting and moving of a simulated job, whose schedule knows both."""

import json
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace


@pytest.mark.parametrize("strategy", ["ddp", "full_shard", "hybrid_shard"])
def test_exposed_waiting_and_moving_are_those_of_the_schedule(
    strategy: str, tmp_path: Path
) -> None:
    job = Config(
        model="gpt3-126m",
        layers=3,
        nodes=2,
        gpus_per_node=2,
        strategy=strategy,
        micro_batch=2,
        seq=256,
        steps=2,
        seed=5,
        plants=("straggler", "data_stall"),
    )
    simulate_job(check_config(job), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    told = {
        rank["rank"]: tuple(
            sum(step[part] for step in rank["steps"])
            for part in ("exposed_wait_ns", "exposed_transfer_ns")
        )
        for rank in truth["ranks"]
    }
    found = {
        row["rank"]: (row["exposed_wait_ns"], row["exposed_transfer_ns"])
        for row in ask_trace(open_trace(tmp_path), "comm_wait").to_pylist()
    }
    assert found.keys() == told.keys()
    for rank, both in told.items():  # a division leaves a nanosecond here or there
        assert found[rank] == pytest.approx(both, abs=1000, rel=0)
    assert any(wait > 0 for wait, _ in told.values())
