"""One shift of the mean: by hand, among noise, and as planted in simulated recordings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import htk
from htk.compare.baseline import baseline
from htk.compare.changed_within import changed_within
from htk.errors import MissingTable
from htk.measures.change_points import shifts
from htk.simulate.config import Config
from htk.simulate.job import simulate
from htk.trace.opening import open_trace

JOB = Config(model="gpt3-126m", layers=2, gpus_per_node=4, steps=10)


def test_a_shift_by_hand() -> None:
    """10 ± 1 four times, then 20 ± 1 four times: the split leaves 8 of 208 squares, t = 5·√… ."""
    flat = [9.0, 11, 11, 9]
    shift = shifts(np.array([[*flat, *(x + 10 for x in flat)], [*flat, *flat]]))
    assert shift.split[0] == 4 and (shift.low[0], shift.high[0]) == (4, 4)
    assert (shift.before[0], shift.after[0]) == (10, 20)
    assert shift.p[0] < 1e-3 < 0.5 < shift.p[1]


def test_series_without_a_shift_are_left_alone() -> None:
    chance = np.random.default_rng(5)
    steady = chance.normal(100, 1, (4000, 12))
    assert (shifts(steady).p < 0.01).mean() < 0.01
    drifting = np.cumsum(chance.normal(0, 0.3, (500, 40)), axis=1) + chance.normal(
        100, 3, (500, 40)
    )
    assert (shifts(drifting).p < 1e-4).mean() < 0.3, "neighbours that resemble count for less"


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
    side = baseline(open_trace(tmp_path).tables, ("time", "kernel"))
    (note,) = changed_within(side, "new recording")
    assert "gelu" in note and "from step 16 on" in note


def test_few_steps_are_refused(tmp_path: Path) -> None:
    simulate(replace(JOB, steps=3), tmp_path)
    with pytest.raises(MissingTable, match="3 complete steps on every rank; a change needs 6"):
        htk.open(tmp_path).change_points()
