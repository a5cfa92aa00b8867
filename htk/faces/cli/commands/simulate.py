"""`htk simulate`: the traces of a simulated cluster, and what is true of them."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click

from htk.faces.cli.commands.common import gpu_file_option, print_line
from htk.faces.cli.commands.model_options import size_options
from htk.faces.cli.commands.options import folder_option
from htk.recording.simulate.config import Config, check_config

PLANTED = (
    "straggler, slow_link, full_allocator, starved_loader, data_stall, cpu_bound, regressed_kernel,"
    " clock_offset, missing_rank, unlinked_launch; where and how much may follow, e.g."
    " straggler:rank=3,factor=1.5, straggler:node=1, straggler:stage=1, slow_link:node=1,to=2,"
    " slow_link:node=1,nic=0, slow_link:stage=0 (from it to the next stage),"
    " full_allocator:rank=2,times=3,ms=8, starved_loader:ms=40,"
    " regressed_kernel:name=flash_fwd,step=14,factor=1.6"
)
# By field of Config, in the order of the help.
_OPTIONS = {
    "nodes": "Nodes of the cluster.",
    "gpus_per_node": "GPUs per node.",
    "strategy": "Sharding: ddp, shard_grad_op, full_shard or hybrid_shard.",
    "fsdp": "Version of FSDP, which orders the streams: 1 or 2.",
    "tensor_parallel": "GPUs that share each layer.",
    "pipeline_parallel": "Stages of the pipeline, which share the layers.",
    "virtual_stages": "Interleaved parts of a stage. [1]",
    "batched_messages": "Between stages, the messages of a call are one kernel. [yes]",
    "context_parallel": "GPUs that share each sequence.",
    "sequence_parallel": "Sequence parallelism with tensor parallelism.",
    "context_exchange": "Keys and values go round by all_to_all or by messages. [all_to_all]",
    "experts": "Experts per layer; --ffn is the width of one.",
    "active_experts": "Experts per token.",
    "expert_parallel": "GPUs that the experts are spread over.",
    "expert_skew": "Spread of tokens over experts' GPUs. [0]",
    "micro_batch": "Sequences per micro-batch and GPU.",
    "seq": "Tokens per sequence.",
    "accumulation": "Micro-batches per step.",
    "no_sync": "DDP reduces the gradients of the last micro-batch alone. [yes]",
    "checkpointing": "Recompute activations in the backward pass.",
    "attention": "flash, or materialised (scores are written out). [flash]",
    "fused_loss": "Compute the loss in place, by one kernel.",
    "optimizer": "adam, adam-foreach (in parts) or adam-8bit. [adam]",
    "lora_rank": "Train only LoRA adapters of this rank.",
    "decode_requests": (
        "Requests that a server answers at once, e.g. 32; further GPUs are more servers."
    ),
    "custom_all_reduce": "A server's GPUs reduce by kernels of its own, which no record tells.",
    "context": "Tokens that each request looks back on. [1024]",
    "precision": "Type of matrix products: bf16, tf32 or fp32.",
    "steps": "Number of recorded steps. [3]",
    "first_step": "Number of the first recorded step; 0: with the start-up of the job. [10]",
    "seed": "Seed of the cluster and of the noise.",
    "run": "Number of the run: the same cluster, other noise.",
    "intra_gbps": "Rate between GPUs of a node, GB/s one way.",
    "inter_gbps": "Rate of a node to the others, GB/s one way.",
    "intra_latency_us": "Latency of a hop within a node. [0.6]",
    "inter_latency_us": "Latency of a hop across nodes. [2.7]",
    "ranks_only": "Write only these ranks, e.g. 0,2..5.",
    "noise": "Spread of kernel times; 0 for none.",
    "jitter_ns": "Spread of the ends of a collective.",
    "contention": "Compute and communication slow each other. [yes]",
    "synchronous": "Collectives on the compute stream.",
    "queue": "Maximum number of queued launches.",
    "carry_in": "Kernels launched before the recording.",
    "cut_last_step": "The recording ends within the last step.",
    "stagger_us": "Spread of the times at which ranks begin to record.",
    "clocks": "One clock for each node, or for each process. [node]",
    "clock_offset_us": "Spread of the clocks, e.g. 500. [0]",
    "clock_drift_ppm": "Spread of the clocks' drift, e.g. 20. [0]",
    "host_names": "Names of hosts in the metadata. [yes]",
    "heavy_tails": "Heavy tails in data loading; stalls by GC.",
    "programmatic": "Kernels may overlap.",
    "graphs": "Layers as CUDA graphs.",
    "profiler_ns": "Cost of recording an event of the host.",
    "sync_records": "Waits of streams and host are recorded. [yes]",
    "metadata": "Metadata of collectives on their kernels.",
    "named_groups": (
        "Groups, numbers and ids of collectives, which PyTorch records since 2.3. [yes]"
    ),
    "split_groups": "Groups of one kind have one name, as split_group gives them.",
    "stacks": "Record calls of Python and nn.Modules. [yes]",
}
# What switches a field off, where it is not called --no-.
_OFF = {
    "batched_messages": "single-messages",
    "synchronous": "asynchronous",
    "cut_last_step": "whole-last-step",
    "named_groups": "unnamed-groups",
    "split_groups": "numbered-groups",
    "no_sync": "sync-each",
}


def _config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that are fields of Config, of the types they have there."""
    kinds = {field.name: field.type for field in fields(Config)}
    for name, words in reversed(_OPTIONS.items()):
        function = _config_option(name, kinds[name], words)(function)
    return function


def _config_option(name: str, kind: Any, words: str) -> Callable[..., Any]:
    flag = name.replace("_", "-")
    if kind is bool:
        off = _OFF.get(name, f"no-{flag}")
        return click.option(f"--{flag}/--{off}", default=None, help=words)
    one_of = (kind, *get_args(kind))
    number = next((k for k in (int, float) if k in one_of), str)
    return click.option(f"--{flag}", type=number, help=words)


@click.command("simulate")
@click.option("--config", "file", type=click.Path(dir_okay=False), help="TOML file of options.")
@click.option("--model", help="Model: llama2-7b, gpt3-175b, … or any name, with its sizes.")
@size_options
@click.option("--gpu", help="GPU of the hardware catalogue, e.g. a100-80gb.")
@gpu_file_option
@_config_options
@click.option("--plant", "plants", multiple=True, help=f"Fault to plant: {PLANTED}.")
@folder_option
def command(file: str | None, output: str, **arguments: Any) -> None:
    """Write the traces of a simulated cluster, and their true values in truth.json."""
    from htk.base.core.humanize import parse_int_ranges
    from htk.recording.simulate.job import simulate_job
    from htk.recording.simulate.job_file import from_toml

    chosen = {k: v for k, v in arguments.items() if v is not None and v != ()}
    if "ranks_only" in chosen:
        chosen["ranks_only"] = tuple(sorted(parse_int_ranges(chosen["ranks_only"])))
    config = from_toml(Path(file), **chosen) if file else check_config(Config(**chosen))
    for path in simulate_job(config, Path(output)):
        print_line(str(path))
