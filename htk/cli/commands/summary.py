"""`htk summary`: a first verdict on one screen."""

from typing import TYPE_CHECKING, Any

import click

from htk.cli.commands.common import trace_options

if TYPE_CHECKING:
    from htk.overview.summary import Verdict

_BAR = 40  # characters for 100 %


@click.command("summary")
@trace_options
def command(
    paths: tuple[str, ...], form: str, output: str | None, limit: int, **given: Any
) -> None:
    """Where did the time go, and what should be looked at first?"""
    from htk.cli.commands.common import opened, working
    from htk.output.render import write
    from htk.overview.summary import result, verdict

    trace = opened(paths, given)
    with working():
        found = verdict(trace)
    if form != "table":
        write(result(found), form, output, limit=limit)
        return
    text = "\n".join(_lines(found)) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    with open(output, "w", encoding="utf-8") as file:
        file.write(text)


def _lines(found: "Verdict") -> list[str]:
    from htk.output.render import coverage_lines

    return [
        found.headline,
        "",
        *_bars(found),
        *_causes(found),
        *_next(found),
        *coverage_lines(found.coverage),
    ]


def _bars(found: "Verdict") -> list[str]:
    from htk.core.humanize import format_duration

    if not found.told:
        return [] if found.records else ["No GPU work was recorded.", ""]
    wide = max(len(s.name) for s in found.told)
    unit = "of a step" if found.step_ns else "recorded"
    whole = found.whole_ns
    lines = [f"Where the time goes ({format_duration(whole)} {unit}, mean over ranks)"]
    for s in found.told:
        bar = "█" * max(round(s.pct / 100 * _BAR), 1 if s.pct >= 1 else 0)
        lines.append(
            f"  {s.name:<{wide}} {s.pct:5.1f} %  {format_duration(s.pct / 100 * whole):>8}  {bar}"
        )
    return [*lines, ""]


def _causes(found: "Verdict") -> list[str]:
    from htk.core.humanize import format_duration

    if not found.causes:
        return []
    lines = ["First causes (recoverable at most; gains overlap)"]
    for place, cause in enumerate(found.causes, 1):
        gain = (
            f"{format_duration((cause.pct or 0) / 100 * found.whole_ns)}: "
            if cause.pct is not None
            else ""
        )
        lines.append(f"  {place}. {gain}{cause.finding}")
        lines.append(f"     {cause.evidence}")
        lines.append(f"     try: {cause.advice}")
    return [*lines, ""]


def _next(found: "Verdict") -> list[str]:
    if not found.next:
        return []
    wide = max(len(name) for name, _ in found.next)
    lines = ["Look at next"]
    lines += [f"  htk {name:<{wide}}  {why}" for name, why in found.next]
    return [*lines, ""]
