"""`htk diff-tree`: the call trees of two recordings, node by node."""

from typing import Any

import click

from htk.faces.cli.commands.common import trace_options
from htk.faces.cli.commands.diff import two_recordings


@click.command("diff-tree")
@click.option("--n", default=20, show_default=True, help="Rows to show; 0: all.")
@click.option("--base-ranks", help="Ranks of the base recording, e.g. 0,2..5.")
@click.option("--new-ranks", help="Ranks of the new recording.")
@trace_options
def command(
    paths: tuple[str, ...],
    n: int,
    base_ranks: str | None,
    new_ranks: str | None,
    form: str,
    output: str | None,
    limit: int,
    **arguments: Any,
) -> None:
    """Where do the call trees of two recordings differ?

    PATHs are the base and the new recording, e.g. eager and compiled, or NVIDIA and AMD; one path
    with --base-ranks and --new-ranks compares ranks of it. Of each, the complete step of median
    length of its first rank is compared (--ranks and --steps choose others), as a tree of modules
    and operators, matched by name and order. A row is a place that differs, or that both trees
    have and that launches GPU work: the rows add up to the GPU time that the step launched.
    """
    from htk.answers.output.render import write_result
    from htk.faces.cli.commands.common import open_narrowed
    from htk.verdicts.comparison.differences import tree_differences

    ranks_differ = base_ranks is not None and new_ranks is not None
    base_path, new_path = two_recordings("diff-tree", paths, ranks_differ)
    base = open_narrowed((base_path,), arguments | {"ranks": base_ranks or arguments["ranks"]})
    new = open_narrowed((new_path,), arguments | {"ranks": new_ranks or arguments["ranks"]})
    write_result(tree_differences(base, new, n), form, output, limit=limit)
