"""`htk cache`: the parsed traces that are kept, so that the next look is instant."""

import json
from datetime import UTC, datetime

import click

from htk.cli.commands.options import list_format_option
from htk.core.humanize import format_bytes, visible
from htk.errors import GateFailed


@click.group("cache")
def command() -> None:
    """List, check or clear the parsed traces that are kept."""


@command.command("ls")
@list_format_option
def ls(form: str) -> None:
    """List what is kept, and where."""
    from htk.io.store import Store

    store = Store()
    entries = store.list()
    if form == "json":
        rows = [
            {
                "source": e.source,
                "size_bytes": e.size_bytes,
                "created": e.created,
                "last_used": e.last_used,
            }
            for e in entries
        ]
        click.echo(json.dumps(rows))
        return
    for entry in entries:
        used = datetime.fromtimestamp(entry.last_used, UTC).strftime("%Y-%m-%d %H:%M")
        size = format_bytes(entry.size_bytes)
        click.echo(visible(f"{size:>10}  {used}  {entry.source}"))
    total = format_bytes(sum(e.size_bytes for e in entries))
    click.echo(visible(f"{len(entries)} traces, {total}, in {store.root}"))


@command.command("verify")
@click.pass_context
def verify(ctx: click.Context) -> None:
    """Read all that is kept and compare it with its checksums.

    What is not as it was written is removed, to be made anew at the next look; exit code 4 then.
    """
    from htk.io.store import Store

    intact, damaged = Store().verify()
    for source in damaged:
        click.echo(visible(f"damaged, removed: {source}"))
    click.echo(f"{intact} parsed traces are as they were written, {len(damaged)} were not")
    if damaged:
        ctx.exit(GateFailed.exit_code)


@command.command("clear")
def clear() -> None:
    """Forget all parsed traces; the traces themselves are not touched."""
    from htk.cli import kept_answers
    from htk.io.store import Store

    kept_answers.clear()
    removed = Store().clear()
    click.echo(f"{removed} parsed traces removed", err=True)
