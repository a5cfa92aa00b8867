"""`htk scrub`: a trace that can leave the company."""

from pathlib import Path
from typing import Any

import click

from htk.base.core.humanize import format_bytes, pluralize_count
from htk.faces.cli.commands.common import opening_options, print_line
from htk.faces.cli.commands.options import folder_option


@click.command("scrub")
@opening_options
@folder_option
@click.option("--keep", metavar="PATTERN", help="Names to keep, e.g. 'mylib::.*'.")
def command(paths: tuple[str, ...], output: str, keep: str | None, **arguments: Any) -> None:
    """Write traces without names, paths, stacks, hosts and shapes of yours; times stay.

    Names that PyTorch, CUDA and NCCL give stay if they are on a list, others become op_1,
    gemm_kernel_2, … the same on all ranks. A kernel's new name tells its family. Shapes are left
    out, and with them FLOPs, rooflines and sizes that only shapes tell. What was written is then
    searched for every text that was replaced, and removed if one is found. Times, byte counts,
    grids, groups of ranks, process numbers and GPU models stay. What Nsight, rocprof, JAX and
    others recorded is written as files of PyTorch's profiler.
    """
    from htk.answers.export.retold import as_kineto
    from htk.answers.export.rewrite import refuse_filled
    from htk.answers.export.scrub_files import scrub_files
    from htk.faces.cli.commands.common import open_narrowed, split_inputs

    refuse_filled(Path(output))
    with as_kineto(open_narrowed(paths, arguments), split_inputs(paths)) as (trace, sources):
        scrubbed = scrub_files(trace, sources, Path(output), keep)
    for written in scrubbed.files:
        stored = format_bytes(written.stored_bytes)
        print_line(f"{written.file}: {written.copied.kept:,} events, {stored}")
    removed = pluralize_count(scrubbed.removed, "text")
    print_line(f"{removed} replaced; none of them is in what was written")
    if keep is not None:
        few = ", ".join(scrubbed.kept[:10]) + (", …" if len(scrubbed.kept) > 10 else "")
        kept = pluralize_count(len(scrubbed.kept), "text")
        print_line(f"--keep keeps {kept}: {few or 'none'}")
