"""`htk open`: the trace in a viewer."""

import tempfile
import webbrowser
from pathlib import Path
from typing import Any

import click

from htk.base.core.extras import require_extra
from htk.base.errors import UsageError
from htk.faces.cli.commands.common import opening_options
from htk.faces.cli.commands.options import port_option


@click.command("open")
@opening_options
@click.option("--perfetto", is_flag=True, help="Use Perfetto's viewer, served from this machine.")
@port_option(0)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
def command(
    paths: tuple[str, ...], perfetto: bool, port: int, no_browser: bool, **arguments: Any
) -> None:
    """Open a trace in a viewer: --perfetto serves Perfetto's, offline.

    All ranks are one trace then, on one clock, with counters and the critical path. htk's own
    timeline is a page of `htk dashboard`.
    """
    if not perfetto:
        raise UsageError("which viewer? --perfetto, or `htk dashboard PATH` for htk's own timeline")
    require_extra("perfetto", "htk open --perfetto")
    from waitress.server import create_server

    from htk.answers.export.merged import write_merged
    from htk.answers.export.perfetto import build_perfetto_app, ui_folder
    from htk.answers.export.rewrite import sources_of
    from htk.faces.cli.commands.common import open_narrowed, split_inputs

    ui = ui_folder()
    trace = open_narrowed(paths, arguments)
    sources = sources_of(split_inputs(paths))
    with tempfile.TemporaryDirectory(prefix="htk-") as folder:
        merged = write_merged(trace, sources, Path(folder))
        server = create_server(
            build_perfetto_app(ui, merged.file), host="127.0.0.1", port=port, threads=4
        )
        url = f"http://127.0.0.1:{server.effective_port}/"
        click.echo(f"perfetto: {url}  ({merged.events:,} events, Ctrl-C ends it)", err=True)
        if not no_browser:
            webbrowser.open(url)
        server.run()
