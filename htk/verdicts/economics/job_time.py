"""The wall time of a whole job: start-up, compilation, steps and their padding, evaluation,
checkpoints, failures, and what a change of one of them makes of all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from htk.answers.output.result import Result
from htk.base.core.chart import Bar
from htk.base.core.label import Label
from htk.base.core.ranges import ValueRange
from htk.base.errors import UsageError
from htk.base.schema import TEXT, table
from htk.physics.failures import Checkpointing, divide_job_time
from htk.verdicts.economics.uncertain_inputs import (
    Inputs,
    ObservedCount,
    drawn_once,
    evaluate_draws,
    find_interval,
    middle_of,
    shares_of_width,
)

_HOUR = 3600.0
_ZERO = ValueRange(0.0, 0.0)
_AS_NOW = ValueRange(1.0, 1.0)
_MOST_STEPS = 1e12

RETURNS = table(
    part=(TEXT, "What the time goes to; the last row is the whole job."),
    time_ns=(pa.int64(), "With each input in its middle."),
    time_ns_lo90=(pa.int64(), "Nine of ten jobs within the given ranges take longer than this …"),
    time_ns_hi90=(pa.int64(), "… and less than this."),
    share_pct=(pa.float64(), "Of the whole job."),
    cost=(pa.float64(), "At the price given; null: none."),
    changed_time_ns=(pa.int64(), "With the changes that were asked for; null: none."),
    changed_time_ns_lo90=(pa.int64(), "Nine of ten above this …"),
    changed_time_ns_hi90=(pa.int64(), "… and below this."),
)
LABEL = Label(
    "job_time",
    "What does a whole job take, and what would a change make of it?",
    Bar("part", ("time_ns",)),
)
_PARTS = {
    "startup": "start-up",
    "compilation": "compilation and first steps",
    "tokens": "steps",
    "padding": "steps: padding",
    "evaluation": "evaluation",
    "checkpoints": "checkpoints",
    "failures": "failures: restart and work done again",
    "rest": "not accounted for",
}


@dataclass(frozen=True)
class TimedJob:
    """A job by its parts; times in seconds."""

    steps: int
    step: ValueRange  # with padding
    startup: ValueRange = _ZERO
    compilation: ValueRange = _ZERO  # once, and with each other shape
    padding_pct: float = 0.0  # of the tokens of a step
    evaluation: ValueRange = _ZERO
    evaluate_every: int | None = None  # steps
    checkpoint: ValueRange = _ZERO
    checkpoint_every: int | None = None  # steps; None: once, at the end
    failures: ValueRange | ObservedCount | None = None  # of the job, a second
    restart: ValueRange = _ZERO
    measured: ValueRange | None = None  # the whole job, as it took
    gpus: int = 1
    price: float | None = None  # of a GPU-hour
    step_scale: ValueRange = _AS_NOW  # times the step, of a job that was changed

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= _MOST_STEPS:
            raise UsageError("steps: at least 1 was expected, from --steps or the samples")
        if not self.step.low > 0:
            raise UsageError("step time: a positive time was expected")
        if not 0 <= self.padding_pct < 100:
            raise UsageError("padding: a share from 0 to 100 % was expected")
        for every in (self.evaluate_every, self.checkpoint_every):
            if every is not None and every < 1:
                raise UsageError("evaluation and checkpoints: every 1 or more steps")

    @property
    def inputs(self) -> Inputs:
        named: dict[str, ValueRange | ObservedCount | None] = {
            "step_time": self.step,
            "step_scale": self.step_scale,
            "startup": self.startup,
            "compilation": self.compilation,
            "evaluation": self.evaluation,
            "checkpoint": self.checkpoint,
            "failures": self.failures,
            "restart": self.restart,
            "measured": self.measured,
        }
        return {name: value for name, value in named.items() if value is not None}


def job_time(job: TimedJob, changed: TimedJob | None = None) -> Result:
    """Return a row for each part of the job and one for the whole; what a change makes of them."""
    draws, answers = evaluate_draws(job.inputs, lambda drawn: _compute_parts(job, drawn))
    expected = _compute_parts(job, middle_of(job.inputs))
    after_answers, after = _draw_changed(job, changed, draws, answers, expected)
    answer = answers["whole"] if changed is None else after_answers["whole"]
    width = shares_of_width(draws, answer)
    rows = []
    for name, words in (_PARTS | {"whole": "the job"}).items():
        if not np.any(answers[name]) and not np.any(after_answers[name]):
            continue
        row = {"part": words} | _times_in_ns("time_ns", expected[name], answers[name])
        row["share_pct"] = 100 * expected[name] / expected["whole"]
        if job.price is not None:
            row["cost"] = job.gpus * job.price * expected[name] / _HOUR
        if changed is not None:
            row |= _times_in_ns("changed_time_ns", after[name], after_answers[name])
        rows.append(row)
    facts: dict[str, object] = {"steps": job.steps, "width_comes_from": width}
    if job.measured is not None and expected["rest"] < 0:
        facts["note"] = "the parts take longer than the job did: one of them is too long"
    if changed is not None:
        ratio = answers["whole"] / after_answers["whole"]
        facts |= {
            "changed_steps": changed.steps,
            "speedup": expected["whole"] / after["whole"],
            "speedup_90": find_interval(ratio),
            "speedup_of_steps": (expected["tokens"] + expected["padding"])
            / (after["tokens"] + after["padding"]),
        }
    return Result(LABEL, pa.Table.from_pylist(rows, schema=RETURNS), facts)


Draws = Mapping[str, np.ndarray]


def _draw_changed(
    job: TimedJob,
    changed: TimedJob | None,
    draws: Draws,
    answers: Draws,
    expected: Mapping[str, float],
) -> tuple[Draws, Mapping[str, float]]:
    """Return draws and middle of the changed job.

    What did not change is the same in both, and so is the time that no part accounts for.
    """
    if changed is None:
        return answers, expected
    other = replace(changed, measured=None)
    new = {n: value for n, value in other.inputs.items() if job.inputs.get(n) != value}
    both = {n: column for n, column in draws.items() if n in other.inputs}
    both |= drawn_once(new, seed=1)
    rows = [
        _compute_parts(other, {name: float(column[row]) for name, column in both.items()})
        for row in range(len(answers["whole"]))
    ]
    after = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    after["rest"] = answers["rest"]
    after["whole"] = after["whole"] + answers["rest"]
    middle = _compute_parts(other, middle_of(other.inputs))
    middle["rest"] = expected["rest"]
    middle["whole"] += expected["rest"]
    return after, middle


def _times_in_ns(column: str, seconds: float, drawn: np.ndarray) -> dict[str, Any]:
    """Return a time and its 90 % interval, under the names of their columns."""
    low, high = find_interval(drawn)
    names = (column, f"{column}_lo90", f"{column}_hi90")
    return {name: round(t * 1e9) for name, t in zip(names, (seconds, low, high), strict=True)}


def _compute_parts(job: TimedJob, drawn: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each part, for one value of each input."""
    step = drawn["step_time"] * drawn["step_scale"]
    work = job.steps * step
    evaluations = job.steps // job.evaluate_every if job.evaluate_every else 1
    saves = max(job.steps // job.checkpoint_every, 1) if job.checkpoint_every else 1
    parts = {
        "startup": drawn["startup"],
        "compilation": drawn["compilation"],
        "tokens": work * (1 - job.padding_pct / 100),
        "padding": work * job.padding_pct / 100,
        "evaluation": evaluations * drawn["evaluation"],
        "checkpoints": saves * drawn["checkpoint"],
        "failures": 0.0,
    }
    if "failures" in drawn:
        every = (job.checkpoint_every or job.steps) * step
        plan = Checkpointing(every, drawn["checkpoint"])
        split = divide_job_time(drawn["failures"], drawn["restart"], plan)
        runs = split.useful + split.checkpoints
        if runs < 1e-6:
            raise UsageError("the job never ends: failures come faster than it restarts and saves")
        ran = sum(parts.values()) - parts["startup"]
        parts["failures"] = ran * (1 - runs) / runs
    accounted = sum(parts.values())
    parts["rest"] = drawn["measured"] - accounted if "measured" in drawn else 0.0
    return parts | {"whole": accounted + parts["rest"]}
