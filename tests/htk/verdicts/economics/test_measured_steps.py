"""Step times of logs and of recordings."""

from pathlib import Path

import pytest

from htk.base.errors import MalformedTrace
from htk.traces.trace.opening import open_trace
from htk.verdicts.economics.measured_steps import logged_steps, mean_step, recorded_steps

_LOGS = {
    "megatron": " iteration {n}/ 100 | elapsed time per iteration (ms): {ms} | lm loss: 1.2\n",
    "litgpt": "Epoch 1 | iter {n} step {n} | loss train: 1.2 | iter time: {ms} ms (step)\n",
    "named": "step={n} loss=1.2 step_time={s}s tokens=5\n",
    "json": '{{"step": {n}, "step_time": {s}, "loss": 1.2}}\n',
}


@pytest.mark.parametrize("name", _LOGS)
def test_steps_are_read_from_logs(name: str, tmp_path: Path) -> None:
    """The first compiles for 8 s more; the rest differ by a few per cent."""
    seconds = [10.0, *(2.0 + 0.02 * (k % 3 - 1) for k in range(30))]
    lines = (_LOGS[name].format(n=k, ms=round(1000 * s, 3), s=s) for k, s in enumerate(seconds))
    log = tmp_path / "train.log"
    log.write_text("starting\n" + "".join(lines) + "{'train_runtime': 80.5, 'epoch': 1.0}\n")
    logged = logged_steps(log)
    assert logged.seconds == pytest.approx(seconds) and logged.whole == 80.5
    assert logged.first_steps == 1 and logged.warm_up == pytest.approx(8.0)
    assert logged.steady.low < 2.0 < logged.steady.high < 2.05


def test_a_log_without_steps_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text("nothing\niter time: . ms\n")
    with pytest.raises(MalformedTrace, match="no step times"):
        logged_steps(tmp_path / "x.log")


def test_steps_of_a_recording_are_those_of_its_slowest_rank() -> None:
    trace = open_trace("sample")
    steps = recorded_steps(trace)
    assert len(steps) > 2
    mean = mean_step(steps)
    assert mean.low < sum(steps) / len(steps) < mean.high
