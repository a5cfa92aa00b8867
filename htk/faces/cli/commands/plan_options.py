"""The options of `htk plan` that describe a job, and the job that they describe."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from htk.base.errors import UsageError
from htk.base.mappings import Facts, Fields
from htk.faces.cli.commands import load_command
from htk.faces.cli.commands.common import gpu_file_option
from htk.faces.cli.commands.model_options import SIZE_OPTIONS, SIZES
from htk.faces.cli.commands.options import (
    SectionedCommand,
    group_options,
    price_option,
    run_tokens_option,
    site_option,
)

if TYPE_CHECKING:
    from htk.physics.decoder import Decoder
    from htk.planning.plan.job import PlannedJob

_MODEL = (
    click.option(
        "--model",
        required=True,
        help="Model: llama3-70b, deepseek-v3, …, a config.json, or any name, with its sizes.",
    ),
    *SIZE_OPTIONS,
    click.option("--experts", type=int, help="Experts per layer."),
    click.option("--active-experts", type=int, help="Experts per token (top-k)."),
    click.option(
        "--shared-ffn", type=int, help="Width of the shared experts, which every token uses."
    ),
    click.option("--gated/--no-gated", default=None, help="Gated feed-forward (SwiGLU)."),
    click.option(
        "--tied/--no-tied", default=None, help="Output layer that shares the embedding's weights."
    ),
    click.option("--head-size", type=int, help="Width of a head; by default hidden / heads."),
)
_EXTRA_SIZES = ("experts", "active_experts", "shared_ffn", "gated", "tied", "head_size")
_GPU = click.option("--gpu", required=True, help="GPU of the hardware catalogue, e.g. a100-80gb.")
_GPUS_PER_NODE = click.option(
    "--gpus-per-node", default=8, show_default=True, help="GPUs per node."
)
_NETWORK = (
    click.option(
        "--network", help="Network between nodes: infiniband-ndr, roce-400, efa-p5, nvl72, …"
    ),
    click.option(
        "--inter-gbps-per-gpu", type=float, help="Rate of a GPU to other nodes, GB/s one way."
    ),
    click.option("--intra-gbps", type=float, help="Rate between GPUs of a node, GB/s one way."),
    click.option("--domain", type=int, help="GPUs joined by fast links, if not those of one node."),
)
_PODS = (
    click.option(
        "--pod-gpus", default=0, help="GPUs per pod; beyond it the network is oversubscribed."
    ),
    click.option(
        "--oversubscription", default=1.0, help="Oversubscription factor between pods, e.g. 4."
    ),
)
_NODES = click.option("--nodes", default=1, show_default=True, help="Nodes of the cluster.")
_WATTS = click.option(
    "--watts", type=float, help="Power of a GPU, for the energy; by default its rated power."
)
kernels_option = click.option(
    "--kernels", default="fused", help="fused, or eager (one per operator)."
)
_LAYERS_SHARED = (
    click.option(
        "--tensor-parallel", default=1, show_default=True, help="GPUs that share each layer."
    ),
    click.option(
        "--pipeline-parallel", default=1, show_default=True, help="Stages of the pipeline."
    ),
)
_JOB = (
    click.option(
        "--micro-batch", default=1, show_default=True, help="Sequences per micro-batch and GPU."
    ),
    click.option("--seq", default=2048, show_default=True, help="Tokens per sequence."),
    click.option("--accumulation", type=int, help="Micro-batches per step and pipeline."),
    click.option("--global-batch", type=int, help="Samples per step of the whole job."),
    click.option(
        "--precision",
        default=None,
        help="Type of matrix products: bf16, fp16, fp8, mxfp8, nvfp4, … By default 16-bit.",
    ),
    click.option("--optimizer", default="adam", show_default=True, help="adam-8bit, galore, …"),
    click.option("--lora-rank", type=int, help="Train only LoRA adapters of this rank."),
    click.option(
        "--attention", default="flash", help="flash, or materialised (scores are written out)."
    ),
    click.option(
        "--fused-loss",
        is_flag=True,
        help="Compute the loss in place from 16-bit logits, as Liger or flash-attn do.",
    ),
    click.option("--cuda-graphs", is_flag=True, help="Launch whole CUDA graphs."),
)
_PARALLELISM = (
    click.option(
        "--strategy", help="Sharding: ddp, zero1, zero2, shard_grad_op, full_shard, hybrid_shard."
    ),
    click.option(
        "--virtual-stages", default=1, show_default=True, help="Interleaved parts of a stage."
    ),
    click.option("--schedule", default="1f1b", help="1f1b, interleaved or zero_bubble."),
    click.option(
        "--context-parallel", default=1, show_default=True, help="GPUs that share each sequence."
    ),
    click.option(
        "--expert-parallel",
        default=1,
        show_default=True,
        help="GPUs that the experts are spread over.",
    ),
    click.option("--expert-tensor-parallel", type=int, help="GPUs that share an expert."),
    click.option("--capacity", type=float, help="Tokens of an expert over its even share."),
    click.option(
        "--sequence-parallel/--no-sequence-parallel",
        default=None,
        help="Sequence parallelism with tensor parallelism.",
    ),
    click.option(
        "--overlap-tensor/--no-overlap-tensor",
        default=None,
        help="Overlap tensor-parallel transfers with compute.",
    ),
    click.option(
        "--overlap-expert", is_flag=True, help="Overlap the experts' all-to-alls with compute."
    ),
)
_MEMORY = (
    click.option(
        "--checkpointing",
        type=click.Choice(["none", "selective", "full"]),
        is_flag=False,
        flag_value="full",
        default="none",
        show_default=True,
        help="Activations to recompute; full if no value is given.",
    ),
    click.option(
        "--offload", default="none", help="State to keep on the host: optimizer or activations."
    ),
)
# What other tools call an option, and what it is here.
_ELSEWHERE = {
    "--tp": "--tensor-parallel", "--pp": "--pipeline-parallel", "--cp": "--context-parallel",
    "--ep": "--expert-parallel", "--vp": "--virtual-stages", "--gbs": "--global-batch",
    "--mbs": "--micro-batch", "--gpus-count": "--nodes and --gpus-per-node",
    "--sharding": "--strategy", "--dtype": "--precision", "--batch": "--micro-batch",
    "--world": "--nodes and --gpus-per-node", "--ac": "--checkpointing",
    "--recompute": "--checkpointing", "--zero": "--strategy zero1", "--top-k": "--active-experts",
    "--data-parallel": "--nodes (what tensor, pipeline and context parallelism leave)",
    "--dp": "--nodes (what tensor, pipeline and context parallelism leave)",
    "--fp8": "--precision fp8", "--lora": "--lora-rank", "--bandwidth": "--inter-gbps-per-gpu",
    "--serve": "htk plan-serving",
}  # fmt: skip
_OTHER_KIND = {"plan": "plan-serving", "plan-serving": "plan"}


class PlanCommand(SectionedCommand):
    """Says which option does what another tool's option of that name does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            if name in _ELSEWHERE:
                raise UsageError(f"no option {name}; use {_ELSEWHERE[name]}") from None
            other = _OTHER_KIND[self.name or "plan"]
            if any(name in option.opts for option in load_command(other).params):
                raise UsageError(f"no option {name}: it belongs to htk {other}") from None
            raise


