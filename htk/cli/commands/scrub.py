"""`htk scrub`: a trace that can leave the company."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from htk.cli.commands.common import opening_options
from htk.core.humanize import format_bytes, pluralize


@click.command("scrub")
@opening_options
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False), help="Folder.")
def command(paths: tuple[str, ...], output: str, **given: Any) -> None:
    """Write traces without names, paths, stacks, hosts and shapes of yours; times stay.

    Names that PyTorch, CUDA and NCCL give stay too, others become op_1, gemm_kernel_2, … the same
    on all ranks. A kernel's new name tells its family. Sizes in shapes become other numbers, so
    FLOPs and rooflines of the copy mean nothing. Byte counts, grids, groups of ranks, GPU models
    and the time of the recording stay: look at the copy before it leaves.
    """
    from htk.cli.commands.common import named, opened
    from htk.export import scrub
    from htk.export.rewrite import kineto_parts, sources_of, write

    trace = opened(paths, given)
    sources = sources_of(named(paths))
    parts = kineto_parts(trace.files)
    operators = trace.tables["cpu_ops"]["name"].unique().to_pylist()
    known = frozenset(n.removeprefix("aten::") for n in operators if n.startswith("aten::"))
    names = scrub.Names(known)
    for place, part in enumerate(parts):
        who = f"file{place}" if part.rank is None else f"rank{part.rank}"
        again = f".{part.cycle}" if part.cycle else ""
        written = write(
            sources[part.file],
            Path(output) / f"{who}{again}.pt.trace.json.gz",
            partial(scrub.entry, names),
            lambda _, text: scrub.event(names, text),
        )
        made, stored = written.copied, format_bytes(written.stored_bytes)
        click.echo(f"{written.file}: {made.kept:,} events, {stored}", err=True)
    left_out = len(trace.files) - len(parts)
    if left_out:
        files = pluralize(left_out, "file")
        click.echo(f"left out, no trace of the PyTorch profiler: {files}", err=True)
