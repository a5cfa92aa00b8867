"""`htk prices`: one recording on every GPU of the catalogue, by cost and energy per token."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import format_duration, format_number
from htk.faces.cli.commands.cells import Cell, cell_of, interval_of, print_rows
from htk.faces.cli.commands.common import open_narrowed, trace_options

if TYPE_CHECKING:
    from htk.answers.output.result import Result


@click.command("prices")
@click.option(
    "--price", "prices", multiple=True, metavar="GPU=N", help="Price of a GPU-hour: h100=2.2..3."
)
@click.option(
    "--prices", "price_file", type=click.Path(dir_okay=False), help="TOML file of prices."
)
@click.option(
    "--watts", multiple=True, metavar="GPU=N", help="Power of a GPU; by default its limit."
)
@click.option("--gpu", "names", multiple=True, help="Only these GPUs of the catalogue.")
@click.option(
    "--reference", metavar="GPU", help="GPU to break even with; by default the recorded one."
)
@click.option(
    "--power-cap",
    type=float,
    metavar="SHARE",
    help="Share of each GPU's power limit to run at: 0.7.",
)
@trace_options
def command(
    paths: tuple[str, ...],
    prices: tuple[str, ...],
    price_file: str | None,
    watts: tuple[str, ...],
    names: tuple[str, ...],
    reference: str | None,
    power_cap: float | None,
    form: str,
    output: str | None,
    limit: int,
    **arguments: Any,
) -> None:
    """Which GPU runs this at the lowest cost, and what may it cost?

    The recorded step on every GPU of the catalogue, with its interval; cost and energy per token at
    the prices and powers that are given, and the price at which each breaks even with the
    reference (the recorded GPU, where it has a price). htk has no prices of its own.
    """
    from htk.answers.output.render import write_result
    from htk.verdicts.economics.price_frontier import price_frontier
    from htk.verdicts.economics.price_list import price_list
    from htk.whatif.api import WhatIf

    path = None if price_file is None else Path(price_file)
    listed = price_list(path, prices, watts)
    answer = price_frontier(
        WhatIf(open_narrowed(paths, arguments)), listed,
        names=names, reference=reference, power_cap=power_cap,
    )  # fmt: skip
    write_result(
        answer, form, output, limit=limit, printer=lambda file: _print_prices(answer, limit, file)
    )


def _print_prices(answer: "Result", limit: int, target: Any) -> None:
    facts = answer.coverage
    print_rows(answer.analysis, answer.to_pylist(), _COLUMNS, limit, target)
    lines = [f"recorded on {facts['recorded_gpu']}; other GPUs are predicted with low confidence"]
    if facts["reference"]:
        lines.append(
            f"break-even: the price at which a token costs what it costs on {facts['reference']}"
        )
    if facts["power_cap"]:
        lines.append(f"all at {100 * facts['power_cap']:.0f} % of their power limit")
    if facts["currency"]:
        lines.append(f"prices in {facts['currency']}")
    target.write("\n" + "\n".join(lines) + "\n")


_COLUMNS: dict[str, Cell] = {
    "GPU": cell_of("gpu", str),
    "step time": cell_of("step_time_ns", format_duration),
    "90 %": interval_of("step_time_ns"),
    "price": cell_of("price_per_hour", format_number),
    "per M tokens": cell_of("cost_per_million_tokens", "{:.3g}".format),
    "90 % of it": interval_of("cost_per_million_tokens", "{:.3g}".format),
    "P(cheapest) %": cell_of("p_cheapest", lambda share: f"{100 * share:.0f}"),
    "break-even": cell_of("break_even_price", "{:.3g}".format),
    "its 90 %": interval_of("break_even_price", "{:.3g}".format),
    "J/token": cell_of("energy_j_per_token", "{:.3g}".format),
    "P(OOM) %": cell_of("p_oom", lambda share: f"{100 * share:.0f}"),
}
