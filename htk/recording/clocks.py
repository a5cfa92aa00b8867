"""Moments of operations: marked now, known later, in ns since 1970."""

import time
from typing import Any, Protocol

_ANCHOR_NS = 60_000_000_000  # two clocks part by some µs a second


class Clock(Protocol):
    """Marks moments, and says later when they were."""

    def mark(self) -> Any:
        """Mark this moment."""

    def when(self, mark: Any) -> int | None:
        """Return the moment in ns since 1970; None: it has not come yet."""

    def new_step(self) -> None:
        """Tell that a step begins."""


class HostClock:
    """Moments on the host: monotonic within a minute, tied to the time of day after it."""

    def __init__(self) -> None:
        self._tie_clock()

    def mark(self) -> int:
        return time.perf_counter_ns() + self._offset

    def when(self, mark: int) -> int | None:
        return mark

    def new_step(self) -> None:
        if time.perf_counter_ns() - self._tied > _ANCHOR_NS:
            self._tie_clock()

    def _tie_clock(self) -> None:
        self._tied = time.perf_counter_ns()
        self._offset = time.time_ns() - self._tied


class _Base:
    """The event at a step's start, and when it was."""

    def __init__(self, event: Any, before: "_Base | None", ns: int | None) -> None:
        self.event = event
        self._before = before
        self._ns = ns

    def ns(self) -> int | None:
        if self._ns is None and self._before is not None and self.event.query():
            earlier = self._before.ns()
            if earlier is not None:
                self._ns = earlier + _round_to_ns(self._before.event.elapsed_time(self.event))
                self._before = None
        return self._ns


class DeviceClock:
    """Moments on the current CUDA stream, as events that are read once they have come.

    Differences of events are floats in ms, exact only while short: each is taken from the event at
    its step's start, that from the step before. Once a minute the device is waited for and tied to
    the time of day.
    """

    _base: _Base

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._tie_clock()

    def mark(self) -> tuple[Any, _Base]:
        return self._record_event(), self._base

    def when(self, mark: tuple[Any, _Base]) -> int | None:
        event, base = mark
        if not event.query():
            return None
        began = base.ns()
        return None if began is None else began + _round_to_ns(base.event.elapsed_time(event))

    def new_step(self) -> None:
        if time.perf_counter_ns() - self._tied > _ANCHOR_NS:
            self._tie_clock()
        else:
            self._base = _Base(self._record_event(), self._base, None)

    def _tie_clock(self) -> None:
        self._cuda.synchronize()
        event = self._record_event()
        event.synchronize()
        self._tied = time.perf_counter_ns()
        self._base = _Base(event, None, time.time_ns())

    def _record_event(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event


def _round_to_ns(ms: float) -> int:
    return round(ms * 1e6)
