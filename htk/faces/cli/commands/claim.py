"""`htk claim`: is a published or in-house number plausible?"""

import re
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.ranges import parse_seconds, parse_value, take_exact_value
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.faces.cli.commands.common import open_narrowed, parsing_options, writing_options
from htk.faces.cli.commands.model_options import SIZES, size_options
from htk.faces.cli.commands.options import refuse_unused

if TYPE_CHECKING:
    from htk.answers.output.result import Result
    from htk.physics.hardware import Gpu
    from htk.verdicts.claims.described import ClaimedJob

_CLUSTER = re.compile(r"\s*(?:(\d{1,7})\s*[x×*]\s*)?([\w .-]+)")
_NUMBERS = {
    "mfu_pct": "MFU, in percent: 70.5.",
    "hfu_pct": "HFU, in percent, recomputation included.",
    "tflops_per_gpu": "TFLOP/s per GPU.",
    "tokens_per_s": "Tokens per second of the job: 2.8M.",
    "tokens_per_s_per_gpu": "Tokens per second and GPU.",
    "step_s": "Step time: 3.2s.",
}
_FLAGS = {
    "mfu_pct": "--mfu",
    "hfu_pct": "--hfu",
    "tflops_per_gpu": "--tflops",
    "tokens_per_s": "--tokens-per-s",
    "tokens_per_s_per_gpu": "--tokens-per-s-per-gpu",
    "step_s": "--step-time",
}
_NEEDS = {
    "global_batch": ("step_s", "pipeline_parallel"),
    "virtual_stages": ("pipeline_parallel",),
    "rank": ("traces",),
    "job": ("traces",),
}


def _number_options(function: Any) -> Any:
    for name, words in reversed(_NUMBERS.items()):
        function = click.option(_FLAGS[name], name, metavar="NUMBER", help=words)(function)
    return function


@click.command("claim")
@click.argument("text", required=False, default="", metavar="[TEXT]")
@click.option(
    "--trace", "traces", multiple=True, metavar="PATH", help="Recording to check the claim against."
)
@click.option("--gpus", metavar="NxGPU", help="GPUs of the described job: 64xA100, rtx-4090.")
@click.option(
    "--gpus-per-node",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="GPUs per node.",
)
@click.option("--model", help="Model: llama2-13b, gpt3-175b, … or any name, with its sizes.")
@size_options
@click.option(
    "--parameters", help="Parameters that a token passes through, if no model is given: 13B."
)
@_number_options
@click.option(
    "--precision",
    default=None,
    help="Type of matrix products: bf16, fp16, fp8, fp4, tf32, fp32. By default 16-bit.",
)
@click.option("--seq", type=click.IntRange(min=1), help="Tokens per sequence.")
@click.option(
    "--micro-batch", type=click.IntRange(min=1), help="Sequences per micro-batch and GPU."
)
@click.option(
    "--global-batch", type=click.IntRange(min=1), help="Samples per step of the whole job."
)
@click.option("--tensor-parallel", type=click.IntRange(min=1), help="GPUs that share each layer.")
@click.option("--pipeline-parallel", type=click.IntRange(min=1), help="Stages of the pipeline.")
@click.option(
    "--virtual-stages",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Interleaved parts of a stage.",
)
@click.option(
    "--context-parallel",
    type=click.IntRange(min=1),
    default=1,
    help="GPUs that share each sequence.",
)
@click.option(
    "--expert-parallel",
    type=click.IntRange(min=1),
    default=1,
    help="GPUs that the experts are spread over.",
)
@click.option(
    "--strategy", help="Sharding: ddp, zero1, zero2, shard_grad_op, full_shard, hybrid_shard."
)
@click.option("--kernels", default="fused", help="fused, or eager (one per operator).")
@click.option(
    "--attention", default="flash", help="flash, or materialised (scores are written out)."
)
@click.option(
    "--checkpointing",
    type=click.Choice(["none", "selective", "full"]),
    help="Activations to recompute: none, selective, full.",
)
@parsing_options
@writing_options
def command(
    text: str, traces: tuple[str, ...], form: str, output: str | None, limit: int, **arguments: Any
) -> None:
    """Is this number possible? Impossible, needs more than was ever measured, or plausible.

    TEXT is a claim in words, such as "1.594x by RMSNorm" (with --trace), whose wording is checked
    too. A described job and a number (--model llama2-13b --gpus 64xA100 --mfu 70.5) are checked
    against the GPU's peak, the fastest matrix products, memory, links and what such jobs reach.
    """
    from htk.answers.output.render import write_result
    from htk.verdicts.claims.answer import judge_claim
    from htk.whatif.api import WhatIf

    refuse_unused(_NEEDS)
    asked = WhatIf(open_narrowed(traces, arguments)) if traces else None
    answer = judge_claim(_build_claimed_job(arguments), text, asked)
    write_result(answer, form, output, limit=limit, printer=lambda file: _print_claim(answer, file))