def model_options(function: Any) -> Any:
    """Return how a model is described: by name, sizes or file."""
    return group_options("Model", *_MODEL)(function)


def training_options(function: Any) -> Any:
    """Return all that describes a training job on its cluster."""
    for heading, options in (
        ("Cost", (price_option, run_tokens_option, _WATTS)),
        ("Memory", _MEMORY),
        ("Parallelism", (*_LAYERS_SHARED, *_PARALLELISM)),
        ("Network", (*_NETWORK, *_PODS)),
        ("GPUs", (_GPU, _NODES, _GPUS_PER_NODE, gpu_file_option, site_option)),
        ("Job", (*_JOB, kernels_option)),
    ):
        function = group_options(heading, *options)(function)
    return model_options(function)


def replica_options(function: Any) -> Any:
    """Return what a server's replica and a training job have in common."""
    for heading, options in (
        ("Cost", (price_option,)),
        ("Parallelism", _LAYERS_SHARED),
        ("Network", _NETWORK),
        ("GPUs", (_GPU, _GPUS_PER_NODE, gpu_file_option)),
    ):
        function = group_options(heading, *options)(function)
    return function


def build_planned_job(arguments: Fields) -> "PlannedJob":
    """Return the job that the options describe; what is used of `arguments` is taken out."""
    from htk.physics.hardware import gpu as of_catalogue
    from htk.planning.plan.job import PlannedJob

    model = described_model(arguments)
    device = of_catalogue(arguments.pop("gpu"))
    network = network_options(arguments)
    batch = arguments.pop("global_batch")
    accumulation = arguments.pop("accumulation")
    split = [arguments[f"{w}_parallel"] for w in ("tensor", "pipeline", "context", "expert")]
    strategy = arguments.pop("strategy") or ("zero1" if max(split) > 1 else "full_shard")
    job = PlannedJob(
        model, device, accumulation=accumulation or 1, strategy=strategy, **network, **arguments
    )
    if model.heads % job.tensor_parallel:
        raise UsageError(
            f"tensor parallelism of {job.tensor_parallel} does not divide {model.heads} heads"
        )
    if batch is None:
        return job
    if accumulation is not None:
        raise UsageError(
            "--global-batch and --accumulation contradict or repeat each other: give one"
        )
    return _with_batch(job, batch)


