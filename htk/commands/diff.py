"""`htk diff`: two recordings, or two ranks, side by side."""

from typing import Any

import click

from htk.commands.common import trace_options


@click.command("diff")
@click.option(
    "--by",
    type=click.Choice(("all", "time", "phase", "kernel", "op", "module")),
    default="all",
    show_default=True,
    help="What to compare.",
)
@click.option("--n", default=10, show_default=True, help="Rows of each kind; 0: all.")
@click.option("--base-ranks", help="Ranks of the base recording: 0,2..5.")
@click.option("--new-ranks", help="Ranks of the new recording.")
@trace_options
def command(
    paths: tuple[str, ...],
    by: str,
    n: int,
    base_ranks: str | None,
    new_ranks: str | None,
    form: str,
    output: str | None,
    limit: int,
    **given: Any,
) -> None:
    """What changed between two recordings, or two ranks?

    PATHs are the base and the new recording; one path with --base-ranks and --new-ranks compares
    ranks of it. Times are of a step, as means over ranks and steps, and a change counts where it
    exceeds the noise between steps.
    """
    from htk.analysis import coverage_of
    from htk.commands.common import opened
    from htk.compare import EACH, compare, diff
    from htk.coverage import coverage
    from htk.render import write
    from htk.result import Result

    base_path, new_path = _two(paths, base_ranks is not None and new_ranks is not None)
    base = opened((base_path,), given | {"ranks": base_ranks or given["ranks"]})
    new = opened((new_path,), given | {"ranks": new_ranks or given["ranks"]})
    kinds: Any = EACH if by == "all" else tuple(kind for kind in EACH if kind == by)
    table = compare(base.tables, new.tables, kinds, n)
    facts = coverage(new, ("kernels",)) | dict(coverage_of(table))
    write(Result(diff, table, facts), form, output, limit=limit)


def _two(paths: tuple[str, ...], ranks_differ: bool) -> tuple[str, str]:
    """The base and the new recording."""
    if len(paths) == 2:
        return paths[0], paths[1]
    if len(paths) == 1 and ranks_differ:
        return paths[0], paths[0]
    raise click.UsageError(
        "diff compares two recordings: htk diff BASE NEW; or two ranks of one: "
        "htk diff PATH --base-ranks 0 --new-ranks 7"
    )
