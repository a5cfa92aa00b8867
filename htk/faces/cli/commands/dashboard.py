"""`htk dashboard`: the pages, served to this machine's browser."""

import re
import secrets
import signal
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.extras import require_extra
from htk.base.errors import HtkError, UnknownRank
from htk.base.mappings import Fields
from htk.faces.cli.commands.common import open_narrowed, open_options, parsing_options, print_line
from htk.faces.cli.commands.options import port_option, store_of_history_option

if TYPE_CHECKING:
    from htk.dashboard.runs import Runs

THREADS = 8


@click.command("dashboard")
@click.argument("paths", nargs=-1, metavar="[PATH…]")
@parsing_options
@click.option(
    "--bind", "--host", "host", default="127.0.0.1", show_default=True, help="Address to listen on."
)
@port_option(8050)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--max-upload", default=512, show_default=True, help="Largest upload in MiB.")
@click.option("--token", metavar="TEXT", help="Token to ask for; by default a new one each time.")
@click.option("--no-token", is_flag=True, help="Ask for no token, on a machine that only you use.")
@store_of_history_option
@click.option(
    "--debug", is_flag=True, help="Dash's own server and developer tools; on this machine only."
)
def command(
    paths: tuple[str, ...],
    host: str,
    port: int,
    no_browser: bool,
    max_upload: int,
    token: str | None,
    no_token: bool,
    store: str | None,
    debug: bool,
    **arguments: Any,
) -> None:
    """Open the dashboard in a browser.

    PATH is a run: a file, or the folder with the files of all ranks. A folder of several runs, of
    recordings whose files do not say their rank, or no PATH (then the working directory), opens a
    page that lists them. Only files in the folders
    named here can be opened. It listens on this machine alone, and asks for the token that is in
    the printed link: a login node has many users.
    """
    require_extra("dashboard", "the dashboard")
    from htk.dashboard.app import create_app
    from htk.dashboard.guard import is_loopback
    from htk.traces.trace.confined import SERVED, held_ready

    local = is_loopback(host)
    if debug and not local:
        raise click.UsageError("--debug shows code to visitors; it is for this machine alone")
    token = _choose_token(token, no_token, local)
    with held_ready(SERVED):
        runs = _open_runs(paths, max_upload << 20, _find_history_address(store), arguments)
        app = create_app(runs, token=token)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uploads go in any case
        try:
            _serve_app(app, host, port, token, (max_upload + 1) << 20, no_browser, debug, local)
        finally:
            runs.close()


def _choose_token(asked: str | None, no_token: bool, local: bool) -> str | None:
    if no_token and (asked is not None or not local):
        raise click.UsageError("--no-token is for this machine alone, and without --token")
    if asked is not None and not re.fullmatch(r"[A-Za-z0-9_.~-]{8,200}", asked):
        raise click.UsageError("--token takes 8 to 200 letters, digits and - _ . ~")
    return None if no_token else asked or secrets.token_urlsafe(24)


def _find_history_address(store: str | None) -> str:
    """Return the address of the history, or nothing where none is kept.

    One that is named has to be there; one that is not must not keep the dashboard from starting.
    """
    from htk.verdicts.history.archive import History, opened_history

    if store is not None:
        return opened_history(store).address
    try:
        history = History()
        return history.address if history.is_kept else ""
    except HtkError as error:
        print_line(f"htk: no page of runs over time: {error}")
        return ""


def _open_runs(
    paths: tuple[str, ...], upload_bytes: int, history: str, arguments: Fields
) -> "Runs":
    """Return one run that is opened at once, or folders to choose from."""
    from htk.dashboard.following import Followed
    from htk.dashboard.runs import Runs, holds_runs

    folders = [Path(p) for p in paths if Path(p).is_dir()]
    many: Fields = {
        "options": open_options(arguments),
        "upload_bytes": upload_bytes,
        "history_address": history,
    }
    if not paths:
        return Runs([Path.cwd()], **many)
    if len(folders) == len(paths) and any(holds_runs(f) for f in folders):
        return Runs(folders, **many)
    followed = Followed(paths)  # before they are read: what comes meanwhile is seen
    try:
        trace = open_narrowed(paths, {**arguments, "confined": True})
    except UnknownRank as error:
        if len(folders) != len(paths) or arguments.get("rank_pattern"):
            raise
        print_line(f"htk: {error}; each file is listed as a run of its own")
        return Runs(folders, separate=folders, **many)
    return Runs(folders, trace=trace, followed=followed, **many)


def _serve_app(
    app: Any,
    host: str,
    port: int,
    token: str | None,
    most_bytes: int,
    no_browser: bool,
    debug: bool,
    local: bool,
) -> None:
    if not local:
        click.echo("htk: reachable from other machines; who has the token sees the trace", err=True)
    named = f"[{host}]" if ":" in host else host
    query = f"?token={token}" if token else ""
    if debug:
        click.echo(f"dashboard: http://{named}:{port}/{query}", err=True)
        app.run(
            debug=True,
            host=host,
            port=port,
            use_reloader=False,
            dev_tools_disable_version_check=True,
        )
        return
    from htk.dashboard.connections import make_server

    server = make_server(
        app.server, token, host=host, port=port, threads=THREADS, max_request_body_size=most_bytes
    )
    url = f"http://{named}:{server.effective_port}/{query}"
    click.echo(f"dashboard: {url}  (Ctrl-C ends it)", err=True)
    if not no_browser:
        webbrowser.open(url)
    threading.Thread(target=_draw_first, daemon=True).start()
    server.run()


def _draw_first() -> None:
    """Draw an empty chart, so that the first that is asked for waits for no imports and checks."""
    import plotly.graph_objects as go

    from htk.answers.output.figure_frame import frame_figure

    frame_figure([go.Bar(), go.Scatter()], dark=False)
