"""`htk summary`: a first verdict on one screen."""

from typing import TYPE_CHECKING, Any

import click

from htk.faces.cli.commands.common import (
    OPENMETRICS,
    metered_options,
    narrowing_options,
    opening_options,
    working_options,
    write_text,
)

if TYPE_CHECKING:
    from htk.verdicts.overview.summary import Verdict

_BAR = 40  # characters for 100 %


@click.command("summary")
@opening_options
@narrowing_options
@metered_options
@working_options
def command(
    paths: tuple[str, ...], form: str, output: str | None, limit: int, **arguments: Any
) -> None:
    """Where did the time go, and what should be looked at first?"""
    from htk.answers.output.render import write_result
    from htk.faces.cli.commands.common import name_run, open_narrowed, show_progress
    from htk.verdicts.overview.summary import build_summary_result, reach_verdict

    trace = open_narrowed(paths, arguments)
    if form == OPENMETRICS:
        from htk.verdicts.history.openmetrics import measure_run, write_openmetrics

        with show_progress():
            text = write_openmetrics([measure_run(trace, name_run(paths))])
        write_text(text, output)
        return
    with show_progress():
        answer = reach_verdict(trace)
    if form != "table":
        write_result(build_summary_result(answer), form, output, limit=limit)
        return
    write_text("\n".join(_list_lines(answer)) + "\n", output)


def _list_lines(verdict: "Verdict") -> list[str]:
    from htk.answers.output.coverage_text import coverage_lines

    return [
        verdict.headline,
        "",
        *_draw_bars(verdict),
        *_list_cause_lines(verdict),
        *_list_next_lines(verdict),
        *coverage_lines(verdict.coverage),
    ]


def _draw_bars(verdict: "Verdict") -> list[str]:
    from htk.base.core.humanize import format_duration

    if not verdict.visible_shares:
        return [] if verdict.records else ["No GPU work was recorded.", ""]
    wide = max(len(s.name) for s in verdict.visible_shares)
    unit = "of a step" if verdict.step_ns else "of iterations" if verdict.served else "recorded"
    total = verdict.total_ns
    where = "Where the host's time goes" if verdict.on_host else "Where the time goes"
    lines = [verdict.gpu_note, ""] if verdict.on_host else []
    lines += [f"{where} ({format_duration(total)} {unit}, mean over ranks)"]
    for s in verdict.visible_shares:
        bar = "█" * max(round(s.pct / 100 * _BAR), 1 if s.pct >= 1 else 0)
        lines.append(
            f"  {s.name:<{wide}} {s.pct:5.1f} %  {format_duration(s.pct / 100 * total):>8}  {bar}"
        )
    return [*lines, ""]


def _list_cause_lines(verdict: "Verdict") -> list[str]:
    from htk.base.core.humanize import format_duration, make_visible
    from htk.verdicts.overview.parts import tell_gains_together

    if not verdict.causes:
        return []
    lines = [f"First causes (what {verdict.unit} gains without each, 90 % interval)"]
    if verdict.served:
        lines = ["What would gain most (of an iteration, for the same tokens; 90 % interval)"]
    for number, cause in enumerate(verdict.causes, 1):
        cost = cause.cost_in_words(verdict.total_ns)
        lines.append(f"  {number}. {cost}{': ' if cost else ''}{cause.finding}")
        lines.append(f"     {cause.evidence}")
        if cause.overlaps:
            lines.append(f"     {cause.overlaps}")
        lines.append(f"     try: {make_visible(cause.advice)}")  # it may name code of the recording
    if together := tell_gains_together(verdict.causes):
        lines.append(f"  {together}")
    if verdict.unexplained_pct:
        left = format_duration(verdict.unexplained_pct / 100 * verdict.total_ns)
        lines.append(f"  unexplained: {left}")
    return [*lines, ""]


def _list_next_lines(verdict: "Verdict") -> list[str]:
    if not verdict.next:
        return []
    from htk.base.core.humanize import command_name

    wide = max(len(name) for name, _ in verdict.next)
    lines = ["Look at next"]
    lines += [f"  htk {command_name(name):<{wide}}  {why}" for name, why in verdict.next]
    return [*lines, ""]
