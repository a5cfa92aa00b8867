"""An inference server with other requests, contexts, prompts, captured batches, weights or GPUs.

Kernels on all tokens of an iteration read weights and compute: far below the balance of the GPU
more tokens cost nothing, far above it they cost in proportion; narrower weights are read sooner.
Attention reads the keys and values of all requests, and looks at pairs of tokens of prompts. A
captured graph computes as many tokens as it was captured for. GPUs that share a model by tensor
parallelism divide products and attention, and sum activations twice a layer.
"""

from dataclasses import dataclass, replace

import numpy as np

from htk.base.core.humanize import format_bytes
from htk.base.errors import UsageError
from htk.physics.decoder import Decoder
from htk.physics.presets import decoder
from htk.planning.serving.formats import weight_format
from htk.planning.serving.iteration import ServerCompute
from htk.planning.serving.server import Server
from htk.whatif.edit_arguments import against, pairs, positive_integer
from htk.whatif.edits.batch import shortest
from htk.whatif.served_iteration import (
    Bounds,
    ServedIteration,
    product_ratio,
    recorded,
    recorded_formats,
)
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import Work, inserted

NAME = "serving"
HELP = "A server's requests=2x,context=4096,prefill=512,captured=64,weights=int4,tp=2."

_KNOWN = ("requests", "context", "prefill", "captured", "weights", "model", "tp")
_MATRIX = ("gemm", "convolution", "moe")


@dataclass(frozen=True)
class _Asked:
    iteration: ServedIteration
    requests: float  # times the recorded ones
    model: Decoder | None
    tensor: int
    weights: str | None


def apply(model: StepModel, value: str) -> StepModel:
    options = pairs(value, NAME, _KNOWN)
    now = model.served or recorded(model.facts.tables)
    return _changed(model, now, _asked(model, now, options))


def _asked(model: StepModel, now: ServedIteration, options: dict[str, str]) -> _Asked:
    how = "the recorded one is not known (ranges round iterations tell)"
    times = {
        name: against(options[name], was, name, how) if name in options else 1.0
        for name, was in (
            ("requests", now.requests), ("context", now.context), ("prefill", now.prompt_tokens)
        )
    }  # fmt: skip
    new = now.asked(times["requests"], times["context"], times["prefill"])
    if "captured" in options:
        new = replace(new, captured=float(positive_integer(options["captured"], "captured")))
        if new.captured < new.requests:
            raise UsageError(f"captured={new.captured:g} does not hold {new.requests:g} requests")
    elif new.requests > new.captured:
        new = replace(new, captured=0.0)
    weights = options.get("weights")
    if weights is not None:
        if model.device is None:
            raise UsageError(f"weights={weights}: the catalogue does not hold the recorded GPU")
        new = replace(new, weights=weight_format(weights, model.device))
    described = decoder(options["model"]) if "model" in options else None
    tensor = positive_integer(options["tp"], "tp") if "tp" in options else 1
    if tensor > 1 and described is None:
        raise UsageError(f"tp={tensor} needs model=NAME, for the width of what its GPUs all-reduce")
    return _Asked(new, times["requests"], described, tensor, weights)


def _changed(model: StepModel, now: ServedIteration, asked: _Asked) -> StepModel:
    if not now.tokens:
        raise UsageError(f"{NAME}: the ranges round iterations do not tell their tokens")
    new, bounds = asked.iteration, Bounds(model.device)
    names = _kernel_names(model)
    families = model.facts.family
    attends = families.isin("attention")
    matrix = families.isin(*_MATRIX)
    looked = bounds.attention(now)
    attention = bounds.attention(new) / looked if looked else 1.0
    products = product_ratio(recorded_formats(names), (bounds, now), (bounds, new))
    ratio = np.where(matrix, products / asked.tensor, new.tokens / now.tokens)
    ratio = np.where(attends, attention / asked.tensor, ratio)
    length = model.lengths().astype(np.float64)
    floor = np.minimum(length, shortest(model, length))
    changed = model.with_lengths(model.is_compute, floor + (length - floor) * ratio)
    served = asked.requests if now.requests else new.prompt_tokens / max(now.prompt_tokens, 1.0)
    computed = (new.requests + new.prompt_tokens) / (now.requests + now.prompt_tokens)
    changed = replace(
        changed,
        samples=model.samples * served,
        work=model.work * computed / served,
        devices=model.devices * asked.tensor,
        activation_scale=model.activation_scale * new.tokens / now.tokens,
        low_confidence=True,
        served=new,
    )
    changed = _with_sums(changed, asked)
    words = _words(now, new, bounds.balance)
    return changed.with_uncertainty("compute", 0.15).with_assumption(*words, *_fit(changed, asked))


def _kernel_names(model: StepModel) -> list[str | None]:
    kernels = model.facts.tables.get("kernels")
    if kernels is None or not kernels.num_rows:
        return [None] * len(model.facts.family)
    return [str(name) for name in kernels["name"].take(model.facts.rows).to_pylist()]


def _server(model: StepModel, asked: _Asked) -> Server | None:
    if asked.model is None or model.device is None:
        return None
    per_node = model.facts.gpus_per_node or 8
    return Server(
        asked.model, model.device, asked.tensor, weights=asked.weights or "bf16",
        gpus_per_node=max(per_node, asked.tensor),
    )  # fmt: skip


def _with_sums(model: StepModel, asked: _Asked) -> StepModel:
    """Add what tensor-parallel GPUs send each other, which nothing hides."""
    if asked.tensor == 1:
        return model
    server = _server(model, asked)
    if server is None:
        raise UsageError(f"tp={asked.tensor}: the catalogue does not hold the recorded GPU")
    each = ServerCompute(server).communication_ns(asked.iteration.tokens)
    acts = model.graph.activities
    last = int(np.argmax(model.graph.time[model.graph.end]))
    earlier = np.flatnonzero((acts.lane == acts.lane[last]) & (acts.end <= acts.start[last]))
    before = tuple(earlier[np.argsort(acts.end[earlier])][-1:].tolist())
    sums = Work(  # all of them in a row, before the last activity
        last, each * asked.iteration.count, before, (last,), collective="all_reduce",
        group_size=asked.tensor, per_node=asked.tensor,
    )  # fmt: skip
    return inserted(model, [sums]).with_uncertainty("communication", 0.5)


def _words(now: ServedIteration, new: ServedIteration, balance: float) -> tuple[str, ...]:
    words = [
        f"{new.requests:,.0f} requests of {new.context:,.0f} tokens and {new.prompt_tokens:,.0f} "
        f"of prompts, in place of {now.requests:,.0f}, {now.context:,.0f} and "
        f"{now.prompt_tokens:,.0f}",
        f"reading weights costs products as much as {balance:.0f} tokens do",
    ]
    if new.weights is not None:
        words.append("weights are of 16 bits now, but where names of kernels say otherwise")
    if now.prompt_tokens and now.requests:
        words.append("eight heads of queries share keys and values")
    return tuple(words)


def _fit(model: StepModel, asked: _Asked) -> tuple[str, ...]:
    """Tell of a known model whether keys and values fit."""
    server = _server(model, asked)
    if server is None:
        return ()
    new = asked.iteration
    held = server.kv_bytes(new.requests, new.context)
    fits = held <= server.kv_room_bytes
    return (
        f"keys and values of {new.requests:,.0f} requests take {format_bytes(held)} of a GPU, which"
        f" {'fits' if fits else 'does not fit'} beside the weights",
    )
