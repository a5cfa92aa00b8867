"""The iteration of an inference server that a recording holds, and what its kernels are bound by.

Products with weights read them and compute, which hide each other in part, so that few tokens cost
little more than one. Attention of answered requests reads keys and values; that of prompts computes
pairs of tokens. Names of ranges tell tokens; names of kernels, where they do, the weights' format.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from htk.analyses.run.serving_iterations import serving_iterations
from htk.base.columns.arrow import codes_of, numbers, truths
from htk.base.columns.types import Floats
from htk.base.errors import AnalysisError, MissingTable, UsageError
from htk.base.names.server_ranges import is_capture_range, is_server_range
from htk.physics.hardware import Gpu
from htk.physics.kernel_time import partly_hidden
from htk.physics.op_costs.serving import Tokens, sides_of
from htk.planning.plan.compute import PRODUCTS, achievable
from htk.planning.serving.formats import WEIGHTS, WeightFormat

_BALANCE = 200.0  # tokens at which products in 16 bits take as long as reading, of usual GPUs
_SHARED = 8  # heads of queries that usually read the same keys and values
_FORMATS = ((re.compile(r"mxfp4"), "mxfp4"), (re.compile(r"fp8|_f8|e4m3|F8", re.ASCII), "fp8"))


@dataclass(frozen=True)
class ServedIteration:
    """The median iteration. Counts of tokens and requests."""

    requests: float = 0.0  # being answered, a token each
    context: float = 0.0  # tokens that each of them looks back on
    prompt_tokens: float = 0.0
    prompt_pairs: float = 0.0  # of tokens, that prompts look at
    captured: float = 0.0  # tokens that a graph computes for answers; 0: as many as asked
    count: int = 1  # iterations of the recording
    answering: int = 1  # of those: that answer requests
    generated: float = 0.0  # tokens of all of them together
    weights: WeightFormat | None = None  # asked for; None: as recorded

    @property
    def tokens(self) -> float:
        return max(self.requests, self.captured) + self.prompt_tokens

    def tpot_ns(self, recording_ns: float) -> float | None:
        """Return the time per output token of a request; None: nothing is answered."""
        return recording_ns / self.answering if self.generated else None

    def tokens_per_s(self, recording_ns: float) -> float | None:
        return self.generated / recording_ns * 1e9 if self.generated else None

    def asked(self, requests: float, context: float, prompt_tokens: float) -> "ServedIteration":
        """Return it with so many times as many requests, tokens of each, and tokens of prompts, of
        as many prompts."""
        return replace(
            self,
            requests=self.requests * requests,
            context=self.context * context,
            prompt_tokens=self.prompt_tokens * prompt_tokens,
            prompt_pairs=self.prompt_pairs * prompt_tokens**2,
            generated=self.generated * requests,
        )


def of_server(tables: Mapping[str, pa.Table]) -> ServedIteration | None:
    """Return the iteration of a recording that vLLM or SGLang marked as theirs; None: none is."""
    annotations = tables.get("annotations")
    if annotations is None or not annotations.num_rows:
        return None
    _, names = codes_of(annotations["name"])
    if not any(is_server_range(str(name)) for name in names.to_pylist()):
        return None
    try:
        return recorded(tables)
    except UsageError:
        return None


def recorded(tables: Mapping[str, pa.Table]) -> ServedIteration:
    """Return the median iteration of a recording, by ranges of any server."""
    _refuse_captures(tables["annotations"])
    try:
        rows = serving_iterations.function(
            tables["annotations"],
            tables["kernels"],
            tables["kernel_links"],
            tables["idle_causes"],
            match=None,
        )
    except (AnalysisError, MissingTable, UsageError) as why:
        raise UsageError(f"serving: no iterations of a server were recorded: {why}") from None
    first = numbers(rows["rank"], -1) == numbers(rows["rank"], -1)[0]  # ranks repeat each other
    own = rows.filter(pa.array(first))
    requests = _median(own, "decode_requests")
    prompt_tokens, padded = _median(own, "prefill_tokens"), _median(own, "padded_tokens")
    prompts, answers = _sides(tables["annotations"])
    context = answers.keys or max(_median(own, "context_tokens") - prompts.keys, 0)
    each = numbers(own["decode_requests"].fill_null(0)).astype(np.float64)
    return ServedIteration(
        requests,
        context / requests if requests else 0.0,
        prompt_tokens,
        prompts.pairs or prompt_tokens * prompt_tokens / 2,
        max(padded - prompt_tokens, 0.0),
        own.num_rows,
        max(int((each > 0).sum()), 1),
        float(each.sum()),
    )


def _refuse_captures(annotations: pa.Table) -> None:
    """Refuse a recording of engines that record their graphs: it serves nothing."""
    _, names = codes_of(annotations["name"])
    listed = [str(name) for name in names.to_pylist()]
    captures = [name for name in listed if is_capture_range(name)]
    if captures and not any(is_server_range(name) for name in listed):
        raise UsageError(
            f"serving: {captures[0]} is of a server that captures its graphs, which answers nobody;"
            " ask the recording in which they ran"
        )


def _median(rows: pa.Table, name: str) -> float:
    values = numbers(rows[name].drop_null())
    return float(np.median(values)) if len(values) else 0.0


def _sides(annotations: pa.Table) -> tuple[Tokens, Tokens]:
    """Return the median sums of requests that are read and of those that are answered."""
    codes, names = codes_of(annotations["name"])
    by_name = [sides_of(str(name)) for name in names.to_pylist()]
    listed = [by_name[code] for code in codes[~truths(annotations["on_gpu"])].tolist()]
    sides = [side for side in listed if side is not None]
    if not sides:
        return Tokens(0, 0, 0), Tokens(0, 0, 0)
    medians = [
        [round(float(np.median([getattr(side[i], f) for side in sides]))) for f in _SUMS]
        for i in (0, 1)
    ]
    return Tokens(*medians[0]), Tokens(*medians[1])


_SUMS = ("queries", "keys", "pairs")


@dataclass(frozen=True)
class Bounds:
    """What kernels of an iteration are bound by on a GPU; of an unknown one as on usual GPUs."""

    gpu: Gpu | None

    @cached_property
    def balance(self) -> float:
        """Tokens at which reading weights of 16 bits takes as long as their products."""
        if self.gpu is None:
            return _BALANCE
        return 1e3 * PRODUCTS * self.gpu.achievable_half_tflops / self.gpu.achievable_memory_gbps

    def products(self, tokens: float, weights: WeightFormat) -> float:
        """Return the time of products for a weight, in times of reading one of 16 bits of the
        usual GPU, or in ns."""
        if self.gpu is None:
            faster = {"fp8": 2.0, "fp4": 4.0}.get(weights.rate, 1.0)
            return partly_hidden(weights.weight_bytes / 2, tokens / _BALANCE / faster)
        kind = weights.rate if self.gpu.has(weights.rate) else "bf16"
        rate = PRODUCTS * achievable(self.gpu, kind) * 1e3
        read = weights.weight_bytes / self.gpu.achievable_memory_gbps
        return partly_hidden(read, 2 * tokens / rate)

    def attention(self, iteration: ServedIteration) -> float:
        """Return the time of attention for a width of keys and values, in the same way: an answered
        request waits for its keys and values, which several heads share, a prompt for products."""
        reading = iteration.requests * iteration.context
        computing = iteration.prompt_pairs * _SHARED / self.balance
        gbps = 1.0 if self.gpu is None else self.gpu.achievable_memory_gbps
        return (reading + computing) / gbps


def recorded_formats(kernel_names: list[str | None]) -> list[WeightFormat]:
    """Return the format of each kernel's weights, as far as names tell; else 16 bits."""
    by_name = {name: _format(name or "") for name in set(kernel_names)}
    return [by_name[name] for name in kernel_names]


def _format(name: str) -> WeightFormat:
    for pattern, kind in _FORMATS:
        if pattern.search(name):
            return WEIGHTS[kind]
    return WEIGHTS["bf16"]


def product_ratio(
    formats: list[WeightFormat],
    before: tuple[Bounds, ServedIteration],
    after: tuple[Bounds, ServedIteration],
) -> Floats:
    """Return by what each product's time is multiplied."""
    (old, was), (new, now) = before, after
    ratio = {
        kind: new.products(now.tokens, now.weights or kind)
        / old.products(was.tokens, was.weights or kind)
        for kind in set(formats)
    }
    return np.array([ratio[kind] for kind in formats], np.float64)
