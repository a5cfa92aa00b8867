"""One shift of the mean as planted in simulated recordings."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import htk
from htk.analyses.time.change_points import change_points
from htk.base.errors import MissingTable
from htk.quantities.derived.totals import kernel_totals
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from htk.verdicts.comparison.within import change_notes
from tests.tables import make
from tests.thinned import thinned

JOB = Config(model="gpt3-126m", layers=2, gpus_per_node=4, steps=10)


@pytest.mark.parametrize(("plant", "rank"), thinned([(",rank=2", 2), ("", None)]))
def test_a_kernel_that_regresses_from_a_step_on(
    tmp_path: Path, plant: str, rank: int | None
) -> None:
    factor = 1.2 if rank is None else 1.6
    job = replace(JOB, plants=(f"regressed_kernel:step=16,factor={factor}{plant}",))
    simulate_job(job, tmp_path)
    (row,) = htk.open(tmp_path).change_points().to_pylist()
    assert "gelu" in row["name"] and row["rank"] == rank
    assert row["earliest_step"] <= 16 <= row["latest_step"] and row["step"] == 16
    assert row["change_pct"] == pytest.approx(100 * (factor - 1), rel=0.25)
    assert row["confidence_pct"] > 99
    (note,) = change_notes(open_trace(tmp_path), "new recording")
    assert "gelu" in note and "from step 16 on (htk change-points)" in note
    assert ("on rank 2" in note) == (rank == 2)


def test_few_steps_are_refused(tmp_path: Path) -> None:
    simulate_job(replace(JOB, steps=3), tmp_path)
    with pytest.raises(MissingTable, match="3 complete steps on every rank; a change needs 6"):
        htk.open(tmp_path).change_points()


_STEPS = 6  # of each cycle
_SLOW_FROM = (1, 2)  # cycle and step


def _two_cycles() -> dict[str, pa.Table]:
    """Two cycles whose steps have equal numbers, three kernels in each on rank 3, of some 1000,
    2000 and 3000 ns; the second becomes 1.5 times as long."""
    kernels, links, windows = [], [], []
    for cycle in (0, 1):
        for step in range(_STEPS):
            begin = 1_000_000 * cycle + 10_000 * step
            who = {"rank": 3, "cycle": cycle}
            windows.append(
                {**who, "step": step, "start_ns": begin, "end_ns": begin + 9_000, "complete": True}
            )
            for k, name in enumerate("abc"):
                length = 1000 * (k + 1) + (7 * step + 3 * k + 5 * cycle) % 11
                if name == "b" and (cycle, step) >= _SLOW_FROM:
                    length += 1000
                span = {"start_ns": begin, "end_ns": begin + length, "name": name}
                kernels.append({**who, **span, "kind": "compute", "grid": "[1]", "block": "[1]"})
                links.append({"step": step})
    totals = kernel_totals(
        make("kernels", kernels),
        make("kernel_links", links),
        make("kernel_passes", [{}] * len(kernels)),
    )
    return {"kernel_totals": totals, "step_windows": make("step_windows", windows)}


def test_the_first_slow_step_is_named_with_its_cycle() -> None:
    rows = {row["name"]: row for row in change_points(**_two_cycles()).to_pylist()}
    assert list(rows) == ["b"]
    assert (rows["b"]["cycle"], rows["b"]["step"]) == _SLOW_FROM
    assert rows["b"]["change_pct"] == pytest.approx(50, abs=1)
