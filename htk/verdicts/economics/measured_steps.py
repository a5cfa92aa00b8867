"""Measured step times, of a recording or a job's own log: Megatron-LM, litgpt, step_time=1.62s.

A line that has none is passed over; of a long log the first 64 MiB are read.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from htk.answers.ask import ask_trace
from htk.base.core.ranges import ValueRange
from htk.base.errors import MalformedTrace, UsageError
from htk.traces.trace.trace import Trace

_MOST_BYTES = 64 << 20
_MOST_STEPS = 10_000_000
# What each writes of a step, and how many seconds one unit of it is.
_PATTERNS = (
    (re.compile(rb"elapsed time per iteration \(ms\): ([\d.]{1,20})"), 1e-3),  # Megatron-LM
    (re.compile(rb"iter time: ([\d.]{1,20}) ?ms"), 1e-3),  # litgpt
    (re.compile(rb"step[_ ]time(?:_s)?[\"']?\s*[=:]\s*([\d.]{1,20})\s*(?:s\b|,|$|\s)"), 1.0),
    (re.compile(rb"step[_ ]time(?:_ms)?[\"']?\s*[=:]\s*([\d.]{1,20})\s*ms"), 1e-3),
)
_WHOLE = re.compile(
    rb"[\"']train_runtime[\"']: ([\d.]{1,20})"
)  # of Hugging Face's Trainer, seconds
_LATER = 1.5  # times the median: a first step that compiles, loads or tunes
_LEAST_SPREAD = 0.01  # of a mean step, from one run to the next


@dataclass(frozen=True)
class LoggedSteps:
    """Seconds of each step that a log tells, in order, and of the whole, where it is told."""

    seconds: tuple[float, ...]
    whole: float | None

    @property
    def first_steps(self) -> int:
        """Steps at the beginning that take much longer than the median."""
        usual = float(np.median(self.seconds))
        return next(
            (n for n, s in enumerate(self.seconds) if s <= _LATER * usual), len(self.seconds)
        )

    @property
    def warm_up(self) -> float:
        """Seconds that those take longer."""
        usual = float(np.median(self.seconds))
        return sum(self.seconds[: self.first_steps]) - usual * self.first_steps

    @property
    def steady(self) -> ValueRange:
        """The mean of the others: two standard errors and a hundredth either way."""
        return mean_step(self.seconds[self.first_steps :])


def mean_step(seconds: tuple[float, ...]) -> ValueRange:
    """Return the mean of measured steps, as uncertain as their number and spread make it."""
    steps = np.array(seconds)
    mean = float(steps.mean())
    error = float(steps.std(ddof=1)) / len(steps) ** 0.5 / mean if len(steps) > 1 else 0.05
    wide = max(2 * error, _LEAST_SPREAD)
    return ValueRange(mean / (1 + wide), mean * (1 + wide))


def logged_steps(path: Path) -> LoggedSteps:
    """Return the step times of a log."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    for pattern, scale in _PATTERNS:
        steps = tuple(
            scale * value
            for match in pattern.finditer(text)
            if (value := _parse_positive(match[1])) is not None
        )
        if steps:
            ends = [_parse_positive(match[1]) for match in _WHOLE.finditer(text)]
            logged_ns = ends[-1] if ends else None
            return LoggedSteps(steps[:_MOST_STEPS], logged_ns)
    raise MalformedTrace(
        f"{path}: no step times found; lines such as Megatron-LM's, litgpt's or step_time=1.62s "
        "were expected"
    )


def recorded_steps(trace: Trace) -> tuple[float, ...]:
    """Return the seconds of each complete step of a recording: of its slowest rank."""
    by_step: dict[tuple[int, int], int] = {}
    for row in ask_trace(trace, "step_times").to_pylist():  # a few steps of some ranks
        if row["complete"] and row["duration_ns"]:
            key = (row["cycle"] or 0, row["step"])
            by_step[key] = max(by_step.get(key, 0), row["duration_ns"])
    if not by_step:
        raise UsageError("no complete step was recorded; give --step-time")
    return tuple(ns / 1e9 for ns in by_step.values())


def _parse_positive(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
