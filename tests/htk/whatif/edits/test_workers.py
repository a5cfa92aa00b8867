"""Workers of the loader, held to jobs simulated with as much less waiting for it."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from htk.whatif.baseline import Baseline, build_baseline
from htk.whatif.edits import workers
from htk.whatif.predict import predict_answer
from tests.htk.whatif.edits.slow_loader import JOB, loading_takes
from tests.htk.whatif.simulated_job import step_ns, written
from tests.htk.whatif.small_step_model import Act, small_model
from tests.thinned import thinned

LOADING_MS = 30.0


@pytest.fixture(scope="module")
def starved(tmp_path_factory: pytest.TempPathFactory) -> Baseline:
    with pytest.MonkeyPatch.context() as patch:
        loading_takes(patch, round(LOADING_MS * 1e6))
        folder = written(tmp_path_factory.mktemp("starved"), **JOB)
        return build_baseline(open_trace(str(folder)).tables)


@pytest.mark.parametrize("ratio", thinned([0.5, 1.25, 2.0, 16.0]))
def test_a_loader_that_is_waited_for(starved: Baseline, tmp_path: Path, ratio: float) -> None:
    """Its step is one of batches as they come, until the rest of the step takes longer."""
    with pytest.MonkeyPatch.context() as patch:
        loading_takes(patch, 0)
        fed = step_ns(written(tmp_path, **JOB))
    truth = max(starved.step_ns / ratio, fed)
    answer = predict_answer(starved, [("workers", f"{ratio}x")])
    assert answer.step_ns == pytest.approx(truth, rel=0.05)
    assert (truth == fed) == (ratio > 10)


def test_nothing_that_waits() -> None:
    model = small_model([Act("a", 100)])
    assert (workers.apply(model, "2x").weight == model.weight).all()
    with pytest.raises(UsageError, match="nothing waits for data"):
        workers.apply(model, "0.5x")
