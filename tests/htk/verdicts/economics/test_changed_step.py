"""Steps after changes of the job around them."""

import pytest

from htk.base.errors import UsageError
from htk.faces.cli import main
from htk.traces.trace.opening import open_trace
from htk.verdicts.economics.changed_step import (
    change_of_micro_batch,
    change_of_padding,
    change_of_samples,
)


def test_twice_the_samples_take_nearly_twice_as_long() -> None:
    """Measured on simulated jobs: 1.92 times."""
    times = change_of_samples(2.0, None).times
    assert (times.low, times.high) == (1.8, 2.0)
    less = change_of_samples(0.5, None).times
    assert (less.low, less.high) == (0.5, 0.6)


def test_a_recording_predicts_it() -> None:
    changed = change_of_samples(2.0, open_trace("sample"))
    assert 1.3 < changed.times.low < 1.8 < changed.times.high < 2.6
    assert "whatif --" in changed.words


def test_smaller_micro_batches_repeat_what_is_fixed() -> None:
    """A fifth at most: of half the samples each takes 0.5 to 0.6, and there are two."""
    times = change_of_micro_batch(0.5, None).times
    assert (times.low, times.high) == (1.0, pytest.approx(1.2))
    predicted = change_of_micro_batch(0.5, open_trace("sample"))
    assert 0.9 < predicted.times.low < predicted.times.high < 1.6
    assert "--batch 0.5x --accumulation 2x" in predicted.words


def test_without_padding_its_time_is_saved() -> None:
    """A share of 20 % is padding: the rest takes 0.8 of the step."""
    times = change_of_padding(20.0, 0.0).times
    assert times.low == times.high == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("words", "speedup"),
    [
        (("global-batch=512",), "1.05x"),
        (("global-batch=512", "step-time=2s"), "1.00x"),
        # 128 tokens in 0.6, 512 in 0.4: 282 of 505 are not padding, 1.80x; what is fixed in each of
        # eight times the micro-batches takes 1 to 2.4 times as long, in the middle 1.55.
        (("micro-batch=1",), "1.16x"),
    ],
)
def test_a_job_says_what_it_took_of_its_step(
    words: tuple[str, ...], speedup: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["job-time", "--samples", "52k", "--global-batch", "256", "--step-time", "1s"]
    asked += ["--micro-batch", "8", "--lengths", "128:0.6,512:0.4"]
    for change in words:
        asked += ["--change", change]
    assert main.run_command_line(asked) == 0
    text = capsys.readouterr().out
    assert f"its steps alone: {speedup}" in text
    assert ("on the same GPUs" in text) == (words == ("global-batch=512",))


def test_what_a_recording_cannot_tell_is_refused() -> None:
    with pytest.raises(UsageError, match="step-time"):
        change_of_samples(1e-9, open_trace("sample"))
