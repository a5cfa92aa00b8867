"""`htk mcp`: the questions as tools for agents, over the Model Context Protocol."""

from pathlib import Path

import click


@click.command("mcp")
@click.argument("roots", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--http", "port", type=click.IntRange(1, 65535), help="Serve HTTP on this port.")
def command(roots: tuple[Path, ...], port: int | None) -> None:
    """Answer the questions of agents about traces below ROOTS (by default the current folder).

    Speaks the Model Context Protocol over stdin and stdout, or with --http over HTTP on 127.0.0.1,
    for anyone who has the printed address.
    Agents can read recordings below the roots and nothing else; nothing is written.
    """
    from htk.faces.mcp.server import build_server
    from htk.faces.mcp.traces import Traces
    from htk.traces.trace.confined import SERVED, held_ready

    with held_ready(SERVED):
        served = build_server(Traces(roots or (Path(),)))
        if port is None:
            served.run()
        else:
            from htk.faces.mcp.http import serve

            serve(served, port, lambda address: click.echo(address, err=True))
