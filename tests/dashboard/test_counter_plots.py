"""The plot of a GPU's counters: what is drawn of which samples."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from htk.dashboard import plots
from htk.dashboard.counter_plots import _build_counter_strips
from htk.traces.trace.opening import OpenOptions, open_trace


def test_strips_hold_the_recorded_samples(shared: Path) -> None:
    trace = open_trace(shared / "traces/torch215/env", OpenOptions(cache=False))
    visit: Any = SimpleNamespace(trace=trace)
    strips = _build_counter_strips(visit)
    assert [strip.title for strip in strips] == [
        "clock, MHz",
        "power, W",
        "SMs active, %",
        "memory, %",
    ]
    (line,) = strips[1].lines
    kept = [row for row in trace.tables["counters"].to_pylist() if row["name"] == "Power (W)"]
    assert line.name == "rank 0, GPU 0"
    assert list(line.value) == [row["value"] for row in kept]
    times = [(row["time_ns"] - trace.origin_ns) / 1e6 for row in kept]
    assert list(line.time) == pytest.approx(times)


def test_quantities_lie_below_each_other() -> None:
    line = plots.SampledLine("rank 0", [0, 1], [5, 6])
    other = plots.SampledLine("rank 1", [0, 1], [5, 7])
    fig = plots.draw_strips([plots.Strip("a", [line, other]), plots.Strip("b", [line])], dark=True)
    assert [(d.name, d.yaxis, d.showlegend) for d in fig.data] == [
        ("rank 0", "y", True),
        ("rank 1", "y", True),
        ("rank 0", "y2", False),
    ]
    first, second = fig.layout.yaxis.domain, fig.layout.yaxis2.domain
    assert first[1] == 1 > first[0] > second[1] > second[0] >= 0
