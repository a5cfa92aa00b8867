"""Chains that one kernel could be, as a cause: held to the same job with that kernel."""

from pathlib import Path

import pytest

from bench.causes import simulated, step_ns
from htk.physics.detected import Device
from htk.verdicts.causes.unfused_kernels import FINDING, _list_ways
from tests.htk.verdicts.causes.fusible_job import JOB, cause_of


def test_an_optimizer_in_parts(tmp_path: Path) -> None:
    """Adam of lists of tensors, against one kernel that does it all."""
    in_parts = simulated({**JOB, "optimizer": "adam-foreach"}, [], tmp_path)
    at_once = simulated(JOB, [], tmp_path)
    row, usual = cause_of(in_parts, FINDING), cause_of(at_once, FINDING)
    assert row is not None
    gain = row["step_gain_ns"] - (usual["step_gain_ns"] if usual else 0)
    assert gain == pytest.approx(step_ns(in_parts) - step_ns(at_once), rel=0.1)
    assert row["advice"].startswith("optimizer with fused=True or apex FusedAdam")
    assert "train.py" in row["advice"] and row["analysis"] == "fusible_chains"
    assert row["gain_ns"] > row["step_gain_ns"], "of the recording"


def test_a_job_whose_chains_are_fused_has_next_to_nothing_to_gain(tmp_path: Path) -> None:
    folder = simulated(JOB, [], tmp_path)
    row = cause_of(folder, FINDING)
    assert row is None or row["step_gain_ns"] < 0.02 * step_ns(folder)


@pytest.mark.parametrize(
    ("capability", "wave", "words"),
    [
        ((9, 0), 32, "liger SwiGLU or torch.compile"),
        ((6, 0), 32, "a kernel of your own"),  # Triton needs 7.0
        ((9, 4), 64, "liger SwiGLU or torch.compile"),  # AMD's digits are of gfx
        (None, None, "liger SwiGLU or torch.compile"),
    ],
)
def test_advice_fits_the_accelerator(
    capability: tuple[int, int] | None, wave: int | None, words: str
) -> None:
    device = Device("a GPU", capability=capability, wave=wave)
    assert _list_ways("liger SwiGLU; torch.compile", device) == words
    assert _list_ways("apex BatchNorm with ReLU", device) == "apex BatchNorm with ReLU"
