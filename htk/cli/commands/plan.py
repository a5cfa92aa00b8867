"""`htk plan`: what a described model needs on a described cluster, without any trace."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from htk.cli.commands.common import gpus_option, writing_options
from htk.cli.commands.model_options import SIZES, size_options
from htk.core.humanize import format_bytes, format_duration

if TYPE_CHECKING:
    from htk.output.result import Result


@click.command("plan")
@click.option("--model", required=True, help="llama2-7b, llama2-70b, gpt3-175b, … or any name.")
@size_options
@click.option("--gpu", required=True, help="a100-80gb, h100, … of the catalogue.")
@click.option("--nodes", default=1, show_default=True, help="Nodes of the cluster.")
@click.option("--gpus-per-node", default=8, show_default=True, help="GPUs of a node.")
@click.option("--micro-batch", default=1, show_default=True, help="Sequences of a GPU at once.")
@click.option("--seq", default=2048, show_default=True, help="Tokens of a sequence.")
@click.option("--accumulation", default=1, show_default=True, help="Micro-batches of a step.")
@click.option("--tensor-parallel", default=1, show_default=True, help="GPUs that share each layer.")
@click.option(
    "--checkpointing",
    type=click.Choice(["none", "selective", "full"]),
    is_flag=False,
    flag_value="full",
    default="none",
    show_default=True,
    help="Activations that are computed again: full alone, or selective, by operator.",
)
@click.option("--price", type=float, help="Of a GPU-hour, for the cost of a million tokens.")
@click.option("--tokens", type=float, help="Of the whole run, such as 2e12: its days and cost.")
@gpus_option
@writing_options
def command(
    model: str, gpu: str, form: str, output: str | None, limit: int, **arguments: Any
) -> None:
    """What would training this model on this cluster take: time, memory, cost?

    By sharding strategy, from models alone; 16 bit with Adam in single precision. `least GPUs` is
    how many of them it takes at least. The band is as wide as such models miss measured jobs.
    """
    from htk.core.defer_imports import spare_pandas
    from htk.models.decoder import decoder
    from htk.models.hardware import gpu as of_catalogue
    from htk.output.render import write
    from htk.output.result import Result
    from htk.whatif.plan import LABEL, MFU, PlannedJob, plan

    spare_pandas()
    sizes = {name: arguments.pop(name) for name in SIZES}
    chosen = decoder(model, **{name: own for name, own in sizes.items() if own is not None})
    job = PlannedJob(chosen, of_catalogue(gpu), **arguments)
    facts = {
        "model": f"{chosen.name}, {chosen.parameters / 1e9:.2f} billion parameters",
        "cluster": f"{job.nodes} × {job.gpus_per_node} {job.gpu.device_name}",
        "mfu": MFU,
    }
    answer = Result(LABEL, plan(job), facts)
    if form != "table":
        write(answer, form, output, limit=limit)
    elif output is None:
        _print(answer, limit, sys.stdout)
    else:
        text = io.StringIO()
        _print(answer, limit, text)
        Path(output).write_text(text.getvalue(), encoding="utf-8")


def _print(answer: "Result", limit: int, target: Any) -> None:
    """For people: few columns, in units that read well."""
    import pyarrow as pa

    from htk.output.render import print_table
    from htk.output.result import Result

    facts, rows = answer.coverage, answer.to_pylist()
    target.write(f"{facts['model']}, on {facts['cluster']}\n\n")
    columns = {"strategy": [r["strategy"] for r in rows]}
    for heading, cell in _COLUMNS.items():
        cells = [cell(row) for row in rows]
        wide = max(map(len, [heading, *cells]))
        if any(text != _NONE for text in cells):
            columns[heading] = [text.rjust(wide) for text in cells]
    print_table(Result(answer.analysis, pa.table(columns), {}), limit=limit, file=target)
    target.write(f"\n{facts['mfu']}\n")


_NONE = "–"


def _or(name: str, how: Callable[[Any], str]) -> Callable[[dict[str, Any]], str]:
    return lambda row: _NONE if row[name] is None else how(row[name])


def _band(percent: int) -> Callable[[dict[str, Any]], str]:
    low, high = f"step_time_ns_lo{percent}", f"step_time_ns_hi{percent}"
    return lambda row: f"{format_duration(row[low])} … {format_duration(row[high])}"


_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "step time": _or("step_time_ns", format_duration),
    "90 % band": _band(90),
    "tokens/s": _or("tokens_per_s", "{:,.0f}".format),
    "MFU %": _or("mfu_pct", "{:.1f}".format),
    "peak memory": _or("peak_memory_bytes", format_bytes),
    "P(OOM) %": _or("p_oom", lambda share: f"{100 * share:.0f}"),
    "least GPUs": _or("least_gpus", "{:,}".format),
    "with checkpointing": _or("least_gpus_checkpointed", "{:,}".format),
    "per M tokens": _or("cost_per_million_tokens", "{:.3g}".format),
    "run days": _or("run_days", "{:,.1f}".format),
    "run cost": _or("run_cost", "{:,.0f}".format),
    "compute": _or("compute_ns", format_duration),
    "communication": _or("comm_ns", format_duration),
    "sent": _or("wire_bytes", format_bytes),
    "parameters": _or("parameter_bytes", format_bytes),
    "gradients": _or("gradient_bytes", format_bytes),
    "optimizer": _or("optimizer_bytes", format_bytes),
    "activations": _or("activation_bytes", format_bytes),
    "tokens/s/GPU": _or("tokens_per_s_per_gpu", "{:,.0f}".format),
}
