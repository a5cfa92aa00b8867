"""Who is late step by step: one rank, one node, another each time; and the picture's data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from htk.answers.ask import ask_trace
from htk.answers.output.figures import draw_figure
from htk.answers.output.result import Result
from htk.base.core.analysis import coverage_of
from htk.base.core.chart import Heatmap
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace

JOB: dict[str, Any] = {
    "model": "gpt3-126m", "layers": 3, "seq": 512, "micro_batch": 4, "nodes": 2,
    "gpus_per_node": 2, "strategy": "ddp", "steps": 4, "stacks": False, "seed": 5,
}  # fmt: skip


def answer(folder: Path, *plants: str) -> Result:
    simulate_job(check_config(Config(**(JOB | {"plants": plants}))), folder)
    return ask_trace(open_trace(folder, OpenOptions(cache=False)), "straggler_steps")


def test_the_same_rank_in_every_step(tmp_path: Path) -> None:
    table = answer(tmp_path, "straggler:rank=3,factor=1.6")
    rows = table.to_pylist()
    assert {(r["rank"], r["step"]) for r in rows} == {
        (r, s) for r in range(4) for s in range(10, 14)
    }
    costliest = [(r["step"], r["rank"]) for r in rows if r["costliest"]]
    assert sorted(costliest) == [(step, 3) for step in range(10, 14)]
    assert coverage_of(table)["pattern"].startswith("rank 3 in 4 of 4 steps")


def test_another_rank_in_every_step(tmp_path: Path) -> None:
    table = answer(tmp_path, "straggler:rank=1,rotate=1,factor=1.6")
    rows = table.to_pylist()
    costliest = {r["step"]: r["rank"] for r in rows if r["costliest"]}
    assert costliest == {10: 1, 11: 2, 12: 3, 13: 0}
    assert coverage_of(table)["pattern"].startswith("another rank each time: 0..3")


def test_a_node(tmp_path: Path) -> None:
    table = answer(tmp_path, "straggler:node=1,factor=1.6")
    pattern = coverage_of(table)["pattern"]
    assert pattern.startswith("ranks of node-1") or pattern.startswith(("rank 2 in", "rank 3 in"))
    late = {r["rank"]: 0 for r in table.to_pylist()}
    for row in table.to_pylist():
        late[row["rank"]] += row["cost_to_others_ns"]
    assert late[2] + late[3] > 0.8 * sum(late.values())


def test_costs_are_those_of_stragglers(tmp_path: Path) -> None:
    simulate_job(check_config(Config(**(JOB | {"plants": ("straggler:rank=2",)}))), tmp_path)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    steps = ask_trace(trace, "straggler_steps").to_pylist()
    for row in ask_trace(trace, "stragglers").to_pylist():
        own = [s for s in steps if s["rank"] == row["rank"]]
        for name in ("cost_to_others_ns", "times_blamed"):
            assert sum(s[name] for s in own) == row[name]
        # Late now and ahead later: over all steps no more than its own time is beyond the others'.
        assert sum(s["lateness_ns"] for s in own) >= row["lateness_ns"]


def test_the_picture_has_a_cell_for_each_rank_and_step(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    table = answer(tmp_path, "straggler:rank=3,factor=1.6")
    picture = draw_figure(table.table, Heatmap("step", "rank", "lateness_ns")).data[0]
    cells = {(str(x), str(y)): z for x, y, z in zip(picture.x, picture.y, picture.z, strict=True)}
    assert len(cells) == 16
    hottest = {max((z, y) for (at, y), z in cells.items() if at == x)[1] for x in set(picture.x)}
    assert {name.split()[-1] for name in hottest} == {"3"}
    rows = {(str(r["step"]), str(r["rank"])): r["lateness_ns"] for r in table.to_pylist()}
    values = {(x.split()[-1], y.split()[-1]): z for (x, y), z in cells.items()}
    for key, lateness in rows.items():
        assert values[key] == pytest.approx(lateness / 1e6)
    assert np.isfinite(list(values.values())).all()
