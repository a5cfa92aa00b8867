"""`htk cache`: the parsed traces that are kept, so that the next look is instant."""

import json
from datetime import UTC, datetime

import click

from htk.core.humanize import format_bytes


@click.group("cache")
def command() -> None:
    """List or clear the parsed traces that are kept."""


@command.command("ls")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
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
        click.echo(f"{format_bytes(entry.size_bytes):>10}  {used}  {entry.source}")
    total = format_bytes(sum(e.size_bytes for e in entries))
    click.echo(f"{len(entries)} traces, {total}, in {store.root}")


@command.command("clear")
def clear() -> None:
    """Forget all parsed traces; the traces themselves are not touched."""
    from htk.io.store import Store

    removed = Store().clear()
    click.echo(f"{removed} parsed traces removed", err=True)
