"""Attention that writes out its scores: its gain is held to the same job with flash attention."""

from pathlib import Path

import pytest

from bench.causes import simulated, step_ns
from htk.verdicts.causes.unfused_attention import FINDING
from tests.htk.verdicts.causes.fusible_job import JOB, cause_of


def test_scores_that_are_written_out(tmp_path: Path) -> None:
    written = simulated({**JOB, "attention": "materialised"}, [], tmp_path)
    flash = simulated(JOB, [], tmp_path)
    row = cause_of(written, FINDING)
    assert row is not None and cause_of(flash, FINDING) is None
    assert row["step_gain_ns"] == pytest.approx(step_ns(written) - step_ns(flash), rel=0.1)
    assert row["edit"] == "--attention flash"
    assert "2 x 16 x 1024 x 1024" in row["evidence"]
    assert "scaled_dot_product_attention" in row["advice"]
