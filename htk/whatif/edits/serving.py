"""An inference server with other requests, contexts, prompts or captured batches.

Kernels on all tokens of an iteration read weights first: below the balance of the GPU (its matrix
rate over its memory rate, in tokens) more tokens cost nothing, above it they cost in proportion.
Attention reads the keys and values of all requests, and looks at pairs of tokens of prompts. A
captured graph computes as many tokens as it was captured for.
"""

from dataclasses import dataclass, replace

import numpy as np

from htk.analyses.run.serving_iterations import serving_iterations
from htk.columns.arrow import numbers
from htk.errors import AnalysisError, MissingTable, UsageError
from htk.whatif.edit_arguments import against, pairs, positive_integer
from htk.whatif.step_model import StepModel

NAME = "serving"
HELP = "requests=2x,context=4096,prefill=512,captured=64: of an iteration of a server."

_KNOWN = ("requests", "context", "prefill", "captured")
_BALANCE = 200.0  # tokens, of usual GPUs
_SHORTEST_NS = 2_500.0


@dataclass(frozen=True)
class Iteration:
    requests: float  # being answered, a token each
    context: float  # tokens of each
    prefill: float  # tokens of prompts
    captured: float = 0.0  # tokens that a graph computes, whatever is asked; 0: as asked

    @property
    def tokens(self) -> float:
        return max(self.requests, self.captured) + self.prefill

    @property
    def pairs(self) -> float:
        """Tokens looked at: contexts of requests, and half of the square of the prompts."""
        return self.requests * self.context + self.prefill * self.prefill / 2


def apply(scene: StepModel, value: str) -> StepModel:
    options = pairs(value, NAME, _KNOWN)
    now = recorded(scene)
    how = "the recorded one is not known (ranges round iterations tell)"
    new = now
    for name in ("requests", "context", "prefill"):
        if name in options:
            was = getattr(now, name)
            new = replace(new, **{name: was * against(options[name], was, name, how)})
    if "captured" in options:
        new = replace(new, captured=float(positive_integer(options["captured"], "captured")))
        if new.captured < new.requests:
            raise UsageError(f"captured={new.captured:g} does not hold {new.requests:g} requests")
    return _changed(scene, now, new)


def recorded(scene: StepModel) -> Iteration:
    """The median iteration of the recording."""
    tables = scene.facts.tables
    try:
        iterations = serving_iterations.function(
            tables["annotations"], tables["kernels"], tables["kernel_links"], match=None
        )
    except (AnalysisError, MissingTable, UsageError) as why:
        raise UsageError(f"{NAME}: no iterations of a server are seen: {why}") from None

    def median(name: str) -> float:
        values = numbers(iterations[name].drop_null())
        return float(np.median(values)) if len(values) else 0.0

    requests = median("decode_requests")
    context = median("context_tokens") / requests if requests else 0.0
    padded = median("padded_tokens")
    prefill = median("prefill_tokens")
    return Iteration(requests, context, prefill, max(padded - prefill, 0.0))


def _changed(scene: StepModel, now: Iteration, new: Iteration) -> StepModel:
    gpu = scene.device
    balance = _BALANCE
    if gpu is not None:
        balance = 1e3 * gpu.achievable_half_tflops / gpu.memory_gbps
    if not now.tokens:
        raise UsageError(f"{NAME}: the ranges round iterations do not tell their tokens")
    dense = max(new.tokens, balance) / max(now.tokens, balance)
    looked = new.pairs / now.pairs if now.pairs else 1.0
    families = scene.facts.family
    attention = np.array([f == "attention" for f in families], bool)
    matrix = np.array([f in ("gemm", "convolution") for f in families], bool)
    length = scene.lengths().astype(np.float64)
    floor = np.minimum(length, _SHORTEST_NS)
    rest = np.where(matrix, dense, new.tokens / now.tokens)
    ratio = np.where(attention, looked, rest)
    changed = scene.with_lengths(scene.is_compute, floor + (length - floor) * ratio)
    served = new.requests / now.requests if now.requests else new.prefill / max(now.prefill, 1.0)
    return (
        replace(
            changed,
            samples=scene.samples * served,
            activation_scale=scene.activation_scale * new.tokens / now.tokens,
            low_confidence=True,
        )
        .with_uncertainty("compute", 0.15)
        .with_assumption(
            f"{new.requests:g} requests of {new.context:g} tokens and {new.prefill:g} of prompts, "
            f"in place of {now.requests:g}, {now.context:g} and {now.prefill:g}; weights are read "
            f"once for up to {balance:.0f} tokens"
        )
    )
