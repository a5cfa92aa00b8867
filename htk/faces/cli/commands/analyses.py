"""`htk analyses`: the questions that htk answers."""

import click

from htk import analyses
from htk.base.core.humanize import command_name
from htk.faces.cli.commands.options import list_format_option


@click.command("analyses")
@list_format_option
def command(form: str) -> None:
    """List the questions that htk answers, by subject."""
    if form == "json":
        import json

        rows = [
            {"name": name, "subject": entry.subject, "question": entry.question}
            for name, entry in analyses.ANALYSES.items()
        ]
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    subject = ""
    for name, entry in sorted(
        analyses.ANALYSES.items(), key=lambda item: (item[1].subject, item[0])
    ):
        if entry.subject != subject:
            subject = entry.subject
            click.echo(click.style(subject, bold=True))
        click.echo(f"  {command_name(name):26} {entry.question}")
