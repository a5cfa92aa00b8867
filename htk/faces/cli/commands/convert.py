"""`htk convert`: the tables as a dataset that any tool reads, or traces for other tools."""

from pathlib import Path
from typing import Any

import click

from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.faces.cli.commands.common import is_raw, opening_options, print_line, raw_option
from htk.faces.cli.commands.options import folder_option

TABLES_AS = ("parquet", "arrow", "csv")
STACKS = ("folded", "speedscope")
FORMS = (*TABLES_AS, "chrome", "hta", "perfetto", *STACKS, "operations")


@click.command("convert")
@opening_options
@click.option(
    "--format",
    "--to",  # as people say it: convert --to chrome
    "form",
    type=click.Choice(FORMS),
    metavar="FORMAT",
    default="parquet",
    show_default=True,
    help=f"Output format: {', '.join(FORMS)}.",
)
@folder_option
@click.option("--table", "tables", multiple=True, help="Only this table; may be repeated.")
@raw_option()
@click.option("--links", is_flag=True, help="Include derived tables: links, windows, matches.")
def command(
    paths: tuple[str, ...],
    form: str,
    output: str,
    tables: tuple[str, ...],
    links: bool,
    **arguments: Any,
) -> None:
    """Write the tables, or traces for other tools.

    parquet, arrow, csv: OUTPUT/TABLE/rank=R/part-0.FORM. chrome: OUTPUT/merged.json.gz with all
    ranks on one clock, counters and the critical path, for Perfetto. hta: OUTPUT/rank-R.json.gz,
    as Holistic Trace Analysis finds the ranks. perfetto: OUTPUT/trace.pftrace, all ranks as
    Perfetto's protobuf, of any format read. folded, speedscope: time by call stack for flame
    graphs: OUTPUT/cpu.folded and gpu.folded, or OUTPUT/stacks.speedscope.json. operations:
    OUTPUT/operations.parquet, a row for each forward, backward, message, reduction and optimizer
    of a job (data, tensor or pipeline parallel), for questions on stragglers of whole jobs.
    """
    raw = is_raw(click.get_current_context())
    if raw and form != "csv":
        raise UsageError(f"--raw is for --format csv; {form} holds texts as they are")
    if form == "operations":
        _write_operations(paths, Path(output), arguments)
        return
    if form == "perfetto":
        _write_perfetto(paths, Path(output), arguments)
        return
    if form in STACKS:
        _write_stacks(paths, form, Path(output), arguments)
        return
    if form not in TABLES_AS:
        _write_traces(paths, form, Path(output), arguments)
        return
    from htk.answers.export.dataset import write_dataset
    from htk.base.schema import DERIVED, TABLES
    from htk.faces.cli.commands.common import open_narrowed

    vocabulary = {**TABLES, **DERIVED}
    for name in tables:
        if name not in vocabulary:
            raise UsageError(f"no table {name!r}; there are {', '.join(vocabulary)}")
    trace = open_narrowed(paths, arguments)
    names = tables or (tuple(vocabulary) if links else tuple(TABLES))
    for name, rows in write_dataset(trace, names, Path(output), form, raw=raw).items():
        print_line(f"{rows:>12,}  {name}")


def _write_perfetto(paths: tuple[str, ...], folder: Path, arguments: Fields) -> None:
    from htk.answers.export.perfetto_trace import write_perfetto
    from htk.faces.cli.commands.common import open_narrowed

    file, slices = write_perfetto(open_narrowed(paths, arguments), folder)
    print_line(f"{slices:>12,} slices  {file}")


def _write_operations(paths: tuple[str, ...], folder: Path, arguments: Fields) -> None:
    from htk.answers.export.operation_rows import write_operations
    from htk.faces.cli.commands.common import open_narrowed

    path, rows = write_operations(open_narrowed(paths, arguments), folder)
    print_line(f"{rows:>12,}  {path}")


def _write_stacks(paths: tuple[str, ...], form: str, folder: Path, arguments: Fields) -> None:
    from htk.answers.export.stacks import write_folded, write_speedscope
    from htk.faces.cli.commands.common import open_narrowed

    write = write_folded if form == "folded" else write_speedscope
    for file, stacks in write(open_narrowed(paths, arguments), folder):
        print_line(f"{stacks:>12,} stacks  {file}")


def _write_traces(paths: tuple[str, ...], form: str, folder: Path, arguments: Fields) -> None:
    from htk.answers.export.merged import write_merged
    from htk.answers.export.retold import as_kineto
    from htk.answers.export.rewrite import write_for_hta
    from htk.faces.cli.commands.common import open_narrowed, split_inputs

    with as_kineto(open_narrowed(paths, arguments), split_inputs(paths)) as (trace, sources):
        if form == "hta":
            for written in write_for_hta(trace, sources, folder):
                print_line(f"{written.copied.kept:>12,} events  {written.file}")
            return
        merged = write_merged(trace, sources, folder)
    clock = "clocks aligned" if merged.aligned else "clocks as recorded"
    print_line(f"{merged.events:>12,} events  {merged.file}, {clock}")
    for why in merged.without:
        print_line(f"{'':>12}  without {why}")
