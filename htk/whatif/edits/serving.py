"""An inference server with other requests, contexts, prompts, captured batches, weights or GPUs.

Kernels on all tokens of an iteration read weights and compute: far below the balance of the GPU
more tokens cost nothing, far above it they cost in proportion; narrower weights are read sooner.
Attention reads the keys and values of all requests, and looks at pairs of tokens of prompts. A
captured graph computes as many tokens as it was captured for. GPUs that share a model by tensor
parallelism divide products and attention, and sum activations twice a layer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from htk.base.columns.types import Floats, Ints, Mask, fill_none, take_or
from htk.base.core.humanize import format_bytes
from htk.base.errors import UsageError
from htk.base.names.kinds import is_of_experts
from htk.physics.decoder import Decoder
from htk.physics.presets import decoder
from htk.planning.serving.formats import kv_element_bytes, weight_format
from htk.planning.serving.iteration import ServerCompute
from htk.planning.serving.server import Server, Speculation
from htk.whatif.edit_arguments import parse_pairs, parse_ratio, positive_integer
from htk.whatif.edits.batch import find_shortest_time
from htk.whatif.served_iteration import (
    Bounds,
    ServedIteration,
    iteration_of_kernels,
    product_ratio,
    read_served_iteration,
    recorded_formats,
    served_format,
)
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work, insert_works

NAME = "serving"
HELP = (
    "A server's requests=2x,context=4096,prefill=512,chunk=2048,captured=64,weights=int4,kv=fp8,"
    "draft=3,acceptance=0.7,apart=decode,tp=2,dp=2,ep=8."
)

_KNOWN = (
    *("requests", "context", "prefill", "chunk", "captured", "weights", "kv", "draft"),
    *("acceptance", "apart", "model", "tp", "dp", "ep"),
)
_MATRIX = ("gemm", "convolution", "moe")
_LAYERS = 32  # of a model that is not named: what a layer that drafts is a part of
# Tokens whose activations take as long to move as a kernel takes to begin and to end: measured of
# norms and activations on H100, at 1 to 256 tokens.
_LATENT = 200.0
_COMBINES = re.compile(r"combine|_reduce", re.IGNORECASE)  # what parts of attention found
_LEAST_LEFT = 0.1
_HOW = "the recorded one is not known (ranges round iterations tell)"


@dataclass(frozen=True)
class _Asked:
    iteration: ServedIteration
    model: Decoder | None
    tensor: int
    experts: int  # GPUs that share the experts
    drafted: int  # further tokens drafted for each request
    weights: str | None


def apply(model: StepModel, value: str) -> StepModel:
    options = parse_pairs(value, NAME, _KNOWN)
    now = model.served or read_served_iteration(model.facts.tables, model.replayed_rows)
    _refuse_what_is_not_recorded(model, now, options)
    asked = _parse_asked(model, now, options)
    return _change_model(model, now, asked)


def _refuse_what_is_not_recorded(
    model: StepModel, now: ServedIteration, options: Mapping[str, str]
) -> None:
    """Refuse to change what no iteration of the recording does."""
    if now.untold and not now.prompt_tokens and not now.requests:
        raise UsageError(f"{NAME}: the ranges round iterations do not tell the tokens of prompts")
    if not now.tokens or not now.served_tokens:
        raise UsageError(f"{NAME}: the ranges round iterations do not tell their tokens")
    answers = [n for n in ("requests", "context", "captured", "draft", "kv") if n in options]
    prompts = [name for name in ("prefill", "chunk") if name in options]
    if answers and not now.requests:
        raise UsageError(
            f"{NAME} {answers[0]}: this recording answers no request; ask prefill=2x for more "
            "tokens of prompts"
        )
    if prompts and not now.prompts:
        raise UsageError(f"{NAME} {prompts[0]}: this recording reads no prompts; ask requests=2x")
    if "apart" in options and not (now.prompts and now.requests):
        raise UsageError(f"{NAME} apart: this recording does not both read and answer")
    if "acceptance" in options and "draft" not in options:
        raise UsageError(f"{NAME} acceptance: give the drafted tokens too, as in draft=3")
    families = model.facts.family
    if "weights" in options and not families.isin(*_MATRIX).any():
        raise UsageError(f"{NAME} weights: no product with weights was recorded")
    if {"kv", "context"} & {*options} and not families.isin("attention").any():
        raise UsageError(f"{NAME}: no attention was recorded, so keys and values change nothing")


def _parse_asked(model: StepModel, now: ServedIteration, options: dict[str, str]) -> _Asked:
    times = {
        name: parse_ratio(options[name], was, name, _HOW) if name in options else 1.0
        for name, was in (
            ("requests", now.requests), ("context", now.context), ("prefill", now.prompts)
        )
    }  # fmt: skip
    new = now.changed(lambda i: i.asked(times["requests"], times["context"], times["prefill"]))
    new = _separate_side(new, options.get("apart"))
    if "chunk" in options:
        new = _in_chunks(new, positive_integer(options["chunk"], "chunk"))
    drafted = 0
    if "draft" in options:
        drafted = positive_integer(options["draft"], "draft")
        new = _draft_tokens(new, Speculation(drafted, _parse_acceptance(options.get("acceptance"))))
    new = _capture_graphs(new, options.get("captured"))
    weights = options.get("weights")
    if weights is not None:
        new = _with_weights(model, new, weights)
    if "kv" in options:
        share = kv_element_bytes(options["kv"]) / kv_element_bytes("bf16")
        new = new.changed(lambda i: replace(i, kv=share))
    described = decoder(options["model"]) if "model" in options else None
    tensor, replicas, experts = _parse_sharing(options, described)
    if max(tensor, experts) > 1 and model.is_comm.any():
        raise UsageError(f"{NAME} tp, ep: GPUs share their model already: ask htk plan-serving")
    if experts > 1 and not _of_experts(model).any():
        raise UsageError(f"{NAME} ep: no products of experts were recorded")
    if replicas > 1:
        new = new.changed(lambda i: i.shared_by(replicas))
    if not new.served_tokens:
        raise UsageError(f"{NAME}: the replayed iterations would have nothing left to do")
    if 0 < new.requests < 1:
        raise UsageError(f"{NAME}: a GPU would answer less than one request")
    return _Asked(new, described, tensor, experts, drafted, weights)


def _parse_sharing(options: Mapping[str, str], described: Decoder | None) -> tuple[int, int, int]:
    """Return how many GPUs share a model's layers, its requests, and its experts."""
    counts = {name: positive_integer(options.get(name, "1"), name) for name in ("tp", "dp", "ep")}
    for name in ("tp", "ep"):
        if counts[name] > 1 and described is None:
            raise UsageError(
                f"{name}={counts[name]} needs model=NAME, for the width of what its GPUs send each "
                "other"
            )
    experts = counts["ep"]
    if described is not None and described.experts < experts:
        raise UsageError(f"ep={experts}: {described.name} has {described.experts} experts")
    return counts["tp"], max(counts["dp"], experts), experts


