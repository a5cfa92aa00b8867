"""A repeated step is a step of its own: as many times as long, with as many activities more."""

from pathlib import Path

import pytest

from bench.repeated_step import repeated
from htk.quantities.graph.build import build_graph
from htk.quantities.graph.fidelity import judge_steadiest_step
from htk.traces.trace.opening import OpenOptions, open_trace

JOB = Path(__file__).parents[2] / "sample_traces/simulated/llama2-7b"


def test_a_step_of_three_is_three_times_as_long_and_replays() -> None:
    short = open_trace(JOB, OpenOptions(cache=False))
    long = repeated(short, 3)
    steps = short.tables["step_windows"].group_by("rank").aggregate([([], "count_all")])
    each = min(steps["count_all"].to_pylist())  # of the recording, that become one
    one, many = build_graph(short.tables), judge_steadiest_step(long.tables)
    ratio = len(many[0].activities.start) / len(one.activities.start)
    assert ratio == pytest.approx(each, rel=0.05)
    assert many[0].period_ns / one.period_ns == pytest.approx(each, rel=0.1)
    assert many[2].verdict == "trusted" and not many[0].dropped


def test_repetitions_divide_into_steps() -> None:
    with pytest.raises(ValueError, match="multiple of 3"):
        repeated(open_trace(JOB, OpenOptions(cache=False)), 4)
