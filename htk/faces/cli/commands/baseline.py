"""`htk baseline`: what a recording's steps cost, as a file to commit and compare with later."""

from typing import Any

import click

from htk.base.core.whole_file import write_whole
from htk.base.errors import MissingTable
from htk.faces.cli.commands.common import opening_options, print_line
from htk.faces.cli.commands.options import ranks_option, steps_option


@click.command("baseline")
@opening_options
@ranks_option
@steps_option
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False),
    help="File to write to.",
)
def command(paths: tuple[str, ...], output: str, **arguments: Any) -> None:
    """Write what the steps of a recording cost: a small file, the BASE of a later `htk diff`."""
    from htk.base.core.humanize import pluralize_count
    from htk.faces.cli.commands.common import open_narrowed
    from htk.traces.compare.baseline import LEAST_STEPS, build_cost_baseline, to_json

    costs = build_cost_baseline(open_narrowed(paths, arguments).tables)
    if not costs.steps:
        raise MissingTable(
            f"{paths[0]}: no complete step to make a baseline of; call prof.step() in the loop"
        )
    text = to_json(costs)
    write_whole(output, text)
    few = "" if costs.steps >= LEAST_STEPS else f"; a gate needs {LEAST_STEPS} steps at least"
    print_line(
        f"{output}: {pluralize_count(costs.steps, 'step')}, "
        f"{pluralize_count(len(costs.ranks), 'rank')}, {len(text) // 1024} KiB{few}"
    )