def _parse_acceptance(value: str | None) -> float:
    if value is None:
        raise UsageError(
            f"{NAME} draft: give the share of drafted tokens that is right, as you measured it: "
            "acceptance=0.7"
        )
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"acceptance {value!r}: a share from 0 to 1 was expected") from None


def _separate_side(new: ServedIteration, side: str | None) -> ServedIteration:
    """Return what remains where prompts are read on other GPUs, or requests answered there."""
    if side is None:
        return new
    if side == "decode":
        return new.changed(lambda i: replace(i, prompt_tokens=0.0, prompt_pairs=0.0, read=0.0))
    if side == "prefill":
        return new.changed(lambda i: replace(i, requests=0.0, captured=0.0, generated=0.0))
    raise UsageError(f"apart={side}: decode or prefill")


def _in_chunks(new: ServedIteration, chunk: int) -> ServedIteration:
    if chunk >= max(i.prompt_tokens for i in (new, *new.each)):
        raise UsageError(f"chunk={chunk}: no iteration reads more tokens of prompts than that")

    def cut_prompts(iteration: ServedIteration) -> ServedIteration:
        share = min(chunk / iteration.prompt_tokens, 1.0) if iteration.prompt_tokens else 1.0
        return replace(
            iteration,
            prompt_tokens=iteration.prompt_tokens * share,
            prompt_pairs=iteration.prompt_pairs * share,  # a chunk looks at all before it
            read=iteration.read * share,
        )

    cut_all = new.changed(cut_prompts)
    own = sum(i.read for i in cut_all.each)
    was = sum(i.read for i in new.each)
    read = new.read * own / was if was else cut_all.read
    return replace(cut_all, read=read)


def _draft_tokens(new: ServedIteration, speculation: Speculation) -> ServedIteration:
    return new.changed(
        lambda i: replace(
            i,
            verified=speculation.draft_tokens + 1.0,
            accepted=speculation.tokens,
            generated=i.generated / i.accepted * speculation.tokens,
        )
    )


