"""Allocations of a written prediction: its peak is the predicted one, or it tells none."""

from pathlib import Path

import pytest

from htk.base.columns.arrow import read_numbers
from htk.traces.trace.opening import open_trace
from htk.whatif.api import WhatIf, whatif
from tests.htk.whatif.simulated_job import written

JOB = {"nodes": 1, "layers": 2, "micro_batch": 4, "seq": 512, "steps": 3, "stacks": False}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    return whatif(str(written(tmp_path_factory.mktemp("recorded"), **JOB)))


def test_the_peak_is_the_predicted_one_and_what_is_unused_stays_so(
    recorded: WhatIf, tmp_path: Path
) -> None:
    asked = recorded.batch("2x").change("seq", "2x")
    asked.write(tmp_path / "larger")
    memory = open_trace(str(tmp_path / "larger")).tables["memory"]
    allocated, reserved = (read_numbers(memory[n]) for n in ("allocated_bytes", "reserved_bytes"))
    peak = asked.answers()[0].peak
    assert peak is not None and allocated.max() == pytest.approx(peak.allocated, rel=1e-6)
    assert (reserved >= allocated).all()
    before = recorded.trace.tables["memory"]
    was = [read_numbers(before[n]).max() for n in ("reserved_bytes", "allocated_bytes")]
    assert reserved.max() - allocated.max() == pytest.approx(was[0] - was[1], abs=2)


@pytest.mark.parametrize(("name", "value"), [("optimizer", "8bit"), ("host", "2x")])
def test_none_are_told_where_more_than_activations_moves(
    recorded: WhatIf, tmp_path: Path, name: str, value: str
) -> None:
    recorded.change(name, value).write(tmp_path / "other")
    step = recorded.trace.sel(steps=[recorded.stage.graph.step or 0])
    left = open_trace(str(tmp_path / "other")).tables["memory"]["size_bytes"].to_pylist()
    was = step.tables["memory"]["size_bytes"].to_pylist()
    assert was and left == ([] if name == "optimizer" else was)
