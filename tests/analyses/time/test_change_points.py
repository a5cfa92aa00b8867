"""One shift of the mean as planted in simulated recordings."""

from dataclasses import replace
from pathlib import Path

import pytest

import htk
from htk.base.errors import MissingTable
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate
from htk.traces.trace.opening import open_trace
from htk.verdicts.comparison.within import change_notes

JOB = Config(model="gpt3-126m", layers=2, gpus_per_node=4, steps=10)


@pytest.mark.parametrize(("plant", "rank"), [("", None), (",rank=2", 2)])
def test_a_kernel_that_regresses_from_a_step_on(
    tmp_path: Path, plant: str, rank: int | None
) -> None:
    factor = 1.2 if rank is None else 1.6
    job = replace(JOB, plants=(f"regressed_kernel:step=16,factor={factor}{plant}",))
    simulate(job, tmp_path)
    (row,) = htk.open(tmp_path).change_points().to_pylist()
    assert "gelu" in row["name"] and row["rank"] == rank
    assert row["earliest_step"] <= 16 <= row["latest_step"] and row["step"] == 16
    assert row["change_pct"] == pytest.approx(100 * (factor - 1), rel=0.25)
    assert row["confidence_pct"] > 99
    (note,) = change_notes(open_trace(tmp_path), "new recording")
    assert "gelu" in note and "from step 16 on (htk change-points)" in note
    assert ("on rank 2" in note) == (rank == 2)


def test_few_steps_are_refused(tmp_path: Path) -> None:
    simulate(replace(JOB, steps=3), tmp_path)
    with pytest.raises(MissingTable, match="3 complete steps on every rank; a change needs 6"):
        htk.open(tmp_path).change_points()
