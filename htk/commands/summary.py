"""`htk summary`: a first verdict."""

from typing import Any

import click

from htk.commands.common import trace_options


@click.command("summary")
@trace_options
def command(
    paths: tuple[str, ...], form: str, output: str | None, limit: int, **given: Any
) -> None:
    """A first verdict: where did the time go?"""
    from htk import api
    from htk.commands.common import opened
    from htk.render import write

    trace = opened(paths, given)
    for name in ("time_breakdown", "kernel_top"):
        write(api.run(trace, name), form, output, limit=limit)
