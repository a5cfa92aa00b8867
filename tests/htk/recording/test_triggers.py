"""Recordings of a long run that start by themselves, with torch on the CPU."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.errors import UsageError
from htk.recording.triggers import Triggers

torch = pytest.importorskip("torch")


def trained(folder: Path, steps: int, raised: int = -1, **options: Any) -> Any:
    """Train; at one step the process gets a signal."""
    weight = torch.ones(8, 8, requires_grad=True)
    with htk.capture(folder, environment=False, **options) as recording:
        for step in range(steps):
            (weight @ weight).sum().backward()
            if step == raised:
                os.kill(os.getpid(), signal.SIGUSR1)
            recording.step()
    return recording


def steps_of(path: Path) -> list[int]:
    """The numbers of the profiler steps in a file."""
    column = htk.open(path).tables["annotations"]["step"].drop_null()
    return sorted(set(column.to_pylist()))


def test_chosen_steps_are_recorded_under_the_runs_own_numbers(tmp_path: Path) -> None:
    recording = trained(tmp_path, 30, at_steps=[0, 12, 20], active=2)
    assert [steps_of(path) for path in recording.paths] == [[0, 1], [12, 13], [20, 21]]
    assert recording.reasons == ["a chosen step"] * 3
    together = htk.open(tmp_path)
    steps = set(together.step_times()["step"].to_pylist())
    assert steps == {0, 1, 12, 13, 20, 21}, "files of one rank are cycles of one run"


def test_a_signal_records_the_steps_after_it(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    recording = trained(tmp_path, 12, raised=5, on_signal="USR1", active=3)
    assert [steps_of(path) for path in recording.paths] == [[7, 8, 9]], "step 6 warms up"
    assert signal.getsignal(signal.SIGUSR1) is before


def test_a_loop_that_ends_early_leaves_what_was_recorded(tmp_path: Path) -> None:
    recording = trained(tmp_path, 7, at_steps=[5], active=10)
    assert [steps_of(path) for path in recording.paths] == [[5, 6, 7]], "7: after the last step"


def test_no_more_recordings_than_wanted(tmp_path: Path) -> None:
    recording = trained(tmp_path, 40, at_steps=[3, 10, 20, 30], active=1, limit=2)
    assert [steps_of(path) for path in recording.paths] == [[3], [10]]


def test_the_reason_stands_in_the_file(tmp_path: Path) -> None:
    (path,) = trained(tmp_path, 6, at_steps=[3], active=1).paths
    import gzip

    assert json.loads(gzip.decompress(path.read_bytes()))["htk_trigger"] == "a chosen step"


def test_a_step_is_slow_beside_the_steps_before_it() -> None:
    triggers = Triggers(outlier=2.0)
    usual = [100 + k % 7 for k in range(40)]
    assert not any(triggers.reason(k + 1, 10**6 * ms) for k, ms in enumerate(usual))
    assert triggers.reason(41, 205 * 10**6) is None, "less than twice 103"
    reason = triggers.reason(42, 207 * 10**6)
    assert reason == "step 41 took 207.0 ms, usual are 103.0 ms"


def test_too_few_steps_tell_no_usual_time() -> None:
    triggers = Triggers(outlier=2.0)
    assert not any(triggers.reason(k + 1, 10 ** (k % 2)) for k in range(16))


def test_recordings_do_not_count_as_usual_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the profiler runs, steps are slower: they neither trigger nor raise the median."""
    times = iter(range(0, 10**12, 10**6))
    monkeypatch.setattr("htk.recording.triggers.time.perf_counter_ns", lambda: next(times))
    recording = trained(tmp_path, 60, at_steps=[20], outlier=1.5, active=3, limit=9)
    assert recording.reasons == ["a chosen step"]


def test_the_step_after_a_recording_triggers_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 20 to 22 are recorded: 23 takes long by that, 40 by itself."""
    moments = [0]
    for step in range(60):
        moments += [
            moments[-1] + (40 if step in (23, 40) else 1) * 10**6
        ] * 2  # it ends, next begins
    times = iter(moments)
    monkeypatch.setattr("htk.recording.triggers.time.perf_counter_ns", lambda: next(times))
    recording = trained(tmp_path, 60, at_steps=[20], outlier=2.0, active=3, limit=9)
    assert recording.reasons == ["a chosen step", "step 40 took 40.0 ms, usual are 1.0 ms"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on_signal": "NONE"}, "is not a signal of this system"),
        ({"outlier": 0.5}, "how many times the usual step"),
        ({"at_steps": [-1]}, "steps count from 0"),
    ],
)
def test_what_cannot_trigger_is_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        trained(tmp_path, 1, **options)


def test_a_signal_needs_the_main_thread(tmp_path: Path) -> None:
    errors = []

    def record() -> None:
        try:
            trained(tmp_path, 1, on_signal="SIGUSR1")
        except UsageError as error:
            errors.append(str(error))

    thread = threading.Thread(target=record)
    thread.start()
    thread.join()
    assert errors == ["on_signal needs a recording that begins in the main thread"]