def _with_batch(job: "PlannedJob", batch: int) -> "PlannedJob":
    from dataclasses import replace

    each = job.micro_batch * job.replicas
    if batch < 1 or batch % each:
        raise UsageError(
            f"a batch of {batch} sequences does not divide among {job.replicas} replicas of"
            f" {job.micro_batch} sequences"
        )
    return replace(job, accumulation=batch // each)


def described_model(arguments: Fields) -> "Decoder":
    """Return the model that the options describe, which are taken out of `arguments`."""
    own = {name: arguments.pop(name) for name in (*SIZES, *_EXTRA_SIZES)}
    sizes = {name: size for name, size in own.items() if size is not None}
    model = _read_model(arguments.pop("model"), sizes)
    if model.experts <= 1 and (arguments.get("capacity") or "shared_ffn" in sizes):
        raise UsageError("--capacity and --shared-ffn are of a model with experts, as --experts 8")
    return model


def _read_model(name: str, sizes: Facts) -> "Decoder":
    from dataclasses import replace

    from htk.physics.config_json import read_config
    from htk.physics.decoder import check_decoder
    from htk.physics.presets import decoder

    if name.endswith(".json") or "/" in name or Path(name).is_dir():
        model = read_config(name)
        return check_decoder(replace(model, **sizes)) if sizes else model
    return decoder(name, **sizes)


def network_options(arguments: Fields) -> Fields:
    """Return what the options say of the network, which are taken out of `arguments`."""
    from htk.physics.network import Fabric, named_network

    name = arguments.pop("network")
    rate = arguments.pop("inter_gbps_per_gpu")
    within = arguments.pop("intra_gbps")
    domain = arguments.pop("domain")
    if rate is not None and not 0 < rate < 1e6:
        raise UsageError(f"--inter-gbps-per-gpu {rate:g}: a positive number of GB/s was expected")
    between = None
    if name is not None:
        between, joined = named_network(name)
        domain = domain or joined
    if rate is not None:
        between = Fabric(rate) if between is None else Fabric(rate, between.achieved)
    return {"fabric": between, "link_gbps": within, "domain": domain}
