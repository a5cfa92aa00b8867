"""`htk timeline`: the interactive timeline as one file."""

from pathlib import Path
from typing import Any

import click

from htk.base.core.whole_file import write_whole
from htk.faces.cli.commands.common import opening_options, print_line
from htk.faces.cli.commands.options import align_option, ranks_option, title_option


@click.command("timeline")
@opening_options
@ranks_option
@align_option
@title_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="timeline.html",
    show_default=True,
    help="File to write to.",
)
def command(
    paths: tuple[str, ...], align: bool, title: str | None, output: str, **arguments: Any
) -> None:
    """Write the timeline as one HTML file: it opens from disk and needs nothing else.

    All ranks, streams, groups and threads; zoom, search, arrows, statistics as in the dashboard.
    Of a large trace the shortest calls of the host are left out, and the page says so.
    """
    from htk.faces.cli.commands.common import open_narrowed
    from htk.traces.timeline.answers import TraceTimeline
    from htk.traces.timeline.page import render_timeline_page

    trace = open_narrowed(paths, arguments)
    name = title or Path(paths[0].rstrip("/*")).name or paths[0]
    text = render_timeline_page(TraceTimeline(trace, aligned=align), name)
    target = Path(output)
    write_whole(target, text)
    print_line(f"{target}: {target.stat().st_size / 2**20:.1f} MiB")
