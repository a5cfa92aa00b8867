"""What a baseline holds of a recording's steps, by hand; and that its file holds it too."""

import json
from pathlib import Path

import numpy as np
import pytest

from htk.base.errors import MalformedTrace
from htk.recording.simulate.config import Config
from htk.traces.compare.baseline import (
    RecordedBaseline,
    Series,
    build_cost_baseline,
    fold_values,
    from_json,
    is_baseline,
    read_baseline,
    to_json,
)
from htk.traces.compare.regression import judge_rules
from htk.traces.compare.rules import parse_rule
from htk.traces.trace.opening import open_trace
from tests.htk.quantities.graph.simulated_steps import steps_in_memory
from tests.htk.traces.compare.equal_runs import RULES, run
from tests.kineto_file import Event, kernel, launch, of_rank, op, step, write


@pytest.fixture(scope="module")
def recorded() -> RecordedBaseline:
    return run(0)


def test_means_by_step_and_rank_and_the_least_of_ranks(tmp_path: Path) -> None:
    """Three steps of two ranks, in us: gemm 10, 20, 30 and 14, 24, 34; copy on rank 1 alone, 2 in
    the first step, twice 3 in the last."""
    for rank in (0, 1):
        # What ended before the recording: the first step waits as long as the others.
        events: list[Event] = [kernel("gemm", -80, 0)]
        for k in range(3):
            ts = 100.0 * k
            kernels = [("gemm", 10.0 * (k + 1) + 4 * rank)]
            kernels += [("copy", 2.0)] if rank and k == 0 else []
            kernels += [("copy", 3.0)] * 2 if rank and k == 2 else []
            events += [step(k, ts, 100), op("aten::mm", ts, 90)]
            for name, length in kernels:
                correlation = len(events)
                events += [launch(correlation, ts + 1), kernel(name, ts + 5, length, correlation)]
                ts += length + 1
        write(tmp_path / f"r{rank}.json", *events, **of_rank(rank, 2))
    held = build_cost_baseline(
        open_trace([tmp_path / f"r{r}.json" for r in (0, 1)]).tables, ("kernel",)
    )
    assert (held.steps, held.ranks, held.numbers, list(held.kinds)) == (
        3, (0, 1), (0, 1, 2), ["kernel"],
    )  # fmt: skip
    gemm, copies = held.kinds["kernel"]["gemm"], held.kinds["kernel"]["copy"]
    assert list(held.kinds["kernel"]) == ["gemm", "copy"], "what takes most comes first"
    assert gemm.by_step.tolist() == [12_000, 22_000, 32_000]
    assert gemm.by_rank.tolist() == [20_000, 24_000]
    assert gemm.least.tolist() == [10_000, 20_000, 30_000]
    assert (gemm.often, gemm.mean) == (1.0, 22_000)
    assert copies.by_step.tolist() == [1000, 0, 3000], "of two ranks one"
    assert copies.by_rank.tolist() == [0, pytest.approx(8000 / 3)]
    assert copies.least.tolist() == [2000, 0, 6000], "of ranks that have it"
    assert copies.often == 3 / 6


def test_series_add_up_and_nothing_is_as_long() -> None:
    one = Series(0.5, np.array([1.0, 2]), np.array([3.0]), np.array([4.0, 5]))
    both = one + one
    assert (both.often, both.mean) == (1.0, 3.0)
    assert both.least.tolist() == [8, 10] and both.by_rank.tolist() == [6]
    nothing = RecordedBaseline(2, (0,), {"time": {"total": one}}).nothing()
    assert (nothing.by_step.tolist(), nothing.by_rank.tolist()) == ([0, 0], [0])


def test_long_lists_are_folded_into_means_of_neighbours() -> None:
    assert fold_values(np.arange(3.0), 3).tolist() == [0, 1, 2]
    assert fold_values(np.arange(7.0), 3).tolist() == [1.0, 3.5, 5.5]


def test_a_baseline_comes_back_small_and_whole(recorded: RecordedBaseline) -> None:
    text = to_json(recorded)
    assert len(text) < 20_000
    again = from_json(text.encode(), "perf.json")
    assert to_json(again) == text
    assert [j.verdict for j in judge_rules(recorded, again, RULES)] == ["passed"] * 3
    with pytest.raises(MalformedTrace, match="damaged"):
        from_json(text.replace("[1.0,", '["1.0",').encode(), "perf.json")
    with pytest.raises(MalformedTrace, match="make a new one"):
        from_json(text.replace("baseline/2", "baseline/9").encode(), "perf.json")


def test_many_steps_and_ranks_are_kept_as_means_of_neighbours() -> None:
    config = Config(model="gpt3-126m", layers=1, gpus_per_node=2, steps=130, noise=0.0)
    found = build_cost_baseline(steps_in_memory(config), ("time",))
    assert found.steps == 129 and len(found.kinds["time"]["total"].by_step) == 129
    assert [number for number, _, _ in found.outlying] == [0], "the first begins with a GPU at rest"
    again = from_json(to_json(found).encode(), "perf.json")
    assert again.steps == 129 and len(again.kinds["time"]["total"].by_step) == 64
    assert judge_rules(again, found, [parse_rule("step_time>20%")])[0].verdict == "passed"


def test_a_file_is_known_by_its_schema(tmp_path: Path, recorded: RecordedBaseline) -> None:
    path = tmp_path / "perf.json"
    path.write_text(to_json(recorded))
    assert is_baseline(str(path))
    assert read_baseline(str(path)).ranks == recorded.ranks
    damaged = json.loads(path.read_text())
    name = next(iter(damaged["kinds"]["time"]))
    damaged["kinds"]["time"][name][2].pop()
    with pytest.raises(MalformedTrace, match=f"perf.json is a damaged baseline.*'{name}'"):
        from_json(json.dumps(damaged).encode(), "perf.json")
    trace = write(tmp_path / "trace.json", op("aten::mm", 0, 1))
    assert not is_baseline(str(trace))
    assert not is_baseline(str(tmp_path / "missing.json")) and not is_baseline(str(tmp_path))
