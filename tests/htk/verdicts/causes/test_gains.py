"""Gains are held to the same job simulated without the fault; a small seed of `bench.causes`."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.causes import KINDS, Score, causes_of, draw_faults, judge, simulated, step_ns
from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.verdicts.causes.changes import even_compute
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from tests.htk.whatif.small_step_model import Act, small_model
from tests.in_process import htk
from tests.thinned import thinned

LOADING = "the GPU waits for data"

TWO: dict[str, Any] = {
    "model": "gpt3-126m",
    "layers": 2,
    "gpu": "a100-80gb",
    "gpus_per_node": 2,
    "micro_batch": 8,
    "seq": 1024,
    "steps": 3,
    "seed": 4,
    "stacks": False,
}


@pytest.mark.parametrize("kind", thinned(sorted(KINDS)))
def test_gains_are_right(kind: str, tmp_path: Path) -> None:
    chance, score = random.Random(7), Score()
    while not score.cases:  # some draws hold no fault that costs anything
        job = KINDS[kind](chance) | {"layers": 4, "hidden": 1024, "ffn": 2688}
        judge(score, job, draw_faults(chance, job), tmp_path)
    assert max(score.errors) <= 0.2, str(score)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_many_first_causes_and_gains_are_right(kind: str, seed: int, tmp_path: Path) -> None:
    chance, score = random.Random(100 + seed), Score()
    for _ in range(25):
        job = KINDS[kind](chance)
        judge(score, job, draw_faults(chance, job), tmp_path)
    assert score.is_met, str(score)


def test_of_two_ranks_the_slow_one_is_held_to_the_fast_one(tmp_path: Path) -> None:
    fault = "straggler:rank=1,factor=1.25"
    slow = simulated(TWO, [fault], tmp_path)
    gain = step_ns(slow) - step_ns(simulated(TWO, [], tmp_path))
    first, *_ = causes_of(slow)
    assert first["finding"] == "ranks wait for a slow GPU" and first["edit"] == "--fix-rank 1"
    assert "rank 1 2" in first["evidence"], "24 to 26 %, not 10 to 13"
    assert first["step_gain_ns_lo90"] <= gain <= first["step_gain_ns_hi90"]


PIPELINE = TWO | {"gpus_per_node": 4, "strategy": "ddp", "layers": 4, "accumulation": 4}


@pytest.mark.parametrize("fault", ["", "straggler:rank=1,factor=1.25"])
def test_stages_of_a_pipeline_are_no_slow_gpus(fault: str, tmp_path: Path) -> None:
    """The last stage runs a kernel of the others' for a product of another size. It is the one that
    computes longer, by what time_breakdown says of it and of the others."""
    job = PIPELINE | {"pipeline_parallel": 4, "micro_batch": 1}
    recording = simulated(job, [fault] if fault else [], tmp_path)
    causes = causes_of(recording)
    slow = [row["evidence"] for row in causes if row["finding"] == "ranks wait for a slow GPU"]
    assert slow == (["the same kernels take longer there: rank 1 25 %"] if fault else [])
    (uneven,) = [row for row in causes if "computes longer" in row["finding"]]
    assert "rank 3 computes" in uneven["evidence"]
    computed = ask_trace(open_trace(recording), "time_breakdown").table["compute_ns"].to_numpy()
    if not fault:
        assert uneven["gain_ns"] == pytest.approx(computed.max() - computed.mean(), rel=0.05)


def test_a_gain_that_goes_with_a_larger_one_is_told(tmp_path: Path) -> None:
    """Two stalls of one rank in every step: alone each gains its own, together both."""
    faults = ("starved_loader:ms=20", "full_allocator:rank=1,times=2,ms=8")
    simulate_job(check_config(Config(**TWO, plants=faults)), tmp_path / "both")
    rows = causes_of(tmp_path / "both")
    together = [row["together_gain_ns"] for row in rows]
    assert together == sorted(together)
    assert together[0] == rows[0]["step_gain_ns"]
    assert together[1] <= 1.01 * (rows[0]["step_gain_ns"] + rows[1]["step_gain_ns"])


def test_of_a_run_of_steps_the_first_waits_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that has room for one step alone begins where the step before it ends."""
    monkeypatch.setattr("htk.verdicts.causes.replayed.MOST_ACTIVITIES", 1)
    simulate_job(
        check_config(Config(**TWO | {"steps": 5}, plants=("starved_loader:ms=20",))), tmp_path
    )
    first, *_ = causes_of(tmp_path)
    assert first["finding"] == LOADING
    assert first["step_gain_ns"] == pytest.approx(20e6, rel=0.05)


def test_even_work_leaves_a_slow_gpu_slow() -> None:
    """Rank 1 takes twice as long for what rank 0 computes too: of its 60, 30 are its work; both
    ranks have 20 on average, which it takes 40 for."""
    model = small_model((Act("mm", 10), Act("mm", 20, rank=1), Act("head", 40, rank=1)))
    evened = even_compute().apply(model)
    rank = model.graph.activities.rank
    assert np.bincount(rank, evened.lengths()).tolist() == [20, 40]


def test_a_gain_of_the_host_holds_without_the_profiler(tmp_path: Path) -> None:
    """Launches are gained that recording made longer: what the same job gains, recorded at no
    cost, is in the interval too."""
    job = TWO | {"gpu": "h100", "micro_batch": 1, "seq": 256}
    gains = {}
    for cost_ns in (0, 1000):
        folder = tmp_path / str(cost_ns)
        simulate_job(check_config(Config(**job, profiler_ns=cost_ns)), folder)
        rows = ask_trace(open_trace(folder), "recommendations").to_pylist()
        (gains[cost_ns],) = (row for row in rows if row["finding"].startswith("launch-bound"))
    recorded, free = gains[1000], gains[0]
    assert 1.5 * free["step_gain_ns"] < recorded["step_gain_ns"]
    assert recorded["step_gain_ns_lo90"] < free["step_gain_ns"] < recorded["step_gain_ns_hi90"]


def test_the_edit_of_a_cause_can_be_typed(tmp_path: Path) -> None:
    """A small job: its GPUs wait for launches, and for data."""
    job = TWO | {"gpu": "h100", "micro_batch": 1, "seq": 256}
    simulate_job(check_config(Config(**job)), tmp_path)
    rows = ask_trace(open_trace(tmp_path), "recommendations").to_pylist()
    edits = [row["edit"] for row in rows if row["edit"]]
    assert {"--graphs on", "--no-data-wait on"} <= {*edits}
    for edit in edits:
        answer = htk("whatif", str(tmp_path), *edit.split())
        assert answer.returncode == 0, answer.stderr


def test_a_fault_of_one_step_names_the_what_if_of_that_step(tmp_path: Path) -> None:
    """A load of 20 ms in one of four steps: what-ifs of themselves take a step without it."""
    simulate_job(
        check_config(Config(**TWO | {"steps": 4, "plants": ("data_stall:ms=20",)})), tmp_path
    )
    trace = open_trace(tmp_path)
    (cause,) = (
        r for r in ask_trace(trace, "recommendations").to_pylist() if r["finding"] == LOADING
    )
    steps, step, *edit = cause["edit"].split()
    assert [steps, *edit] == ["--steps", "--no-data-wait", "on"]
    start = build_baseline(trace.sel(steps=[int(step)]).tables)
    after = predict_answer(start, [("no_data_wait", "on")])
    assert start.step_ns - after.step_ns == pytest.approx(20e6, rel=0.1)
    assert cause["step_gain_ns"] == pytest.approx(20e6 / 4, rel=0.1)
