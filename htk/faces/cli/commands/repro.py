"""`htk repro`: a script that runs one recorded operator again, alone."""

from typing import Any

import click

from htk.faces.cli.commands.common import narrowing_options, opening_options, print_line, write_text


@click.command("repro")
@opening_options
@narrowing_options
@click.option("--op", required=True, help="Operator, or compiled kernel, e.g. aten::mm.")
@click.option(
    "--nth",
    default="slowest",
    show_default=True,
    help="Call of it: slowest, median, fastest, or a number, the slowest is 1.",
)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="File to write to, e.g. bench.py."
)
def command(
    paths: tuple[str, ...], op: str, nth: str, output: str | None, **arguments: Any
) -> None:
    """Write a script that runs one recorded operator or compiled kernel again, alone.

    It makes the inputs with the recorded shapes, strides and types, and prints its time beside the
    recorded one, the roofline's and the best that was measured at that size. It needs PyTorch, and
    runs on the GPU where there is one. Kernels of Triton and Inductor run from the file that the
    recording names, where it is still there.
    """
    from htk.answers.repro import script_of
    from htk.faces.cli.commands.common import open_narrowed

    write_text(script_of(open_narrowed(paths, arguments), op, nth), output)
    if output is not None:
        print_line(f"{output}: python {output}")
