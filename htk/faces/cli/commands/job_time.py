"""`htk job-time`: the wall time and money of a whole job, part by part."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import format_duration, format_number
from htk.base.core.ranges import ValueRange, parse_count_over_time, parse_seconds, parse_value
from htk.base.errors import UsageError
from htk.base.mappings import Facts, Fields
from htk.faces.cli.commands.common import writing_options
from htk.faces.cli.commands.options import refuse_unused

if TYPE_CHECKING:
    from htk.answers.output.result import Result
    from htk.traces.trace.trace import Trace
    from htk.verdicts.economics.job_time import TimedJob

_NEEDS = {
    "lengths": ("micro_batch",),
    "micro_batch": ("lengths",),
    "evaluate_every": ("evaluation",),
    "checkpoint_every": ("checkpoint",),
    "restart": ("failures",),
    "gpus": ("price",),
}


@click.command("job-time")
@click.option("--steps", metavar="N", help="Optimizer steps of the job; or give --samples.")
@click.option("--samples", metavar="N", help="Samples per epoch, e.g. 52k.")
@click.option("--epochs", metavar="N", default="1", show_default=True, help="Epochs of the job.")
@click.option("--global-batch", metavar="N", help="Samples per step of the whole job.")
@click.option(
    "--step-time", metavar="TIME", help="Step time, e.g. 1.5s..1.75s; or give --trace or --log."
)
@click.option("--trace", metavar="PATH", help="Recording to take the step time from.")
@click.option("--log", metavar="FILE", help="Log of the job to take steps, warm-up and time from.")
@click.option(
    "--startup", metavar="TIME", help="Time until the first step: imports, data, weights."
)
@click.option("--compilation", metavar="TIME", help="Extra time of the first steps.")
@click.option(
    "--lengths",
    metavar="N:SHARE,…",
    help="Lengths of samples, 128:0.6,512:0.4, each batch padded to its longest.",
)
@click.option(
    "--micro-batch", metavar="N", help="Sequences per micro-batch and GPU, padded together."
)
@click.option("--evaluation", metavar="TIME", help="Time of one evaluation.")
@click.option("--evaluate-every", metavar="N", help="Steps between evaluations; by default one.")
@click.option(
    "--checkpoint", metavar="TIME", help="Time that a checkpoint stops the job, e.g. 30s."
)
@click.option(
    "--checkpoint-every", metavar="N", help="Steps between checkpoints; by default one, at the end."
)
@click.option("--failures", metavar="N/TIME", help="Interruptions counted, e.g. 3/10d.")
@click.option("--restart", metavar="TIME", help="Time from a failure until the job resumes.")
@click.option(
    "--measured", metavar="TIME", help="Measured time of the job; what no part explains stays."
)
@click.option(
    "--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="GPUs of the job."
)
@click.option("--price", type=float, help="Price of a GPU-hour.")
@click.option(
    "--change",
    "changes",
    multiple=True,
    metavar="OPTION=VALUE",
    help="Option to change, e.g. global-batch=512.",
)
@writing_options
def command(
    changes: tuple[str, ...], form: str, output: str | None, limit: int, **arguments: Any
) -> None:
    """How long does a whole job take, and what would a change save?

    Start-up, compilation, steps, padding, evaluation, checkpoints and failures add up. Times may be
    ranges. With --measured, the time that no part accounts for is shown, and does not change: a
    step that is twice as fast does not make the job twice as fast.
    """
    from htk.answers.output.render import write_result
    from htk.base.core.defer_imports import spare_pandas
    from htk.verdicts.economics.job_time import job_time

    spare_pandas()
    job = _build_timed_job(arguments)
    refuse_unused(_NEEDS)
    words: list[str] = []
    other = None
    if changes:
        changed = _parse_changes(changes, arguments)
        other = _build_timed_job(arguments | changed)
        if not {"step_time", "trace", "log"} & set(changed):
            scale, words = _change_of_step(arguments, arguments | changed)
            other = replace(other, step_scale=scale)
    answer = job_time(job, other)
    if words:
        answer = replace(answer, coverage={**answer.coverage, "assumes": "; ".join(words)})
    write_result(
        answer, form, output, limit=limit, printer=lambda file: _print_answer(answer, file)
    )


def _parse_changes(changes: tuple[str, ...], arguments: Facts) -> dict[str, str | None]:
    changed: dict[str, str | None] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals or name not in arguments or name in ("gpus", "price", "measured"):
            raise UsageError(f"--change {change!r}: an option and its value, e.g. global-batch=512")
        changed[name] = value
    if "step_time" in changed:
        changed |= {"trace": None, "log": None}
    return changed


def _change_of_step(before: Facts, after: Facts) -> tuple[ValueRange, list[str]]:
    """Return how many times as long a step takes after a change that does not say so."""
    from htk.verdicts.economics.changed_step import (
        change_of_micro_batch,
        change_of_padding,
        change_of_samples,
    )

    changes = []
    for name, change in (
        ("global_batch", change_of_samples), ("micro_batch", change_of_micro_batch)
    ):  # fmt: skip
        now = _parse_count(before, name)
        then = _parse_count(after, name)
        if now and then and now != then:
            trace = None if before["trace"] is None else _open_recording(before["trace"])
            changes.append(change(then / now, trace))
    padding = [_padding_pct(arguments) for arguments in (before, after)]
    if padding[0] != padding[1]:
        changes.append(change_of_padding(*padding))
    low = math.prod(change.times.low for change in changes)
    high = math.prod(change.times.high for change in changes)
    return ValueRange(low, high), [change.words for change in changes]


def _build_timed_job(arguments: Facts) -> "TimedJob":
    from htk.verdicts.economics.job_time import TimedJob

    step, warm_up, logged = _read_steps(arguments)
    failures = None
    if arguments["failures"] is not None:
        from htk.verdicts.economics.uncertain_inputs import ObservedCount

        failures = ObservedCount(*parse_count_over_time(arguments["failures"]))
    measured = _parse_seconds_of(arguments, "measured") or logged
    return TimedJob(
        _count_of_steps(arguments),
        step,
        _parse_seconds_of(arguments, "startup") or _ZERO,
        _parse_seconds_of(arguments, "compilation") or warm_up,
        _padding_pct(arguments),
        _parse_seconds_of(arguments, "evaluation") or _ZERO,
        _parse_count(arguments, "evaluate_every"),
        _parse_seconds_of(arguments, "checkpoint") or _ZERO,
        _parse_count(arguments, "checkpoint_every"),
        failures,
        _parse_seconds_of(arguments, "restart") or _ZERO,
        measured,
        arguments["gpus"],
        arguments["price"],
    )


_ZERO = ValueRange(0.0, 0.0)


def _parse_seconds_of(arguments: Facts, name: str) -> ValueRange | None:
    return None if arguments[name] is None else parse_seconds(arguments[name])


def _parse_count(arguments: Facts, name: str) -> int | None:
    if arguments[name] is None:
        return None
    value = parse_value(arguments[name])
    if not value.is_exact or value.low < 1 or value.low != int(value.low):
        flag = f"--{name.replace('_', '-')}"
        raise UsageError(f"{flag} {arguments[name]!r}: a whole number from 1 on was expected")
    return int(value.low)


def _count_of_steps(arguments: Facts) -> int:
    steps = _parse_count(arguments, "steps")
    samples = _parse_count(arguments, "samples")
    batch = _parse_count(arguments, "global_batch")
    if steps is not None:
        return steps
    if samples is None or batch is None:
        raise UsageError("give --steps, or --samples and --global-batch")
    epochs = parse_value(arguments["epochs"])
    if not epochs.is_exact:
        raise UsageError("--epochs: one number was expected, no range")
    return max(-(-round(samples * epochs.low) // batch), 1)


def _read_steps(arguments: Facts) -> tuple[ValueRange, ValueRange, ValueRange | None]:
    """Return a step's time, what the first take longer, and the whole where a log tells it."""
    sources = [name for name in ("step_time", "trace", "log") if arguments[name] is not None]
    if len(sources) != 1:
        raise UsageError("give the step's time once: --step-time, --trace or --log")
    if sources == ["step_time"]:
        return parse_seconds(arguments["step_time"]), _ZERO, None
    if sources == ["log"]:
        from htk.verdicts.economics.measured_steps import logged_steps

        logged = logged_steps(Path(arguments["log"]))
        runtime = None if logged.whole is None else ValueRange(logged.whole, logged.whole)
        return logged.steady, ValueRange(logged.warm_up, logged.warm_up), runtime
    return _read_recorded_step(arguments["trace"]), _ZERO, None


