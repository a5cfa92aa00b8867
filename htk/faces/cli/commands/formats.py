"""`htk formats`: what htk reads."""

import json

import click

from htk.faces.cli.commands.options import list_format_option


@click.command("formats")
@list_format_option
def command(form: str) -> None:
    """List the file formats that htk reads; files are recognised by their content."""
    from htk.parsers import list_parsers

    rows = {p.NAME: (p.__doc__ or "").strip().partition("\n")[0] for p in list_parsers()}
    if form == "json":
        click.echo(json.dumps([{"name": n, "what": w} for n, w in rows.items()]))
        return
    for name, what in rows.items():
        click.echo(f"{name:24} {what}")
