"""`htk report`: one document to forward."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from htk.base.core.extras import require_extra
from htk.base.core.humanize import format_bytes
from htk.base.names.rows_by import WORDS
from htk.faces.cli.commands.common import (
    narrowing_options,
    opening_options,
    print_line,
    working_options,
)
from htk.faces.cli.commands.options import title_option

FORMS = ("html", "md", "json", "pdf", "xlsx")


@click.command("report")
@opening_options
@narrowing_options
@working_options
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Output format; by default that of the extension of -o, else html.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="File to write to; by default report.html.",
)
@click.option(
    "--by",
    type=click.Choice(WORDS),
    default="kernel",
    show_default=True,
    help="What a row stands for in the table of kernels; source: the line of the program.",
)
@title_option
@click.option("--whatif/--no-whatif", default=True, help="Include predictions.")
def command(
    paths: tuple[str, ...],
    form: str | None,
    output: str | None,
    title: str | None,
    by: str,
    whatif: bool,
    **arguments: Any,
) -> None:
    """Write one document to forward: verdict, timeline, what-ifs, tables, plots.

    HTML opens anywhere without a network; Markdown is for pull requests and JSON for machines, and
    both go to stdout without -o; a spreadsheet (xlsx) has a sheet for each answer; PDF needs
    Chromium.
    """
    from htk.faces.cli.commands.common import open_narrowed, show_progress
    from htk.faces.report.content import form_of, gather_report
    from htk.faces.report.write import write_report

    chosen = form_of(form, output)
    if chosen in ("html", "pdf"):
        require_extra("plot", f"a report in {chosen.upper()}")
    trace = open_narrowed(paths, arguments)
    name = title or _name_recording(paths[0])
    typed = shlex.join(["htk", *sys.argv[1:]])
    with show_progress("asking every question"):
        report = gather_report(trace, title=name, command=typed, by=by, whatif=whatif)
        target = write_report(report, chosen, output)
    if target is not None:
        print_line(f"{target}: {format_bytes(target.stat().st_size)}")


def _name_recording(path: str) -> str:
    """Return what people call a recording: its folder, or its file without endings."""
    name = Path(path.rstrip("/*")).name or path
    for ending in (".gz", ".zst", ".json", ".trace", ".pt"):
        name = name.removesuffix(ending)
    return name