def _capture_graphs(new: ServedIteration, value: str | None) -> ServedIteration:
    """Return the iterations with graphs of that size, or without those that are too small."""
    if value is None:
        return new.changed(
            lambda i: replace(i, captured=0.0) if i.requests * i.verified > i.captured else i
        )
    size = float(positive_integer(value, "captured"))
    most = max(i.requests * i.verified for i in (new, *new.each))
    if size < most:
        raise UsageError(f"captured={size:g} does not hold {most:g} tokens")
    return new.changed(lambda i: replace(i, captured=size) if i.requests else i)


def _with_weights(model: StepModel, new: ServedIteration, weights: str) -> ServedIteration:
    if model.device is None:
        raise UsageError(f"weights={weights}: the catalogue does not hold the recorded GPU")
    wanted = weight_format(weights, model.device)
    matrix = model.facts.family.isin(*_MATRIX)
    names = [
        name for name, is_product in zip(_kernel_names(model), matrix, strict=True) if is_product
    ]
    formats = recorded_formats(names)
    if all(served_format(new, kind).weight_bytes <= wanted.weight_bytes for kind in formats):
        raise UsageError(
            f"weights={weights}: those that were recorded are in that format or a narrower one"
        )
    return new.changed(lambda i: replace(i, weights=wanted))


def _change_model(model: StepModel, now: ServedIteration, asked: _Asked) -> StepModel:
    new = asked.iteration
    length = model.lengths().astype(np.float64)
    lengths = _scale_lengths(model, length, now, asked)
    if asked.drafted:
        layers = asked.model.layers if asked.model else _LAYERS
        lengths = lengths * (1 + asked.drafted / layers)
    _refuse_what_is_far(model, length, lengths)
    changed = model.with_lengths(model.is_compute, lengths)
    served = new.served_tokens / now.served_tokens
    computed = new.real_tokens * new.replicas / now.replicas / now.real_tokens
    changed = replace(
        changed,
        samples=model.samples * served,
        work=model.work * computed / served,
        devices=model.devices * asked.tensor * new.replicas / now.replicas,
        activation_scale=model.activation_scale * new.tokens / now.tokens,
        low_confidence=True,
        served=new,
    )
    changed = _with_sums(changed, asked)
    words = _describe_change(now, new, Bounds(model.device).balance)
    return changed.with_uncertainty("compute", 0.15).with_assumption(
        *words, *_check_fit(changed, asked)
    )


def _refuse_what_is_far(model: StepModel, length: Floats, lengths: Floats) -> None:
    """Refuse an iteration of which too little was recorded to tell how long it takes."""
    left = float(lengths[model.is_compute].sum() / max(length[model.is_compute].sum(), 1.0))
    if left < _LEAST_LEFT:
        raise UsageError(
            f"{NAME}: {100 * left:.0f} % of the recorded work would be left, too little to tell "
            "how long it takes: record iterations nearer to that"
        )


def _scale_lengths(model: StepModel, length: Floats, now: ServedIteration, asked: _Asked) -> Floats:
    """Return how long kernels take, each by what its own iteration does."""
    names = _kernel_names(model)
    families = model.facts.family
    combines = np.array([bool(_COMBINES.search(name or "")) for name in names], bool)
    attends = families.isin("attention") & ~combines
    matrix = families.isin(*_MATRIX)
    shared = np.where(_of_experts(model), asked.experts, 1)
    formats = recorded_formats(names)
    floor = np.minimum(length, find_shortest_time(model, length))
    iteration = _find_iterations(model, len(length))
    lengths = length.copy()
    for k in np.unique(iteration).tolist():
        was = now.each[k] if 0 <= k < len(now.each) else now
        then = asked.iteration.each[k] if 0 <= k < len(asked.iteration.each) else asked.iteration
        if not was.tokens:
            continue
        rows = np.flatnonzero(iteration == k)
        bounds = Bounds(model.device)
        looked = bounds.attention(was)
        attention = bounds.attention(then) / looked if looked else 1.0
        products = product_ratio([formats[r] for r in rows], (bounds, was), (bounds, then))
        ratio = np.where(matrix[rows], products / shared[rows], attention) / asked.tensor
        moved = length[rows] * (then.tokens + _LATENT) / (was.tokens + _LATENT)
        scaled = floor[rows] + (length[rows] - floor[rows]) * ratio
        lengths[rows] = np.where(matrix[rows] | attends[rows], scaled, moved)
    return lengths


