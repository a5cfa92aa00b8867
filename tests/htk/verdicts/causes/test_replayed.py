"""Gains of a job are the same, whatever ran when its recording began."""

from pathlib import Path

import pytest

from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.verdicts.causes.changes import whatif_change
from htk.verdicts.causes.replayed import ReplayedRecording
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from tests.htk.verdicts.causes.planted_job import job_of

FAULTS = "--plant starved_loader:ms=20 --plant straggler:rank=1,factor=1.25"
GAINS = "no_data_wait", "fix_rank", "graphs"


def replayed(flags: str, folder: Path) -> ReplayedRecording:
    simulate_job(job_of(f"--gpus_per_node 2 {FAULTS} {flags}", seed=3), folder)
    return ReplayedRecording.from_trace(open_trace(folder))


@pytest.mark.parametrize("steps", [2, 5])
def test_work_launched_before_the_recording_changes_no_gain(tmp_path: Path, steps: int) -> None:
    bare = replayed(f"--steps {steps}", tmp_path / "bare")
    carried = replayed(f"--steps {steps} --carry_in 60", tmp_path / "carried")
    assert carried.steps == bare.steps == steps - 1, "the first has lost what it waited for"
    for name in GAINS:
        change = whatif_change(name, "all" if name == "fix_rank" else "on")
        assert carried.saved_ns([change]) == pytest.approx(bare.saved_ns([change]), rel=1e-6)


def test_what_a_lone_step_gains_is_what_the_what_if_says(tmp_path: Path) -> None:
    lone = replayed("--steps 1 --carry_in 60", tmp_path)
    start = build_baseline(open_trace(tmp_path).tables)
    assert lone.step_ns == start.step_ns
    for name in GAINS:
        value = "all" if name == "fix_rank" else "on"
        after = predict_answer(start, [(name, value)])
        gain = lone.saved_ns([whatif_change(name, value)])
        assert gain == pytest.approx(start.step_ns - after.step_ns, abs=1)
