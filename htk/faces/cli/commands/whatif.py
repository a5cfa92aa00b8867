"""`htk whatif`: what would a step take if this were changed?"""

import re
from dataclasses import replace
from typing import Any

import click

from htk.base import plugins
from htk.base.core.ranges import parse_seconds, take_exact_value
from htk.base.errors import UsageError
from htk.faces.cli.commands.common import print_line, trace_options
from htk.faces.cli.commands.options import price_option, run_tokens_option, site_option

# Kept here in words, so that help prints without importing the edits; a test compares them.
EDIT_HELP = {
    "replace": "Kernels, operators, modules: PATTERN=2x, =fused, =gone[,claimed=1.6x].",
    "hardware": "Another GPU of the catalogue: h100. Low confidence.",
    "precision": "Type of matrix products: bf16, fp16, fp8, tf32, fp32. Low confidence.",
    "batch": "Micro-batch: 2x the recorded one, 64, or global=512 samples of all ranks.",
    "seq": "Tokens per sequence: 2048, 2x, or 512:0.7,2048:0.3[,packed].",
    "serving": "Server: requests=2x,context=4096,prefill=2x,chunk=2048,captured=64,weights=int4,"
    "kv=fp8,draft=3,acceptance=0.7,apart=decode,model=NAME,tp=2,dp=2,ep=8.",
    "attention": "Attention as one kernel that keeps no scores: flash.",
    "loss": "Cross-entropy as one kernel, which keeps no copies of the logits: fused.",
    "optimizer": "Adam as one kernel: fused; with moments of 8 bits: 8bit.",
    "lora": "LoRA of this rank on the products of layers, all else frozen: 16.",
    "checkpointing": "Recompute activations in the backward pass: on, off, selective.",
    "tp": "Tensor-parallel ranks: 4. Low confidence.",
    "sp": "Sequence parallelism with tensor parallelism: on, off. Low confidence.",
    "cp": "Context-parallel ranks: 2. Low confidence.",
    "ep": "Expert-parallel ranks: 8. Low confidence.",
    "world": "Ranks of the job, with the same work per rank: 32, or nodes by GPUs, 4x8.",
    "sharding": "full_shard, shard_grad_op, hybrid_shard[:ranks], ddp, zero1, zero2.",
    "bucket": "Size of DDP's gradient buckets: 100MB.",
    "prefetch_depth": "FSDP units gathered ahead of the current one: 2.",
    "network": "bandwidth=2x,latency=2,intra_…,inter_…; roce-400; inter_gbps=25; lost=1; curve=on",
    "gradients": "Bytes of the gradients that ranks reduce: 0.5x.",
    "fix_rank": "This rank (or all) computes as fast as the median rank.",
    "balanced_experts": "Equally many tokens for the experts of every rank: on.",
    "no_skew": "All ranks arrive at collectives together: on.",
    "split": "Activation transfers overlapped with compute: batch, tensor[=4], fused.",
    "overlap": "Overlap of communication with compute: perfect, realistic, serial, today.",
    "remove_syncs": "No synchronising call or blocking copy in the step: on.",
    "no_data_wait": "No waiting for the data loader: on.",
    "workers": "Workers of the data loader: 2x the recorded ones.",
    "host": "Faster CPU: 2x.",
    "graphs": "No launch overhead, as in CUDA graphs: on.",
    "compile": "Elementwise chains fused and launches free, a bound for torch.compile: on.",
    "no_sync": "DDP's gradients reduced with the last micro-batch alone: on, or each: off.",
    "accumulation": "Micro-batches per step: 4, 2x, or global=512 samples of all ranks.",
    "pp": "Stages of a pipeline: 4, stages=4,interleave=2, 1: none. Low confidence.",
}
for _name, _one in plugins.list_added("htk.edits").items():
    EDIT_HELP.setdefault(_name, f"From the package {_one.package}.")


def _edit_options(function: Any) -> Any:
    for name, words in reversed(EDIT_HELP.items()):
        flag = "--" + name.replace("_", "-")
        option = click.option(flag, f"edit_{name}", metavar="VALUE", multiple=True, help=words)
        function = option(function)
    return function