def _read_recorded_step(path: str) -> ValueRange:
    from htk.verdicts.economics.measured_steps import mean_step, recorded_steps

    return mean_step(recorded_steps(_open_recording(path)))


def _open_recording(path: str) -> "Trace":
    from htk.faces.cli.commands.common import split_inputs
    from htk.traces.trace.opening import open_trace

    return open_trace(split_inputs([path]))


def _padding_pct(arguments: Facts) -> float:
    """Return the share of tokens that padding to the longest of a micro-batch adds."""
    if arguments["lengths"] is None:
        return 0.0
    from htk.whatif.edits.seq import compute_lengths

    pairs = []
    for part in arguments["lengths"].split(","):
        tokens, colon, share = part.partition(":")
        if not colon or not tokens.strip().isdecimal() or len(tokens) > 9:
            raise UsageError(f"--lengths {part!r}: a length and its share, e.g. 512:0.4")
        pairs.append((int(tokens), parse_value(share).low))
    if abs(sum(share for _, share in pairs) - 1) > 0.01:
        raise UsageError("--lengths: shares that sum to 1 were expected")
    padded = compute_lengths(sorted(pairs), _parse_count(arguments, "micro_batch") or 1).tokens
    mean = sum(tokens * share for tokens, share in pairs)
    return 100 * (1 - mean / padded)


