"""`htk cache`: the parsed traces on disk, which make the next question fast."""

import json
from dataclasses import asdict
from datetime import UTC, datetime

import click

from htk.base.core.humanize import format_bytes, make_visible
from htk.base.errors import GateFailed, TraceError
from htk.faces.cli.commands.common import store_key_option
from htk.faces.cli.commands.options import list_format_option


@click.group("cache")
def command() -> None:
    """List, check or clear the cached traces, or estimate their size."""


@command.command("ls")
@list_format_option
def ls(form: str) -> None:
    """List what is cached, and where."""
    from htk.base.io.store import Store

    store = Store()
    entries = store.list()
    if form == "json":
        rows = [
            {
                "source": e.source,
                "size_bytes": e.size_bytes,
                "created": e.created,
                "last_used": e.last_used,
            }
            for e in entries
        ]
        click.echo(json.dumps(rows))
        return
    for entry in entries:
        used = datetime.fromtimestamp(entry.last_used, UTC).strftime("%Y-%m-%d %H:%M")
        size = format_bytes(entry.size_bytes)
        click.echo(make_visible(f"{size:>10}  {used}  {entry.source}"))
    total = format_bytes(sum(e.size_bytes for e in entries))
    click.echo(make_visible(f"{len(entries)} traces, {total}, in {store.root}"))


@command.command("need")
@click.argument("paths", nargs=-1, required=True)
@list_format_option
@click.pass_context
def need(ctx: click.Context, paths: tuple[str, ...], form: str) -> None:
    """Estimate how much of the cache files would take, before parsing them.

    Exit code 4 if they do not fit: each question would then parse the files again. HTK_CACHE_LIMIT
    sets the limit, in bytes.
    """
    from htk.faces.cli.commands.common import split_inputs
    from htk.traces.trace.cache_need import cache_need

    needed = cache_need(split_inputs(paths))
    if form == "json":
        facts = asdict(needed) | {"total_bytes": needed.total_bytes, "fits": needed.fits}
        click.echo(json.dumps(facts))
    else:
        click.echo(make_visible(needed.text))
    if not needed.fits:
        ctx.exit(GateFailed.exit_code)


@command.command("verify")
@click.argument("stores", nargs=-1, metavar="[STORE]…")
@store_key_option
@click.pass_context
def verify(ctx: click.Context, stores: tuple[str, ...]) -> None:
    """Compare all cached tables with their checksums, and the entries of stores with their seals.

    Damaged tables are removed and parsed again when needed; exit code 4 if there were any, or if an
    entry of a store that htk map made was altered.
    """
    from htk.base.io.shared_store import SharedStore
    from htk.base.io.store import Store

    intact, damaged = Store().verify()
    for source in damaged:
        click.echo(make_visible(f"damaged, removed: {source}"))
    click.echo(f"{intact} parsed traces are as they were written, {len(damaged)} were not")
    for address in stores:
        shared = SharedStore.at(address)
        if shared is None:
            raise TraceError(f"{address}: no store of htk map")
        seals = shared.seals(Store()).values()
        altered = [why for why in seals if why]
        for why in altered:
            click.echo(make_visible(why))
        sealed = len(seals) - len(altered)
        click.echo(
            make_visible(f"{address}: {sealed} entries are as sealed, {len(altered)} are not")
        )
        damaged = [*damaged, *altered]
    if damaged:
        ctx.exit(GateFailed.exit_code)


@command.command("clear")
def clear() -> None:
    """Delete all cached traces; the trace files are not touched."""
    from htk.base.io.store import Store
    from htk.faces.cli import kept_answers

    kept_answers.clear_kept_answers()
    removed = Store().clear()
    click.echo(f"{removed} parsed traces removed", err=True)
