"""`htk trim`: a smaller trace for a ticket."""

from pathlib import Path
from typing import Any

import click

from htk.base.core.humanize import format_bytes
from htk.faces.cli.commands.common import (
    activity_options,
    narrowing_options,
    opening_options,
    print_line,
)
from htk.faces.cli.commands.options import folder_option
from htk.quantities.derived.cut_header import KEY


@click.command("trim")
@opening_options
@narrowing_options
@activity_options
@folder_option
def command(paths: tuple[str, ...], output: str, **arguments: Any) -> None:
    """Write smaller traces: of chosen ranks, steps, times, ranges, GPU activities, as recorded.

    htk trim runs/ --steps 3..4 --ranks 0,1 -o ticket/

    What Nsight, rocprof, JAX and others recorded is written as files of PyTorch's profiler.
    """
    from htk.answers.export.retold import as_kineto
    from htk.answers.export.rewrite import kineto_parts, refuse_filled, write_changed_copy
    from htk.answers.export.trim import target_names, trimmed_file
    from htk.faces.cli.commands.common import open_narrowed, split_inputs

    refuse_filled(Path(output))
    with as_kineto(open_narrowed(paths, arguments), split_inputs(paths)) as (trace, sources):
        # Ranks that were recorded in one file are written to one.
        parts = list({part.file: part for part in kineto_parts(trace.selected_files)}.values())
        for part, name in zip(parts, target_names(parts), strict=True):
            own = trimmed_file(trace, part.file)
            entry = _without_cut if own.header else _as_it_is
            written = write_changed_copy(
                sources[part.file], Path(output) / name, entry, own.event, own.header
            )
            copied = written.copied
            stored = format_bytes(written.stored_bytes)
            print_line(f"{written.file}: {copied.kept:,} of {copied.events:,} events, {stored}")


def _without_cut(key: str, value: bytes) -> bytes | None:
    """Return a member of the header but what tells of an earlier cut: a new one tells of both."""
    return None if key == KEY else value


def _as_it_is(_key: str, value: bytes) -> bytes:
    return value
