"""`htk simulate`: the traces of a simulated cluster, and what is true of them."""

from pathlib import Path
from typing import Any

import click

from htk.faces.cli.commands.common import gpu_file_option, say
from htk.faces.cli.commands.model_options import size_options
from htk.faces.cli.commands.options import folder_option

PLANTED = (
    "straggler, slow_link, full_allocator, starved_loader, data_stall, cpu_bound, regressed_kernel,"
    " clock_offset, missing_rank, unlinked_launch; where and how much may follow, e.g."
    " straggler:rank=3,factor=1.5, straggler:node=1, straggler:stage=1, slow_link:node=1,to=2,"
    " slow_link:node=1,nic=0, slow_link:stage=0 (from it to the next stage),"
    " full_allocator:rank=2,times=3,ms=8, starved_loader:ms=40,"
    " regressed_kernel:name=flash_fwd,step=14,factor=1.6"
)


@click.command("simulate")
@click.option("--config", "file", type=click.Path(dir_okay=False), help="TOML file of options.")
@click.option("--model", help="Model: llama2-7b, gpt3-175b, … or any name, with its sizes.")
@size_options
@click.option("--gpu", help="GPU of the hardware catalogue, e.g. a100-80gb.")
@gpu_file_option
@click.option("--nodes", type=int, help="Nodes of the cluster.")
@click.option("--gpus-per-node", type=int, help="GPUs per node.")
@click.option("--strategy", help="Sharding: ddp, shard_grad_op, full_shard or hybrid_shard.")
@click.option("--fsdp", type=int, help="Version of FSDP, which orders the streams: 1 or 2.")
@click.option("--tensor-parallel", type=int, help="GPUs that share each layer.")
@click.option(
    "--pipeline-parallel", type=int, help="Stages of the pipeline, which share the layers."
)
@click.option("--virtual-stages", type=int, help="Interleaved parts of a stage. [1]")
@click.option(
    "--batched-messages/--single-messages",
    default=None,
    help="Between stages, the messages of a call are one kernel. [yes]",
)
@click.option("--context-parallel", type=int, help="GPUs that share each sequence.")
@click.option(
    "--sequence-parallel/--no-sequence-parallel",
    default=None,
    help="Sequence parallelism with tensor parallelism.",
)
@click.option(
    "--context-exchange", help="Keys and values go round by all_to_all or by messages. [all_to_all]"
)
@click.option("--experts", type=int, help="Experts per layer; --ffn is the width of one.")
@click.option("--active-experts", type=int, help="Experts per token.")
@click.option("--expert-parallel", type=int, help="GPUs that the experts are spread over.")
@click.option("--expert-skew", type=float, help="Spread of tokens over experts' GPUs. [0]")
@click.option("--micro-batch", type=int, help="Sequences per micro-batch and GPU.")
@click.option("--seq", type=int, help="Tokens per sequence.")
@click.option("--accumulation", type=int, help="Micro-batches per step.")
@click.option(
    "--checkpointing/--no-checkpointing",
    default=None,
    help="Recompute activations in the backward pass.",
)
@click.option(
    "--decode-requests",
    type=int,
    help="Requests that a server answers at once, e.g. 32; further GPUs are more servers.",
)
@click.option(
    "--custom-all-reduce/--no-custom-all-reduce",
    default=None,
    help="A server's GPUs reduce by kernels of its own, which no record tells.",
)
@click.option("--context", type=int, help="Tokens that each request looks back on. [1024]")
@click.option("--precision", help="Type of matrix products: bf16, tf32 or fp32.")
@click.option("--steps", type=int, help="Number of recorded steps. [3]")
@click.option(
    "--first-step",
    type=int,
    help="Number of the first recorded step; 0: with the start-up of the job. [10]",
)
@click.option("--seed", type=int, help="Seed of the cluster and of the noise.")
@click.option("--run", type=int, help="Number of the run: the same cluster, other noise.")
@click.option("--intra-gbps", type=float, help="Rate between GPUs of a node, GB/s one way.")
@click.option("--inter-gbps", type=float, help="Rate of a node to the others, GB/s one way.")
@click.option("--intra-latency-us", type=float, help="Latency of a hop within a node. [0.6]")
@click.option("--inter-latency-us", type=float, help="Latency of a hop across nodes. [2.7]")
@click.option("--ranks-only", help="Write only these ranks, e.g. 0,2..5.")
@click.option("--noise", type=float, help="Spread of kernel times; 0 for none.")
@click.option("--jitter-ns", type=int, help="Spread of the ends of a collective.")
@click.option(
    "--contention/--no-contention",
    default=None,
    help="Compute and communication slow each other. [yes]",
)
@click.option(
    "--synchronous/--asynchronous", default=None, help="Collectives on the compute stream."
)
@click.option("--queue", type=int, help="Maximum number of queued launches.")
@click.option("--carry-in", type=int, help="Kernels launched before the recording.")
@click.option(
    "--cut-last-step/--whole-last-step",
    default=None,
    help="The recording ends within the last step.",
)
@click.option(
    "--stagger-us", type=float, help="Spread of the times at which ranks begin to record."
)
@click.option("--clocks", help="One clock for each node, or for each process. [node]")
@click.option("--clock-offset-us", type=float, help="Spread of the clocks, e.g. 500. [0]")
@click.option("--clock-drift-ppm", type=float, help="Spread of the clocks' drift, e.g. 20. [0]")
@click.option(
    "--host-names/--no-host-names", default=None, help="Names of hosts in the metadata. [yes]"
)
@click.option(
    "--heavy-tails/--no-heavy-tails",
    default=None,
    help="Heavy tails in data loading; stalls by GC.",
)
@click.option("--programmatic/--no-programmatic", default=None, help="Kernels may overlap.")
@click.option("--graphs/--no-graphs", default=None, help="Layers as CUDA graphs.")
@click.option("--profiler-ns", type=int, help="Cost of recording an event of the host.")
@click.option(
    "--sync-records/--no-sync-records",
    default=None,
    help="Waits of streams and host are recorded. [yes]",
)
@click.option(
    "--metadata/--no-metadata", default=None, help="Metadata of collectives on their kernels."
)
@click.option(
    "--named-groups/--unnamed-groups",
    default=None,
    help="Groups, numbers and ids of collectives, which PyTorch records since 2.3. [yes]",
)
@click.option(
    "--split-groups/--numbered-groups",
    default=None,
    help="Groups of one kind have one name, as split_group gives them.",
)
@click.option(
    "--stacks/--no-stacks", default=None, help="Record calls of Python and nn.Modules. [yes]"
)
@click.option("--plant", "plants", multiple=True, help=f"Fault to plant: {PLANTED}.")
@folder_option
def command(file: str | None, output: str, **arguments: Any) -> None:
    """Write the traces of a simulated cluster, and their true values in truth.json."""
    from htk.base.core.humanize import parse_int_ranges
    from htk.recording.simulate.config import Config, checked
    from htk.recording.simulate.job import simulate
    from htk.recording.simulate.job_file import from_toml

    chosen = {k: v for k, v in arguments.items() if v is not None and v != ()}
    if "ranks_only" in chosen:
        chosen["ranks_only"] = tuple(sorted(parse_int_ranges(chosen["ranks_only"])))
    config = from_toml(Path(file), **chosen) if file else checked(Config(**chosen))
    for path in simulate(config, Path(output)):
        say(str(path))
