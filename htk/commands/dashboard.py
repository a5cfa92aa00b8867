"""`htk dashboard`: the pages, served to this machine's browser."""

import ipaddress
import secrets
import webbrowser
from typing import Any

import click

from htk.commands.common import opening_options


@click.command("dashboard")
@opening_options
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8050, show_default=True, help="Port; 0 takes a free one.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
def command(paths: tuple[str, ...], host: str, port: int, no_browser: bool, **given: Any) -> None:
    """Open the dashboard in a browser.

    It listens on this machine alone. With another --host everyone who can reach it must bring the
    token that is printed.
    """
    from waitress.server import create_server

    from htk.commands.common import opened
    from htk.dashboard.app import create_app
    from htk.dashboard.runs import Runs

    trace = opened(paths, given)
    token = None if _is_loopback(host) else secrets.token_urlsafe(24)
    app = create_app(Runs(given=trace), token=token)
    server = create_server(app.server, host=host, port=port, threads=8)
    url = f"http://{host}:{server.effective_port}/" + (f"?token={token}" if token else "")
    if token:
        click.echo("htk: reachable from other machines; who has the token sees the trace", err=True)
    click.echo(f"dashboard: {url}  (Ctrl-C ends it)", err=True)
    if not no_browser:
        webbrowser.open(url)
    server.run()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
