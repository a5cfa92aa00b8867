"""Loading data away, held against the simulated job that needs none."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.edits import no_data_wait
from htk.whatif.predict import predict_answer
from tests.htk.whatif.edits.slow_loader import JOB, loading_takes
from tests.htk.whatif.simulated_job import step_ns, written
from tests.htk.whatif.small_step_model import Act, small_model
from tests.thinned import thinned


@pytest.mark.parametrize("ms", thinned([0.5, 8.0]))
def test_without_waiting_for_data(tmp_path: Path, ms: float) -> None:
    """Hidden by the GPU's work, or most of the step."""
    with pytest.MonkeyPatch.context() as patch:
        loading_takes(patch, round(ms * 1e6))
        start = build_baseline(open_trace(str(written(tmp_path / "slow", **JOB))).tables)
    with pytest.MonkeyPatch.context() as patch:
        loading_takes(patch, 0)
        truth = step_ns(written(tmp_path / "fast", **JOB))
    answer = predict_answer(start, [("no_data_wait", "on")])
    assert answer.step_ns == pytest.approx(truth, rel=0.05)
    assert (answer.step_ns < 0.7 * answer.measured_ns) == (ms > 1)


def test_nothing_to_leave_out() -> None:
    with pytest.raises(UsageError, match="no loading of data is seen"):
        no_data_wait.apply(small_model([Act("a", 100)]), "on")
