"""`htk plan-serving`: latency, throughput, memory and cost of a described inference server."""

import math
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import format_bytes, format_duration
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.faces.cli.commands.cells import NONE, Cell, cell_of, interval_of, print_rows
from htk.faces.cli.commands.common import writing_options
from htk.faces.cli.commands.plan_options import PlanCommand
from htk.faces.cli.commands.serving_options import (
    check_options,
    described_loads,
    described_objective,
    described_server,
    serving_options,
    whole_numbers,
)

if TYPE_CHECKING:
    from htk.answers.output.result import Result
    from htk.planning.serving.objectives import Objective
    from htk.planning.serving.server import Server
    from htk.planning.serving.steady import Answering, Load


@click.command("plan-serving", cls=PlanCommand)
@click.option(
    "--show",
    type=click.Choice(["map", "layouts", "parts"]),
    default="map",
    show_default=True,
    help="What of the plan: a map by length and requests, layouts of GPUs, parts of an iteration.",
)
@serving_options
@writing_options
@click.pass_context
def command(
    context: click.Context,
    /,
    show: str,
    form: str,
    output: str | None,
    limit: int,
    **arguments: Any,
) -> None:
    """What would a server of this model reach: latency, throughput, memory, cost?

    Predicted without a trace, for one replica: the time to the first token and per output token,
    by length of prompts and by requests at once; the requests that hold limits of latency, where
    --slo-ttft or --slo-tpot give some; with --show layouts, the best division among the GPUs of a
    node, prefill and decode together or apart. Training is planned by `htk plan`.
    """
    from htk.base.core.defer_imports import spare_pandas

    spare_pandas()
    check_options(context)
    answer = _build_answer(show, arguments)
    columns = _LAYOUTS if show == "layouts" else _MAP
    from htk.answers.output.render import print_table, write_result

    def _print_answer(file: Any) -> None:
        facts = answer.coverage
        file.write(f"{facts['model']}, on {facts['replica']}\n{facts['memory']}\n\n")
        if show == "parts":
            print_table(answer, limit=limit, file=file)
        else:
            print_rows(answer.analysis, answer.to_pylist(), columns, limit, file)
        for line in facts["goodput"]:
            file.write(f"\n{line}")
        file.write("\n" if facts["goodput"] else "")
        for heading in ("assumes", "checked", "unchecked"):
            if facts[heading]:
                file.write(f"{heading}: {'; '.join(facts[heading])}\n")

    write_result(answer, form, output, limit=limit, printer=_print_answer)


def _build_answer(show: str, arguments: Fields) -> "Result":
    loads = described_loads(arguments)
    objective = described_objective(arguments)
    counts = arguments["requests"]
    requests = whole_numbers(counts, "--requests") if counts else []
    from htk.planning.serving.description import check_memory

    server = described_server(arguments)
    if show == "layouts":
        return _build_layouts(server, loads, objective)
    check_memory(server)
    return _build_map(server, loads, requests, objective, show)


def _build_map(
    server: "Server",
    loads: "list[Load]",
    requests: list[int],
    objective: "Objective | None",
    show: str,
) -> "Result":
    from htk.answers.output.result import Result
    from htk.planning.serving import table
    from htk.planning.serving.description import describe_server

    cells = table.map_loads(server, loads, requests)
    facts = describe_server(server)
    if objective is not None:
        facts["goodput"] = [
            line for load in loads for line in _describe_goodput(server, load, objective)
        ]
    if show == "parts":
        return Result(table.PARTS_LABEL, table.parts_table(cells), facts)
    return Result(table.MAP_LABEL, table.map_table(cells, objective), facts)


def _build_layouts(
    server: "Server", loads: "list[Load]", objective: "Objective | None"
) -> "Result":
    import pyarrow as pa

    from htk.answers.output.result import Result
    from htk.planning.serving import table
    from htk.planning.serving.description import describe_server
    from htk.planning.serving.objectives import Objective

    tables = [table.layouts_table(server, load, objective or Objective()) for load in loads]
    if not any(rows.num_rows for rows in tables):
        raise UsageError(
            f"no layout of up to {server.gpus_per_node} {server.gpu.device_name} holds these limits"
        )
    facts = describe_server(server) | {
        "memory": "each layout within its limits at the largest rate"
    }
    return Result(table.LAYOUTS_LABEL, pa.concat_tables(tables), facts)


def _describe_goodput(server: "Server", load: "Load", objective: "Objective") -> list[str]:
    """Return the largest batch within the limits: expected, and if times are as long as nineteen of
    twenty are not."""
    from htk.planning.serving.objectives import most_within
    from htk.planning.serving.steady import SteadyServer
    from htk.planning.serving.table import tighten_objective

    steady = SteadyServer(server, load)
    words = " and ".join(
        f"{name} within {format_duration(limit)}"
        for name, limit in (("first tokens", objective.ttft_ns), ("tokens", objective.tpot_ns))
        if math.isfinite(limit)
    )
    expected = most_within(steady, objective)
    sure = most_within(steady, tighten_objective(server, objective))
    return [
        f"{words}, prompts of {load.prompt:,}: {_describe_rate(server, expected)};"
        f" in nineteen of twenty cases {_describe_rate(server, sure)}"
    ]


def _describe_rate(server: "Server", state: "Answering | None") -> str:
    if state is None:
        return "not even 1 request"
    per_gpu = state.tokens_per_s / server.gpus
    return (
        f"{state.requests:,.0f} requests at once, {state.requests_per_s:,.2f} a second,"
        f" {per_gpu:,.0f} tokens/s/GPU"
    )


def _build_yes_cell(name: str) -> Cell:
    return lambda row: NONE if row[name] is None else "yes" if row[name] else "no"


_MAP: dict[str, Cell] = {
    "prompt": cell_of("prompt", "{:,}".format),
    "requests": cell_of("requests", "{:,}".format),
    "time/token": cell_of("tpot_ns", format_duration),
    "90 % interval": interval_of("tpot_ns"),
    "first token": cell_of("ttft_ns", format_duration),
    "its 90 % interval": interval_of("ttft_ns"),
    "first, p90": cell_of("ttft_ns_p90", format_duration),
    "tokens/s": cell_of("tokens_per_s", "{:,.0f}".format),
    "tokens/s/GPU": cell_of("tokens_per_s_per_gpu", "{:,.0f}".format),
    "KV cache": cell_of("kv_cache_bytes", format_bytes),
    "fits": _build_yes_cell("fits"),
    "in limits": _build_yes_cell("holds"),
    "per M tokens": cell_of("cost_per_million_tokens", "{:.3g}".format),
}
_LAYOUTS: dict[str, Cell] = {
    "layout": lambda row: str(row["layout"]),
    "prompt": cell_of("prompt", "{:,}".format),
    "GPUs": cell_of("gpu_count", "{:,}".format),
    "requests/s": cell_of("requests_per_s", "{:,.2f}".format),
    "19 of 20": cell_of("requests_per_s_lo90", "{:,.2f}".format),
    "requests/s/GPU": cell_of("requests_per_s_per_gpu", "{:,.3f}".format),
    "tokens/s/GPU": cell_of("tokens_per_s_per_gpu", "{:,.0f}".format),
    "requests": cell_of("requests", "{:,}".format),
    "time/token": cell_of("tpot_ns", format_duration),
    "first, p90": cell_of("ttft_ns_p90", format_duration),
    "KV transfer": cell_of("kv_transfer_ns", format_duration),
    "per M tokens": cell_of("cost_per_million_tokens", "{:.3g}".format),
}
