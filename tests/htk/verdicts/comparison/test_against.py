"""Recommendations of two runs: what became slower is named first, and nothing else."""

import json
import re
from pathlib import Path

import pytest

from bench.causes import step_ns
from htk.faces.cli.main import run_command_line
from htk.recording.simulate.job import simulate_job
from tests.htk.verdicts.causes.planted_job import job_of

NAME = "a kernel became slower than in the other recording"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    simulate_job(job_of("--run 1", 3), folder / "before")
    simulate_job(job_of("--run 2 --plant regressed_kernel:factor=3,step=10", 3), folder / "after")
    return folder


def advice(capsys: pytest.CaptureFixture[str], new: Path, base: Path) -> list[dict[str, object]]:
    assert (
        run_command_line(["recommendations", str(new), "--against", str(base), "--format", "json"])
        == 0
    )
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


def test_a_kernel_that_became_slower_is_named(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = advice(capsys, runs / "after", runs / "before")
    assert first["finding"] == NAME and "gelu_functor" in str(first["event_names"])
    assert re.search(r"20[01] % longer on all ranks", str(first["evidence"])) and first["overlaps"]
    more_ns = step_ns(runs / "after") - step_ns(runs / "before")
    assert first["step_gain_ns"] == pytest.approx(more_ns, rel=0.4)  # runs differ, too
    assert NAME not in [row["finding"] for row in rest]


def test_nothing_became_slower_the_other_way_round(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = advice(capsys, runs / "before", runs / "after")
    assert not [row for row in rows if "other recording" in str(row["finding"])]


def test_a_recording_without_kernels_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Path(__file__).parents[4] / "sample_traces/recorded/transformer"
    assert run_command_line(["recommendations", str(runs / "after"), "--against", str(sample)]) != 0
    assert "no GPU activities were recorded" in capsys.readouterr().err
