"""`htk plan`: what a described model needs on a described cluster, without any trace."""

from typing import Any

import click

from htk.commands.common import writing_options
from htk.commands.model_options import SIZES, size_options


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
@click.option("--checkpointing", is_flag=True, help="Full activation checkpointing.")
@click.option("--price", type=float, help="Of a GPU-hour, for the cost of a million tokens.")
@click.option("--tokens", type=float, help="Of the whole run, such as 2e12: its days and cost.")
@writing_options
def command(model: str, gpu: str, form: str, output: str | None, limit: int, **given: Any) -> None:
    """What would training this model on this cluster take: time, memory, cost?

    By sharding strategy, from models alone; 16 bit with Adam in single precision. `least gpus` is
    how many such GPUs it takes at least. The band is as wide as such models miss measured jobs.
    """
    from htk.models.decoder import decoder
    from htk.models.hardware import gpu as of_catalogue
    from htk.plan import LABEL, MFU, Job, plan
    from htk.render import write
    from htk.result import Result

    sizes = {name: given.pop(name) for name in SIZES}
    chosen = decoder(model, **{name: size for name, size in sizes.items() if size is not None})
    job = Job(chosen, of_catalogue(gpu), **given)
    facts = {
        "model": f"{chosen.name}, {chosen.parameters / 1e9:.2f} billion parameters",
        "cluster": f"{job.nodes} × {job.gpus_per_node} {job.gpu.device_name}",
        "mfu": MFU,
    }
    write(Result(LABEL, plan(job), facts), form, output, limit=limit)
