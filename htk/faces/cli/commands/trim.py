"""`htk trim`: a smaller trace for a ticket."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from htk.base.core.humanize import format_bytes
from htk.base.errors import UsageError
from htk.faces.cli.commands.common import narrowing_options, opening_options, say
from htk.faces.cli.commands.options import folder_option


@click.command("trim")
@opening_options
@narrowing_options
@folder_option
def command(paths: tuple[str, ...], output: str, **arguments: Any) -> None:
    """Write smaller traces: chosen ranks, steps or times, events as they were recorded.

    htk trim runs/ --steps 3..4 --ranks 0,1 -o ticket/
    """
    from htk.answers.export.rewrite import kineto_parts, sources_of, write
    from htk.answers.export.trim import kept_event, target_names, wanted
    from htk.faces.cli.commands.common import named, opened

    trace = opened(paths, arguments)
    if trace.selection.annotation is not None:
        raise UsageError("trim cuts by --ranks, --steps, --from and --to; not by --annotation")
    sources = sources_of(named(paths))
    # Ranks that were recorded in one file are written to one.
    parts = list({part.file: part for part in kineto_parts(trace.selected_files)}.values())
    for part, name in zip(parts, target_names(parts), strict=True):
        keep = wanted(trace, part)
        event = partial(kept_event, keep)
        written = write(sources[part.file], Path(output) / name, lambda _, value: value, event)
        copied = written.copied
        stored = format_bytes(written.stored_bytes)
        say(f"{written.file}: {copied.kept:,} of {copied.events:,} events, {stored}")