def _build_claimed_job(arguments: Fields) -> "ClaimedJob | None":
    from htk.physics.presets import decoder
    from htk.verdicts.claims.described import PRECISIONS, ClaimedJob, Numbers

    values = {name: arguments.pop(name) for name in _NUMBERS}
    sizes = {name: value for name in SIZES if (value := arguments.pop(name)) is not None}
    cluster = arguments["gpus"]
    model = arguments["model"]
    parameters = arguments["parameters"]
    numbers = Numbers(
        **{name: _parse_claim_number(name, v) for name, v in values.items() if v is not None}
    )
    if model is not None and parameters is not None:
        raise UsageError("--parameters are of no model that is described: leave out either")
    if cluster is None:
        if numbers.stated or model is not None:
            raise UsageError("a described job needs its GPUs, e.g. --gpus 64xA100")
        return None
    if arguments["precision"] not in (None, *PRECISIONS):
        raise UsageError(f"precision: one of {', '.join(PRECISIONS)} was expected")
    count, gpu = cluster_of(cluster)
    names = (
        *("precision", "seq", "micro_batch", "global_batch", "tensor_parallel"),
        *("pipeline_parallel", "virtual_stages", "checkpointing", "gpus_per_node"),
        *("context_parallel", "expert_parallel", "strategy", "kernels", "attention"),
    )
    active_parameters = (
        None
        if parameters is None
        else take_exact_value(parse_value(parameters), "--parameters", parameters)
    )
    return ClaimedJob(
        gpu,
        count,
        numbers,
        None if model is None else decoder(model, **sizes),
        active_parameters,
        **{name: arguments[name] for name in names},
    )


def _parse_claim_number(name: str, text: str) -> float:
    if name == "step_s":
        return take_exact_value(parse_seconds(text), _FLAGS[name], text)
    written = text.rstrip(" %")
    return take_exact_value(parse_value(written), _FLAGS[name], written)


def cluster_of(text: str) -> "tuple[int, Gpu]":
    """Return how many GPUs of which kind: 64xA100, h100, 8 x RTX 4090. Of several of that name the
    one with the most memory and the fastest products, in a claim's favour."""
    from htk.physics.hardware import gpus_named

    match = _CLUSTER.fullmatch(text)
    name = "" if match is None else match[2].strip()
    if match is None or not name:
        raise UsageError(f"--gpus {text!r}: a number and a GPU such as 64xA100 were expected")
    best = max(gpus_named(name).values(), key=lambda entry: (entry.half_tflops, entry.memory_gb))
    return int(match[1] or 1), best


def _print_claim(answer: "Result", target: Any) -> None:
    from textwrap import wrap

    facts = answer.coverage
    if facts["verdict"]:
        target.write(f"{_VERDICTS[facts['verdict']]}\n\n")
    for row in answer.to_pylist():
        use = "" if row["use_pct"] is None else f" ({row['use_pct']:,.0f} % of it)"
        lines = wrap(
            f"{row['verdict']:<10}  {row['check']}{use}: {row['reason']}",
            100,
            subsequent_indent=" " * 12,
        )
        target.write("\n".join(lines) + "\n")
    for name, words in (("decided_by", "to decide: "), ("otherwise", "")):
        if name in facts:
            target.write("\n" + "\n".join(wrap(f"{words}{facts[name]}", 100)) + "\n")


_VERDICTS = {
    "impossible": "impossible as it is said",
    "needs": "questioned: it needs more than was seen",
    "plausible": "plausible: nothing known speaks against it",
}
