"""How long a step takes after a change of a job that says nothing of its step."""

from dataclasses import dataclass

from htk.base.core.ranges import ValueRange
from htk.base.errors import UsageError
from htk.traces.trace.trace import Trace
from htk.whatif.api import WhatIf

_IN_PROPORTION = 0.8  # of a step's time, at least, grows with its samples


@dataclass(frozen=True)
class ChangedStep:
    """A step over the one before the change, and what was taken of it, in words."""

    times: ValueRange
    words: str


def change_of_samples(ratio: float, trace: Trace | None) -> ChangedStep:
    """Return what so many times the samples of a step make of it on the same GPUs: by what-if where
    there is a recording, else nearly in proportion."""
    if trace is None:
        partly = 1 + _IN_PROPORTION * (ratio - 1)
        times = ValueRange(min(ratio, partly), max(ratio, partly))
        return ChangedStep(
            times,
            f"{ratio:g} times the samples take {times.low:.3g} to {times.high:.3g} times as long "
            "on the same GPUs; --trace predicts it, --change step-time= states it",
        )
    for edit in ("accumulation", "batch"):  # the same micro-batch, where it comes out even
        if predicted := _ask_whatif(trace, (edit, f"{ratio:g}x")):
            return predicted
    raise UsageError(
        f"the recording does not tell a step of {ratio:g} times the samples; give --change "
        "step-time= too"
    )


def change_of_micro_batch(ratio: float, trace: Trace | None) -> ChangedStep:
    """Return what so many times the micro-batch makes of a step of the same samples: by what-if
    where there is a recording, else what is fixed in each of them at most."""
    if trace is not None:
        edits = (("batch", f"{ratio:g}x"), ("accumulation", f"{1 / ratio:g}x"))
        if predicted := _ask_whatif(trace, *edits):
            return predicted
    partly = (1 + _IN_PROPORTION * (ratio - 1)) / ratio
    times = ValueRange(min(1.0, partly), max(1.0, partly))
    return ChangedStep(
        times,
        f"a step of the same samples in micro-batches of {ratio:g} times as many takes "
        f"{times.low:.3g} to {times.high:.3g} times as long",
    )


def _ask_whatif(trace: Trace, *edits: tuple[str, str]) -> ChangedStep | None:
    """Return the step that a what-if predicts, or None where it refuses to."""
    try:
        (answer,) = WhatIf(trace, edits=edits).answers()
    except UsageError:
        return None
    low, high = answer.intervals[2:]
    if low is None or high is None:
        return None
    asked = " ".join(f"--{name} {value}" for name, value in edits)
    return ChangedStep(
        ValueRange(low / answer.measured_ns, high / answer.measured_ns),
        f"the step as whatif {asked} predicts it, with its 90 % interval",
    )


def change_of_padding(before_pct: float, after_pct: float) -> ChangedStep:
    """Return what another share of padding makes of a step with the same tokens of samples."""
    times = (1 - before_pct / 100) / (1 - after_pct / 100)
    return ChangedStep(
        ValueRange(times, times), "tokens of samples take as long as before, padding in proportion"
    )
