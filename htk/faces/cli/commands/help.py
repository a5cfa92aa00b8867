"""`htk help`: what there is about a word."""

import click

from htk.base.errors import UsageError


@click.command("help")
@click.argument("word", required=False)
@click.pass_context
def command(ctx: click.Context, word: str | None) -> None:
    """Find commands, questions and their columns by a WORD; without one, print the menu."""
    if word is None:
        assert ctx.parent is not None
        click.echo(ctx.parent.get_help())
        return
    lines = [*_list_commands(word), *_list_columns(word)]
    if not lines:
        raise UsageError(f"nothing about {word!r}; htk --help lists commands and questions")
    click.echo("\n".join(lines))


def _list_commands(word: str) -> list[str]:
    """Return the commands and questions that speak of a word."""
    from htk.analyses import ANALYSES
    from htk.base.core.humanize import command_name
    from htk.faces.cli.commands import COMMANDS

    asked = {command_name(name): entry.question for name, entry in sorted(ANALYSES.items())}
    every = COMMANDS | asked
    return [f"htk {name:24} {text}" for name, text in every.items() if _is_about(word, name, text)]


def _list_columns(word: str) -> list[str]:
    """Return the columns of answers that speak of a word."""
    from htk.analyses import load_analyses
    from htk.base.core.humanize import command_name
    from htk.base.schema.columns import doc_of

    return [
        f"  {field.name:26} {doc_of(field)} (htk {command_name(name)})"
        for name, question in load_analyses()
        for field in question.returns
        if _is_about(word, field.name, doc_of(field))
    ]


def _is_about(word: str, name: str, text: str) -> bool:
    wanted = word.lower().replace("_", "-")
    return wanted in name.replace("_", "-") or wanted in text.lower()
