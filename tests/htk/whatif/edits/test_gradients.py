"""Fewer bytes of gradients, held to jobs whose links are as much faster: they send nothing else."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import gradients
from htk.whatif.predict import predict_answer
from tests.htk.whatif.simulated_job import step_ns, written
from tests.htk.whatif.small_step_model import Act, small_model

SLOW = {"strategy": "ddp", "micro_batch": 1, "seq": 512, "inter_gbps": 10.0, "steps": 3}


def test_half_of_the_bytes_take_as_long_as_on_links_twice_as_fast(tmp_path: Path) -> None:
    start = build_baseline(open_trace(str(written(tmp_path / "slow", **SLOW))).tables)
    truth = step_ns(written(tmp_path / "fast", **(SLOW | {"inter_gbps": 20.0})))
    answer = predict_answer(start, [("gradients", "0.5x")])
    assert truth < 0.8 * answer.measured_ns
    assert answer.step_ns == pytest.approx(truth, rel=0.05)
    low, high = answer.intervals[2:]
    assert low is not None and high is not None and low <= truth <= high


def test_without_gradients_to_reduce() -> None:
    with pytest.raises(UsageError, match="no reduction of gradients"):
        gradients.apply(small_model([Act("a", 100)]), "0.5x")
