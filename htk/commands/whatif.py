"""`htk whatif`: what would a step take if this were changed?"""

from typing import Any

import click

from htk.commands.common import trace_options

# Kept here in words, so that help prints without importing the edits; a test compares them.
EDIT_HELP = {
    "replace": "Kernels or operators by pattern: PATTERN=2x faster, or PATTERN=gone.",
    "batch": "Micro-batch: 2x the recorded one, or a number where shapes tell it.",
    "sharding": "full_shard, shard_grad_op, hybrid_shard[:ranks], ddp.",
    "world": "Ranks of the job, each with the work that it has now.",
    "network": "Collectives' rates by a factor: bandwidth=2x,latency=0.5x.",
    "fix_rank": "This rank (or all) computes as fast as the median rank.",
    "no_skew": "All ranks arrive at collectives together: on.",
    "overlap": "Communication perfectly hidden, or serial: perfect, serial, today.",
    "remove_syncs": "No synchronising call or blocking copy in the step: on.",
    "host": "The CPU is so many times faster: 2x.",
    "graphs": "No launch overhead, as in CUDA graphs: on.",
}


def _edit_options(function: Any) -> Any:
    for name, words in reversed(EDIT_HELP.items()):
        flag = "--" + name.replace("_", "-")
        function = click.option(flag, f"edit_{name}", metavar="VALUE", help=words)(function)
    return function


@click.command("whatif")
@_edit_options
@click.option("--sweep", "sweeps", multiple=True, metavar="EDIT=A,B,…", help="Every value.")
@click.option("--recommend", is_flag=True, help="What can be done, by gain over doubt.")
@click.option("--measured-step-ms", type=float, help="Step time without the profiler.")
@click.option("--price", type=float, help="Of a GPU-hour, for the cost of a million tokens.")
@trace_options
def command(
    paths: tuple[str, ...],
    sweeps: tuple[str, ...],
    recommend: bool,
    measured_step_ms: float | None,
    price: float | None,
    form: str,
    output: str | None,
    limit: int,
    **given: Any,
) -> None:
    """What would a step take if this were changed?

    The step is replayed untouched first; what does not replay is refused. Without any edit: what
    could be won at most, each cause alone, most first.
    """
    from htk.commands.common import opened
    from htk.whatif_api import WhatIf
    from htk.whatif_text import show

    edits = [(name, given.pop(f"edit_{name}")) for name in EDIT_HELP]
    fixed = tuple((name, str(value)) for name, value in edits if value is not None)
    over = tuple(_sweep(text) for text in sweeps)
    anchor = None if measured_step_ms is None else round(measured_step_ms * 1e6)
    asked = WhatIf(opened(paths, given), fixed, over, anchor, price, recommend)
    show(asked.run(), form, output, limit=limit)


def _sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """`batch=4,8,16`."""
    name, mark, values = text.partition("=")
    name = name.replace("-", "_")
    if not mark or name not in EDIT_HELP or not values:
        raise click.UsageError(f"--sweep {text!r}: EDIT=A,B,… with one of {', '.join(EDIT_HELP)}")
    if values == "all" and name == "sharding":
        return name, ("full_shard", "shard_grad_op", "hybrid_shard", "ddp")
    return name, tuple(values.split(","))