@click.command("whatif")
@_edit_options
@click.option(
    "--sweep", "sweeps", multiple=True, metavar="EDIT=A,B,…", help="Try every value: batch=4,8,16."
)
@click.option(
    "--with",
    "others",
    multiple=True,
    metavar="PATH[@2x]",
    help="Another recording of the job, at another batch.",
)
@click.option(
    "--representatives",
    "of_few",
    is_flag=True,
    help="Work with a few ranks that stand for all: faster, less certain.",
)
@click.option("--recommend", is_flag=True, help="Rank possible changes by gain over uncertainty.")
@click.option("--measured-step-ms", type=float, help="Step time measured without the profiler.")
@click.option(
    "--write",
    "folder",
    type=click.Path(file_okay=False),
    help="Folder to write the predicted step to.",
)
@click.option("--ledger", is_flag=True, help="Show what each rank sends in a step instead.")
@click.option("--wide", is_flag=True, help="Show all columns.")
@price_option
@run_tokens_option
@click.option("--watts", type=float, help="Power of a GPU, for the energy; by default its limit.")
@click.option(
    "--gpu-mtbf",
    metavar="TIME",
    help="Time between failures of a GPU, for goodput: 5e4h. Needs the next two options.",
)
@click.option("--restart", help="Time from a failure until the job resumes, e.g. 10min.")
@click.option("--checkpoint", help="Time that a checkpoint stops the job, e.g. 30s.")
@site_option
@trace_options
def command(
    paths: tuple[str, ...],
    sweeps: tuple[str, ...],
    others: tuple[str, ...],
    of_few: bool,
    recommend: bool,
    measured_step_ms: float | None,
    folder: str | None,
    ledger: bool,
    wide: bool,
    price: float | None,
    run_tokens: float | None,
    watts: float | None,
    gpu_mtbf: str | None,
    restart: str | None,
    checkpoint: str | None,
    site: str | None,
    form: str,
    output: str | None,
    limit: int,
    **arguments: Any,
) -> None:
    """What would a step take if this were changed?

    The untouched step is replayed first; a step that does not replay is refused. Without edits:
    best-case savings, cause by cause, largest first; of a server what --recommend says. Several
    folders with the same ranks are recordings of one job at several batches; the first is the one
    that is changed.
    """
    from htk.answers.output.render import write_result
    from htk.faces.cli.commands.common import open_narrowed
    from htk.physics.site_rates import NO_SITE
    from htk.planning.sites.own_site import site_in_use
    from htk.whatif.api import start_whatif
    from htk.whatif.table import Terms
    from htk.whatif.text import show_whatif

    values = {name: arguments.pop(f"edit_{name}") for name in EDIT_HELP}
    fixed = tuple((name, value) for name, each in values.items() for value in each)
    over = tuple(_parse_sweep(text) for text in sweeps)
    anchor = None if measured_step_ms is None else round(measured_step_ms * 1e6)
    paths, beside = _split_recordings(paths, others)
    failures = {"--gpu-mtbf": gpu_mtbf, "--restart": restart, "--checkpoint": checkpoint}
    terms = Terms(
        price, run_tokens, watts, *(_parse_option_seconds(f, t) for f, t in failures.items())
    )
    asked = replace(
        start_whatif(open_narrowed(paths, arguments)),
        edits=fixed, sweeps=over, measured_step_ns=anchor, terms=terms, wants_advice=recommend,
    )  # fmt: skip
    if of_few:
        asked = asked.representatives()
    here = site_in_use(site)
    asked = asked.at_site(NO_SITE if here is None else here.site.rates)
    for path, ratio in beside:
        asked = asked.calibrate_with(path, ratio)
    if ledger:
        write_result(asked.traffic(), form, output, limit=limit)
    else:
        answer = asked.run()
        if here is not None:
            answer = replace(answer, coverage={**answer.coverage, "site": str(here.path)})
        show_whatif(answer, form, output, limit=limit, wide=wide)
    if folder is not None:
        if asked.sweeps or recommend:
            raise UsageError("--write writes one step: give edits and no sweep")
        for file in asked.write(folder):
            print_line(str(file))


def _parse_option_seconds(flag: str, text: str | None) -> float | None:
    return None if text is None else take_exact_value(parse_seconds(text), flag, text)


def _split_recordings(
    paths: tuple[str, ...], others: tuple[str, ...]
) -> tuple[tuple[str, ...], list[tuple[str, float | None]]]:
    """Return the recording to change, and those at other batches.

    Folders that hold the same ranks are several recordings; else they are parts of one.
    """
    beside: list[tuple[str, float | None]] = []
    for other in others:
        path, mark, ratio = other.rpartition("@")
        factor = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)x", ratio) if mark else None
        beside.append((path, float(factor[1])) if factor else (other, None))
    if len(paths) > 1 and _same_ranks(paths):
        return paths[:1], [*((p, None) for p in paths[1:]), *beside]
    return paths, beside


def _same_ranks(paths: tuple[str, ...]) -> bool:
    from pathlib import Path

    from htk.traces.trace.opening import open_trace

    if not all(Path(p).is_dir() for p in paths):
        return False
    ranks = [set(open_trace(p).ranks) for p in paths]
    return all(ranks[0] & other for other in ranks[1:])


def _parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """`batch=4,8,16`."""
    name, mark, values = text.partition("=")
    name = name.replace("-", "_")
    if not mark or name not in EDIT_HELP or not values:
        raise click.UsageError(f"--sweep {text!r}: EDIT=A,B,… with one of {', '.join(EDIT_HELP)}")
    return name, tuple(values.split(","))
