"""Whole jobs: worked by hand, and the one of a published report."""

import json
from pathlib import Path
from typing import Any

import pytest

from htk.base.core.ranges import ValueRange
from htk.faces.cli import main
from htk.physics.failures import Checkpointing, divide_job_time
from htk.verdicts.economics.job_time import TimedJob, job_time


def _exact(seconds: float) -> ValueRange:
    return ValueRange(seconds, seconds)


def _parts(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], Any]:
    assert main.run_command_line(["job-time", *words, "--format", "json"]) == 0, (
        capsys.readouterr().err
    )
    answer = json.loads(capsys.readouterr().out)
    return {row["part"]: row for row in answer["rows"]}, answer["coverage"]


def test_parts_add_up_as_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """250 samples twice, 64 at a time: 8 steps of 2 s; two evaluations, four checkpoints."""
    parts, facts = _parts(
        capsys, "--samples", "250", "--epochs", "2", "--global-batch", "64", "--step-time", "2s",
        "--startup", "30s", "--compilation", "10s", "--evaluation", "5s", "--evaluate-every", "4",
        "--checkpoint", "3s", "--checkpoint-every", "2", "--gpus", "8", "--price", "3.6",
    )  # fmt: skip
    times = {name: row["time_ns"] / 1e9 for name, row in parts.items()}
    assert facts["steps"] == 8
    assert times == {
        "start-up": 30, "compilation and first steps": 10, "steps": 16, "evaluation": 10,
        "checkpoints": 12, "the job": 78,
    }  # fmt: skip
    assert parts["the job"]["cost"] == pytest.approx(8 * 3.6 * 78 / 3600)
    assert parts["the job"]["changed_time_ns"] is None


def test_the_fsdp_reports_job_gets_2_1_times_faster_though_its_steps_get_6_8_times(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """1,024 samples on 8 GPUs in 41.4 s, then 2.10 times faster, which is 19.7 s. Steps of
    micro-batch 8 and 64 as simulated on such a cluster: 1.62 s and 1.91 s."""
    parts, facts = _parts(
        capsys, "--samples", "1024", "--global-batch", "64", "--step-time", "1.5s..1.75s",
        "--measured", "41.4s", "--change", "global-batch=512", "--change", "step-time=1.8s..2.0s",
    )  # fmt: skip
    job = parts["the job"]
    assert job["time_ns"] == 41_400_000_000 == job["time_ns_lo90"] == job["time_ns_hi90"]
    assert job["changed_time_ns_lo90"] < 19.7e9 < job["changed_time_ns_hi90"]
    assert job["changed_time_ns"] == pytest.approx(19.7e9, rel=0.03)
    low, high = facts["speedup_90"]
    assert low < 2.10 < high and facts["speedup"] == pytest.approx(2.10, rel=0.03)
    assert facts["speedup_of_steps"] > 6
    rest = parts["not accounted for"]
    assert rest["time_ns"] == rest["changed_time_ns"] == pytest.approx(15.5e9, rel=0.02)


def test_padding_is_what_the_longest_of_a_micro_batch_adds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Lengths 100 and 300, half each: of two samples the longest has 250 tokens in the mean."""
    parts, _ = _parts(
        capsys, "--steps", "10", "--step-time", "1s", "--lengths", "100:0.5,300:0.5",
        "--micro-batch", "2",
    )  # fmt: skip
    assert parts["steps: padding"]["time_ns"] == pytest.approx(10e9 * (1 - 200 / 250))
    assert parts["steps"]["time_ns"] == pytest.approx(10e9 * 200 / 250)


def test_failures_cost_restart_and_work_since_the_last_checkpoint() -> None:
    job = TimedJob(
        1000, _exact(10.0), checkpoint=_exact(20.0), checkpoint_every=100,
        failures=_exact(1e-4), restart=_exact(300.0),
    )  # fmt: skip
    rows = {row["part"]: row["time_ns"] / 1e9 for row in job_time(job).to_pylist()}
    split = divide_job_time(1e-4, 300.0, Checkpointing(1000.0, 20.0))
    assert rows["the job"] == pytest.approx(10_000 / split.useful)
    assert rows["checkpoints"] == 200 and rows["steps"] == 10_000


def test_parts_longer_than_the_job_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--steps", "100", "--step-time", "1s", "--measured", "50s"]
    assert main.run_command_line(["job-time", *words]) == 0
    assert "longer than the job did" in capsys.readouterr().out


def test_a_logged_job_is_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "train.log"
    times = [10_000, *[2000] * 9]
    log.write_text("".join(f"iter time: {ms} ms\n" for ms in times) + "'train_runtime': 40.0\n")
    parts, _ = _parts(capsys, "--steps", "10", "--log", str(log))
    assert parts["steps"]["time_ns"] == pytest.approx(20e9)
    assert parts["compilation and first steps"]["time_ns"] == pytest.approx(8e9)
    assert parts["not accounted for"]["time_ns"] == pytest.approx(12e9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steps", "3"), "once: --step-time, --trace or --log"),
        (("--step-time", "1s"), "--samples and --global-batch"),
        (("--steps", "0", "--step-time", "1s"), "whole number"),
        (("--steps", "3", "--step-time", "1s", "--change", "price=3"), "an option and its value"),
        (("--steps", "3", "--step-time", "1s", "--lengths", "3:0.2"), "sum to 1"),
        (("--steps", "3", "--step-time", "1s", "--log", "x"), "once"),
    ],
)
def test_what_makes_no_job_is_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run_command_line(["job-time", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
