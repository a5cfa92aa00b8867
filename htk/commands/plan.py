"""`htk plan`: what a described model needs on a described cluster, without any trace."""

import click

from htk.commands.common import writing_options


@click.command("plan")
@click.option("--model", required=True, help="llama2-7b, llama3-8b, gpt3-5b, …")
@click.option("--gpu", required=True, help="a100-80gb, h100, … of the catalogue.")
@click.option("--nodes", default=1, show_default=True)
@click.option("--gpus-per-node", default=8, show_default=True)
@click.option("--micro-batch", default=1, show_default=True)
@click.option("--seq", default=2048, show_default=True)
@click.option("--checkpointing", is_flag=True, help="Full activation checkpointing.")
@click.option("--price", type=float, help="Of a GPU-hour, for the cost of a million tokens.")
@writing_options
def command(
    model: str,
    gpu: str,
    nodes: int,
    gpus_per_node: int,
    micro_batch: int,
    seq: int,
    checkpointing: bool,
    price: float | None,
    form: str,
    output: str | None,
    limit: int,
) -> None:
    """What would training this model on this cluster take: time, memory, cost?

    By sharding strategy, from models alone: the band is as wide as published errors of such models.
    """
    from htk.models.decoder import decoder
    from htk.models.hardware import gpu as of_catalogue
    from htk.plan import LABEL, Job, plan
    from htk.render import write
    from htk.result import Result

    job = Job(
        decoder(model),
        of_catalogue(gpu),
        nodes,
        gpus_per_node,
        micro_batch,
        seq,
        checkpointing,
        price,
    )
    write(Result(LABEL, plan(job), {}), form, output, limit=limit)
