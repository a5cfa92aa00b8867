"""The options of `htk plan-serving`, and the server that they describe."""

import math
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.faces.cli.commands.options import group_options, refuse_unused
from htk.faces.cli.commands.plan_options import (
    described_model,
    kernels_option,
    model_options,
    network_options,
    replica_options,
)

if TYPE_CHECKING:
    from htk.planning.serving.objectives import Objective
    from htk.planning.serving.server import Server
    from htk.planning.serving.steady import Load

_LOAD = (
    click.option("--prompt", default="1024", help="Tokens per prompt, e.g. 1024 or 512,4096."),
    click.option("--generated", default=256, show_default=True, help="Tokens per answer."),
    click.option("--requests", help="Concurrent requests per replica, e.g. 1,8,64."),
    click.option("--slo-ttft", help="Limit of the time to the first token, e.g. 500ms."),
    click.option("--slo-tpot", help="Limit of the time per output token, e.g. 50ms."),
)
_ENGINE = (
    click.option("--chunk", default=8192, help="Maximum prompt tokens per iteration."),
    click.option("--draft-tokens", type=int, help="Tokens drafted for each iteration to verify."),
    click.option(
        "--acceptance", type=float, help="Share of drafted tokens that are accepted, e.g. 0.7."
    ),
    click.option("--draft-model", help="Draft model; by default one layer like the model's own."),
    click.option(
        "--host-time", default="500us", help="Exposed host time per iteration, e.g. 500us."
    ),
)
_MEMORY = (
    click.option(
        "--weights", default="bf16", show_default=True, help="Weights in bf16, fp8, int4, nvfp4, …"
    ),
    click.option("--kv-cache", default="bf16", help="Keys and values: bf16, fp8, fp4."),
)
_BETWEEN = ("network", "inter_gbps_per_gpu", "intra_gbps", "domain")  # GPUs that share a model
_FOUND_BY_LAYOUTS = ("requests", "tensor_parallel")
_MOST_LENGTHS = 64


def serving_options(function: Any) -> Any:
    """Return all that describes an inference server and its requests."""
    function = group_options("Memory", *_MEMORY)(function)
    function = replica_options(function)
    function = group_options("Server", *_ENGINE, kernels_option)(function)
    return group_options("Requests", *_LOAD)(model_options(function))


def check_options(context: click.Context) -> None:
    """Refuse options that change nothing of what is shown."""
    show = context.params["show"]
    if show != "layouts":
        refuse_unused(dict.fromkeys(_BETWEEN, ("tensor_parallel", "pipeline_parallel")))
        return
    for name in _FOUND_BY_LAYOUTS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"--show layouts finds {flag} itself: leave it out, or ask for a map")


def described_server(arguments: Fields) -> "Server":
    """Return the server that the options describe."""
    from htk.base.core.humanize import parse_duration
    from htk.physics.hardware import gpu as of_catalogue
    from htk.planning.serving.server import Server

    model = described_model(arguments)
    between = network_options(arguments)
    if arguments["kernels"] == "compiled":
        arguments["kernels"] = "fused"  # a compiler's kernels run in graphs as well
    return Server(
        model,
        of_catalogue(arguments["gpu"]),
        arguments["tensor_parallel"],
        arguments["pipeline_parallel"],
        arguments["weights"],
        arguments["kv_cache"],
        arguments["chunk"],
        _build_speculation(arguments),
        arguments["kernels"],
        arguments["gpus_per_node"],
        host_ns=parse_duration(arguments["host_time"]),
        price=arguments["price"],
        **between,
    )


def _build_speculation(arguments: Fields) -> Any:
    from htk.physics.presets import decoder
    from htk.planning.serving.server import Speculation

    tokens = arguments["draft_tokens"]
    share = arguments["acceptance"]
    name = arguments["draft_model"]
    if tokens is None and share is None and name is None:
        return None
    if share is not None and not 0 <= share <= 1:
        raise UsageError(f"--acceptance {share:g}: a share from 0 to 1 was expected")
    if tokens is None or share is None:
        raise UsageError("speculative decoding needs --draft-tokens and --acceptance, as measured")
    draft = decoder(name) if name else None
    return Speculation(tokens, share, draft)


def described_loads(arguments: Fields) -> "list[Load]":
    from htk.planning.serving.steady import Load

    return [Load(n, arguments["generated"]) for n in whole_numbers(arguments["prompt"], "--prompt")]


def whole_numbers(text: str, flag: str) -> list[int]:
    """Return the numbers of a list such as 512,4096."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST_LENGTHS:
        raise UsageError(f"{flag}: {len(parts)} numbers, at most {_MOST_LENGTHS} are planned for")
    if not all(part.isascii() and part.isdigit() and part.strip("0") for part in parts):
        raise UsageError(f"{flag} {text[:60]!r}: whole numbers from 1 were expected, e.g. 512,4096")
    if any(len(part) > _DIGITS for part in parts):
        raise UsageError(f"{flag} {text[:60]!r}: at most {10**_DIGITS - 1} is planned for")
    return [int(part) for part in parts]


_DIGITS = 8


def described_objective(arguments: Fields) -> "Objective | None":
    from htk.base.core.humanize import parse_duration
    from htk.planning.serving.objectives import Objective

    first = arguments["slo_ttft"]
    token = arguments["slo_tpot"]
    if first is None and token is None:
        return None
    ttft_ns = math.inf if first is None else parse_duration(first)
    tpot_ns = math.inf if token is None else parse_duration(token)
    return Objective(
        ttft_ns,
        tpot_ns,
    )
