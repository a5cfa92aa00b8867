"""`htk convert`: the tables as a dataset that any tool reads."""

from pathlib import Path
from typing import Any

import click

from htk.commands.common import opening_options
from htk.errors import UsageError

FORMS = ("parquet", "arrow", "csv")


@click.command("convert")
@opening_options
@click.option("--to", "form", type=click.Choice(FORMS), default="parquet", show_default=True)
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False), help="Folder.")
@click.option("--table", "tables", multiple=True, help="Only this table; may be given again.")
@click.option("--links", is_flag=True, help="Also what htk derived: links, windows, matches.")
def command(
    paths: tuple[str, ...],
    form: str,
    output: str,
    tables: tuple[str, ...],
    links: bool,
    **given: Any,
) -> None:
    """Write the tables as Parquet, Arrow or CSV: OUTPUT/TABLE/rank=R/part-0.FORM."""
    from htk.commands.common import opened
    from htk.dataset import write_dataset
    from htk.schema import DERIVED, TABLES

    known = {**TABLES, **DERIVED}
    for name in tables:
        if name not in known:
            raise UsageError(f"no table {name!r}; there are {', '.join(known)}")
    trace = opened(paths, given)
    names = tables or (tuple(known) if links else tuple(TABLES))
    for name, rows in write_dataset(trace, names, Path(output), form).items():
        click.echo(f"{rows:>12,}  {name}", err=True)