def _print_answer(answer: "Result", target: Any) -> None:
    from htk.answers.output.render import print_cells

    facts = answer.coverage
    rows = answer.to_pylist()
    columns = {"part": [row["part"] for row in rows], **_build_cells(rows)}
    target.write(f"{facts['steps']:,} steps")
    target.write(f", then {facts['changed_steps']:,}" if "changed_steps" in facts else "")
    target.write("\n\n")
    print_cells(answer.analysis, columns, empty="", limit=len(rows), file=target)
    lines = []
    if "speedup" in facts:
        low, high = facts["speedup_90"]
        lines.append(
            f"the job: {facts['speedup']:.2f}x (90 %: {low:.2f} … {high:.2f}); its steps alone: "
            f"{facts['speedup_of_steps']:.2f}x"
        )
    if facts["width_comes_from"]:
        parts = (
            f"--{name.replace('_', '-')} {100 * share:.0f} %"
            for name, share in facts["width_comes_from"].items()
        )
        lines.append(f"the width of the job's time comes from: {', '.join(parts)}")
    lines += [str(facts[name]) for name in ("note", "assumes") if name in facts]
    target.write("".join(f"\n{line}\n" for line in lines))


def _build_cells(rows: list[Fields]) -> dict[str, list[str]]:
    def format_interval(row: Facts, name: str) -> str:
        low = row[f"{name}_lo90"]
        high = row[f"{name}_hi90"]
        if low is None or high - low < 1e-3 * high:
            return ""
        return f"{format_duration(low)} … {format_duration(high)}"

    def format_time(row: Facts, name: str) -> str:
        return "" if row[name] is None else format_duration(row[name])

    return {
        "time": [format_time(row, "time_ns") for row in rows],
        "90 %": [format_interval(row, "time_ns") for row in rows],
        "share %": [f"{row['share_pct']:.1f}" for row in rows],
        "cost": ["" if row["cost"] is None else format_number(row["cost"]) for row in rows],
        "changed": [format_time(row, "changed_time_ns") for row in rows],
        "changed 90 %": [format_interval(row, "changed_time_ns") for row in rows],
    }
