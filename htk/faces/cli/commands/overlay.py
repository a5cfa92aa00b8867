"""`htk overlay`: copies of Kineto files with the critical path drawn in."""

from pathlib import Path
from typing import Any

import click

from htk.faces.cli.commands.common import opening_options, print_line
from htk.faces.cli.commands.options import folder_option, ranks_option, step_option


@click.command("overlay")
@opening_options
@step_option
@ranks_option
@folder_option
def command(
    paths: tuple[str, ...], step: int | None, ranks: str | None, output: str, **arguments: Any
) -> None:
    """Draw the critical path of a step into copies of the trace files.

    A copy opens in Perfetto or chrome://tracing: the path has tracks of its own, with arrows.
    """
    from htk.answers.export.overlay import write_overlays
    from htk.faces.cli.commands.common import open_narrowed

    trace = open_narrowed(paths, arguments | {"ranks": ranks})
    for file, pieces in write_overlays(trace, Path(output), step).items():
        print_line(f"{pieces:>8,} pieces  {file}")
