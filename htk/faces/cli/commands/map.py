"""`htk map`: parse files into a store that many machines share."""

from typing import Any

import click

from htk.base.errors import TraceError
from htk.faces.cli.commands.common import storing_options, working_options

_MOST_NAMED = 20  # of files that are no traces: a folder may hold thousands


@click.command("map")
@storing_options
@working_options
@click.option("--shard", default="1/1", help="Share of the files to parse, e.g. 3/32.")
@click.option("--store", required=True, help="Folder or URL to keep tables in.")
@click.pass_context
def command(
    ctx: click.Context, /, paths: tuple[str, ...], shard: str, store: str, **arguments: Any
) -> None:
    """Parse a share of the files into a store; `htk summary STORE` then reads it.

    Shares may be run again or at the same time: entries are named by the content of the files. A
    store is opened wherever a PATH is expected, by the version of htk that wrote it.
    """
    from htk.faces.cli.commands.common import print_line, split_inputs
    from htk.traces.trace.mapping import Shard, map_files
    from htk.traces.trace.opening import OpenOptions

    mapped = map_files(split_inputs(paths), store, Shard.parsed(shard), OpenOptions(**arguments))
    click.echo(
        f"{mapped.stored} files stored, {mapped.there_before} were there before, "
        f"{len(mapped.unread)} are no traces, {len(mapped.failed)} failed"
    )
    for name in mapped.unread[:_MOST_NAMED]:
        print_line(f"htk: no trace that htk knows: {name}")
    for _, why in mapped.failed:
        print_line(f"htk: {why}")
    if mapped.failed:
        ctx.exit(TraceError.exit_code)
