"""Profiling a few steps of a long run: at given steps, on a signal, or after a slow step."""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from htk.base.errors import UsageError
from htk.recording.recording import Recording

_WARMUP = 1  # steps: the profiler's own start is not in the trace
_USUAL_STEPS = 64  # the last steps whose median is the usual time …
_LEAST_STEPS = 16  # … and how many are needed to judge


@dataclass
class Triggers:
    """What starts a recording. Steps count from 0, as `recording.step()` ends them."""

    at_steps: frozenset[int] = frozenset()
    outlier: float | None = None
    signalled: bool = False
    _usual: deque[int] = field(default_factory=lambda: deque(maxlen=_USUAL_STEPS))

    def reason(self, next_step: int, elapsed_ns: int | None) -> str | None:
        """Say why a recording starts with the next step; None: it does not.

        `elapsed_ns` is how long the step before took; None: that tells nothing.
        """
        slow = None if elapsed_ns is None else self._explain_slow(next_step - 1, elapsed_ns)
        if self.signalled:
            self.signalled = False
            return "a signal"
        if next_step + _WARMUP in self.at_steps or (not next_step and next_step in self.at_steps):
            return "a chosen step"
        return slow

    def _explain_slow(self, step: int, elapsed_ns: int) -> str | None:
        if self.outlier is None or step < 0:
            return None
        usual = median(self._usual) if len(self._usual) >= _LEAST_STEPS else None
        self._usual.append(elapsed_ns)
        if usual is None or elapsed_ns <= self.outlier * usual:
            return None
        return f"step {step} took {elapsed_ns / 1e6:.1f} ms, usual are {usual / 1e6:.1f} ms"


@dataclass
class TriggeredRecording(Recording):
    """A recording that profiles only when it is triggered, `limit` times at most."""

    triggers: Triggers = field(default_factory=Triggers)
    active: int = 3
    limit: int = 3
    reasons: list[str] = field(default_factory=list)  # of each file in `paths`
    _profiled: Callable[..., Any] = field(default=lambda plan: None, repr=False)
    _last: int = 0  # step of the recording under way
    _began_ns: int = 0

    def begin(self) -> None:
        """Begin the first step."""
        self._start_if(self.triggers.reason(0, 0))
        self._began_ns = time.perf_counter_ns()

    def step(self) -> None:
        elapsed_ns: int | None = time.perf_counter_ns() - self._began_ns
        if self.reasons and self.steps == self._last + 1:
            elapsed_ns = None  # what the profiler leaves to be done falls into the step after it
        super().step()
        if self._profiler is None:
            self._start_if(self.triggers.reason(self.steps, elapsed_ns))
        elif self.steps > self._last:
            self.end()
        self._began_ns = time.perf_counter_ns()

    def end(self) -> None:
        """Stop the profiler, and write the file if that has not been done."""
        if self._profiler is not None:
            profiler = self._profiler
            self._profiler = None
            profiler.stop()

    def _start_if(self, reason: str | None) -> None:
        if reason is None or len(self.reasons) >= self.limit or not self.recorded:
            return
        first = self.steps + (_WARMUP if self.steps or 0 not in self.triggers.at_steps else 0)
        self._last = first + self.active - 1
        self.reasons.append(reason)
        self._profiler = self._profiled(_plan_steps(self.steps, first, self._last))
        # Steps keep the run's numbers; the profiler would count each recording from 0.
        self._profiler.step_num = self.steps
        self._profiler.current_action = self._profiler.schedule(self.steps)
        self._profiler.start()
        self._profiler.add_metadata("htk_trigger", reason)


def _plan_steps(start: int, first: int, last: int) -> Callable[[int], Any]:
    """Return what torch's profiler does at each step: warm up, record, save."""
    from torch.profiler import ProfilerAction

    def choose_action(step: int) -> Any:
        if not start <= step <= last:
            return ProfilerAction.NONE
        if step < first:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if step == last else ProfilerAction.RECORD

    return choose_action


def triggers_of(at_steps: Sequence[int], outlier: float | None) -> Triggers:
    """Return the triggers that options of `capture` name."""
    if any(step < 0 for step in at_steps):
        raise UsageError(f"at_steps={list(at_steps)}: steps count from 0")
    if outlier is not None and outlier <= 1:
        raise UsageError(f"outlier={outlier}: give how many times the usual step is slow, e.g. 2.0")
    return Triggers(frozenset(at_steps), outlier)


@contextmanager
def listen_for_signal(triggers: Triggers, name: str | None) -> Iterator[None]:
    """Let a signal trigger a recording while the block runs."""
    if name is None:
        yield
        return
    number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    if not isinstance(number, signal.Signals):
        raise UsageError(f"on_signal={name!r} is not a signal of this system; e.g. 'SIGUSR1'")

    def note_signal(_number: int, _frame: object) -> None:
        triggers.signalled = True

    try:
        before = signal.signal(number, note_signal)
    except ValueError:
        raise UsageError("on_signal needs a recording that begins in the main thread") from None
    try:
        yield
    finally:
        signal.signal(number, before)