def _of_experts(model: StepModel) -> Mask:
    """Return which activities multiply for experts."""
    pairs_of = zip(_kernel_names(model), model.facts.family[:], strict=True)
    return np.array([is_of_experts(name or "", family or "") for name, family in pairs_of], bool)


def _find_iterations(model: StepModel, count: int) -> Ints:
    """Return the iteration of each activity, or NONE."""
    kernels = model.facts.tables.get("kernels")
    if kernels is None or not kernels.num_rows:
        return fill_none(count)
    return take_or(iteration_of_kernels(model.facts.tables), model.facts.rows)


def _kernel_names(model: StepModel) -> list[str | None]:
    kernels = model.facts.tables.get("kernels")
    if kernels is None or not kernels.num_rows:
        return [None] * len(model.facts.family)
    return [str(name) for name in kernels["name"].take(model.facts.rows).to_pylist()]


def _build_server(model: StepModel, asked: _Asked) -> Server | None:
    if asked.model is None or model.device is None:
        return None
    return Server(
        asked.model, model.device, asked.tensor, weights=asked.weights or "bf16",
        gpus_per_node=max(model.facts.gpus_per_node or 8, asked.tensor),
    )  # fmt: skip


def _with_sums(model: StepModel, asked: _Asked) -> StepModel:
    """Add what GPUs that share a model send each other, which nothing hides."""
    sharing = max(asked.tensor, asked.experts)
    if sharing == 1:
        return model
    server = _build_server(model, asked)
    if server is None:
        raise UsageError(f"tp={asked.tensor}: the catalogue does not hold the recorded GPU")
    tokens = asked.iteration.tokens
    each = ServerCompute(server).communication_ns(tokens) + _exchange_ns(server, asked, tokens)
    acts = model.graph.activities
    last = int(np.argmax(model.graph.time[model.graph.end]))
    earlier = np.flatnonzero((acts.lane == acts.lane[last]) & (acts.end <= acts.start[last]))
    before = tuple(earlier[np.argsort(acts.end[earlier])][-1:].tolist())
    kind = "all_reduce" if asked.tensor > 1 else "all_to_all"
    sums = Work(  # all of them in a row, before the last activity
        last, each * asked.iteration.count, before, (last,), collective=kind,
        group_size=sharing, per_node=sharing,
    )  # fmt: skip
    return insert_works(model, [sums]).with_uncertainty("communication", 0.5)


def _exchange_ns(server: Server, asked: _Asked, tokens: float) -> float:
    """Return the time in which tokens go to their experts and come back, twice a layer."""
    gpus = asked.experts
    model = server.model
    if gpus == 1:
        return 0.0
    size = 2 * tokens * model.active_experts * model.hidden * (gpus - 1) / gpus
    network = server.network
    latency = network.within.latency if gpus <= server.gpus_per_node else network.across.latency
    return 2 * model.layers * (latency + size * network.exchange_pace(gpus, server.gpus_per_node))


def _describe_change(now: ServedIteration, new: ServedIteration, balance: float) -> tuple[str, ...]:
    words = [
        f"an iteration has {new.requests:,.0f} requests of {new.context:,.0f} tokens and "
        f"{new.prompts:,.0f} of prompts, in place of {now.requests:,.0f}, {now.context:,.0f} and "
        f"{now.prompts:,.0f}",
        f"reading weights costs products as much as {balance:.0f} tokens do",
    ]
    if new.weights is not None:
        words.append(
            "weights are of 16 bits now, but where names of kernels say otherwise; narrower ones "
            "than were asked for stay"
        )
    if now.prompts and now.requests:
        words.append("eight heads of queries share keys and values")
    if new.verified > 1 and new.accepted == 1:
        words.append("an iteration gives each request one token: acceptance was not recorded")
    if new.kv != now.kv:
        words.append("keys and values are of 16 bits now")
    if new.replicas != now.replicas:
        words.append(f"{new.replicas} GPUs share the requests, each with all of the model")
    return tuple(words)


def _check_fit(model: StepModel, asked: _Asked) -> tuple[str, ...]:
    """Tell of a known model whether keys and values fit."""
    server = _build_server(model, asked)
    if server is None:
        return ()
    requests = asked.iteration.requests
    held = server.kv_bytes(requests, asked.iteration.context)
    fits = held <= server.kv_room_bytes
    return (
        f"keys and values of {requests:,.0f} requests take {format_bytes(held)} of a GPU, which"
        f" {'fits' if fits else 'does not fit'} beside the weights",
    )
