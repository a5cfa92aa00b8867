"""The iteration of an inference server that a recording holds, and what its kernels are bound by.

Products with weights read them and compute, which hide each other in part, so that few tokens cost
little more than one. Attention of answered requests reads keys and values; that of prompts computes
pairs of tokens. Names of ranges tell tokens; names of kernels, where they do, the weights' format.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import codes_of
from htk.base.columns.types import NONE, Floats, Ints, take_or
from htk.base.errors import AnalysisError, MissingTable, UsageError
from htk.base.mappings import NamedTables
from htk.base.names.kinds import NARROW_FORMATS, read_number_format
from htk.base.names.server_ranges import (
    DRAFT,
    IDLE,
    ServerRange,
    is_server_range,
)
from htk.physics.hardware import Gpu
from htk.physics.kernel_time import LARGE_PRODUCTS, partly_hidden
from htk.planning.serving.formats import WEIGHTS, WeightFormat
from htk.quantities.measures.server_iterations import ServerIterations

_BALANCE = 200.0  # tokens at which products in 16 bits take as long as reading, of usual GPUs
_SHARED = 8  # heads of queries that usually read the same keys and values


@dataclass(frozen=True)
class ServedIteration:
    """An iteration: of a recording the median of those that answer, or else of those that read.
    Counts of tokens and requests."""

    requests: float = 0.0  # being answered
    context: float = 0.0  # tokens that each of them looks back on; 0: not told
    prompt_tokens: float = 0.0
    prompt_pairs: float = 0.0  # of tokens, that prompts look at
    captured: float = 0.0  # tokens that a graph computes for answers; 0: as many as asked
    count: int = 1  # iterations of the recording
    answering: int = 1  # of those: that answer requests
    generated: float = 0.0  # tokens of all of them together
    weights: WeightFormat | None = None  # of products whose weights were wider; None: as recorded
    read: float = 0.0  # tokens of prompts, of all of them together
    verified: float = 1.0  # tokens computed for each answered request
    accepted: float = 1.0  # of those: that are given to it
    kv: float = 1.0  # bytes of keys and values, over the recorded
    replicas: int = 1  # that share the requests
    untold: bool = False  # there are prompts whose tokens are not told
    each: tuple["ServedIteration", ...] = field(
        default=(), repr=False
    )  # of the recording, in order

    @property
    def tokens(self) -> float:
        return max(self.requests * self.verified, self.captured) + self.prompt_tokens

    @property
    def real_tokens(self) -> float:
        """The tokens without padding."""
        return self.requests * self.verified + self.prompt_tokens

    @property
    def prompts(self) -> float:
        """The tokens of prompts of an iteration that reads some; 0: none does."""
        reading = [i.prompt_tokens for i in self.each if i.prompt_tokens]
        return float(np.median(reading)) if reading else self.prompt_tokens

    @property
    def served_tokens(self) -> float:
        """The tokens of all iterations together, read or given."""
        return self.generated + self.read

    def tpot_ns(self, recording_ns: float) -> float | None:
        """Return the time per output token of a request; None: nothing is answered."""
        return recording_ns / self.answering / self.accepted if self.generated else None

    def tokens_per_s(self, recording_ns: float) -> float | None:
        """Return all tokens a second: those read and those given."""
        return self.served_tokens / recording_ns * 1e9 if self.served_tokens else None

    def generated_per_s(self, recording_ns: float) -> float | None:
        """Return the tokens a second that are given to requests."""
        return self.generated / recording_ns * 1e9 if self.generated else None

    def changed(
        self, change: Callable[["ServedIteration"], "ServedIteration"]
    ) -> "ServedIteration":
        """Return the iteration after a change of it and of each of the recording."""
        return replace(change(self), each=tuple(change(iteration) for iteration in self.each))

    def shared_by(self, replicas: int) -> "ServedIteration":
        """Return what each of so many replicas does that share the requests."""
        return replace(
            self,
            requests=self.requests / replicas,
            prompt_tokens=self.prompt_tokens / replicas,
            prompt_pairs=self.prompt_pairs / replicas,
            captured=self.captured / replicas,
            replicas=self.replicas * replicas,
        )

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
            read=self.read * prompt_tokens,
        )


def of_server(tables: NamedTables, replayed: Ints | None = None) -> ServedIteration | None:
    """Return the iteration of a recording that a server marked as its own; None: none is.
    `replayed`: see `read_served_iteration`."""
    annotations = tables.get("annotations")
    if annotations is None or not annotations.num_rows:
        return None
    _, names = codes_of(annotations["name"])
    if not any(is_server_range(str(name)) for name in names.to_pylist()):
        return None
    try:
        return read_served_iteration(tables, replayed)
    except UsageError:
        return None


def read_served_iteration(tables: NamedTables, replayed: Ints | None = None) -> ServedIteration:
    """Return the median iteration of a recording, by ranges of any server.

    `replayed`: the rows of `kernels` that are looked at, where a profiler marked steps: the
    iterations that launched them count.
    """
    iterations = _iterations_of(tables)
    each = tuple(_build_iteration(facts) for facts in iterations.facts)
    chosen = np.arange(len(each))
    if replayed is not None and tables["kernels"].num_rows:
        launching = iterations.launching(tables["kernels"], tables["kernel_links"])
        launched = np.unique(take_or(launching, replayed))
        if (launched != NONE).any():
            chosen = launched[launched != NONE]
    replicas = _split_replicas(iterations, chosen, _find_positions(tables["collectives"]))
    own = [each[k] for k in replicas[0].tolist()]
    of_all = [each[k] for rows in replicas for k in rows.tolist()]
    answering = [iteration for iteration in own if iteration.requests]
    usual = answering or [iteration for iteration in own if iteration.prompt_tokens] or own

    def find_median(name: str) -> float:
        return float(np.median([getattr(iteration, name) for iteration in usual]))

    return ServedIteration(
        requests=find_median("requests"),
        context=find_median("context"),
        prompt_tokens=find_median("prompt_tokens"),
        prompt_pairs=find_median("prompt_pairs"),
        captured=find_median("captured"),
        verified=find_median("verified"),
        count=len(own),
        answering=max(len(answering), 1),
        generated=sum(iteration.generated for iteration in of_all),
        read=sum(iteration.read for iteration in of_all),
        untold=any(iteration.untold for iteration in own),
        each=each,
    )


def _split_replicas(
    iterations: ServerIterations, chosen: Ints, positions: Mapping[int, int]
) -> list[Ints]:
    """Return the iterations of one rank of each replica: ranks that share a model repeat each
    other's iterations, replicas have requests of their own, and so have ranks that exchange tokens
    for experts; `positions`: of these in their groups."""
    facts: dict[tuple[int, tuple[ServerRange, ...]], Ints] = {}
    for rank in np.unique(iterations.rank).tolist():
        rows = chosen[iterations.rank[chosen] == rank]
        ranges = tuple(iterations.facts[k] for k in rows.tolist())
        facts.setdefault((positions.get(rank, 0), ranges), rows)
    return [*facts.values()]


def _find_positions(collectives: pa.Table) -> dict[int, int]:
    """Return the position of each rank in its group of those that exchange tokens by all-to-all;
    where the group is not known, the rank itself."""
    exchanges = collectives.filter(pc.equal(collectives["type"], "all_to_all"))
    pairs = exchanges.select(["rank", "group_ranks"]).group_by(["rank", "group_ranks"])
    positions = {}
    for row in pairs.aggregate([]).to_pylist():
        members = json.loads(row["group_ranks"] or "[]")
        rank = row["rank"]
        positions[rank] = members.index(rank) if rank in members else rank
    return positions


def _iterations_of(tables: NamedTables) -> ServerIterations:
    try:
        return ServerIterations.from_annotations(tables["annotations"])
    except (AnalysisError, MissingTable, UsageError) as why:
        raise UsageError(f"serving: no iterations of a server were recorded: {why}") from None


def _build_iteration(facts: ServerRange) -> ServedIteration:
    """Return what a range tells of one iteration."""
    prompts = facts.prompts
    answers = facts.answers
    serves = facts.phase not in (IDLE, DRAFT)
    requests = float(answers.requests or 0) if serves else 0.0
    read = float(prompts.tokens or 0) if serves else 0.0
    lone = read + (prompts.products or read * read - read)  # without a cached prefix
    pairs = lone / 2 if prompts.pairs is None else float(prompts.pairs)
    context = answers.keys / requests if answers.keys and requests else 0.0
    captured = max(facts.computed - read, 0.0) if facts.computed else 0.0
    verified = answers.tokens / requests if answers.tokens and requests else 1.0
    return ServedIteration(
        requests=requests,
        context=context,
        prompt_tokens=read,
        prompt_pairs=pairs,
        captured=captured,
        generated=requests,
        read=read,
        verified=verified,
        untold=bool(prompts.requests and prompts.tokens is None),
    )


def iteration_of_kernels(tables: NamedTables) -> Ints:
    """Return the iteration that launched each row of `kernels`, or NONE."""
    return _iterations_of(tables).launching(tables["kernels"], tables["kernel_links"])


@dataclass(frozen=True)
class Bounds:
    """What kernels of an iteration are bound by on a GPU; of an unknown one as on usual GPUs."""

    gpu: Gpu | None

    @cached_property
    def balance(self) -> float:
        """Tokens at which reading weights of 16 bits takes as long as their products."""
        if self.gpu is None:
            return _BALANCE
        return (
            1e3 * LARGE_PRODUCTS * self.gpu.achievable_half_tflops / self.gpu.achievable_memory_gbps
        )

    def products(self, tokens: float, weights: WeightFormat) -> float:
        """Return the time of products for a weight, in times of reading one of 16 bits of the
        usual GPU, or in ns."""
        if self.gpu is None:
            faster = {"fp8": 2.0, "fp4": 4.0}.get(weights.rate, 1.0)
            return partly_hidden(weights.weight_bytes / 2, tokens / _BALANCE / faster)
        kind = weights.rate if self.gpu.has(weights.rate) else "bf16"
        fastest = self.gpu.achievable_tflops(kind) or self.gpu.achievable_half_tflops
        rate = 1e3 * LARGE_PRODUCTS * fastest
        read = weights.weight_bytes / self.gpu.achievable_memory_gbps
        return partly_hidden(read, 2 * tokens / rate)

    def attention(self, iteration: ServedIteration) -> float:
        """Return the time of attention for a width of keys and values, in the same way: an answered
        request waits for its keys and values, which several heads share, a prompt for products."""
        reading = iteration.requests * (iteration.context or 1.0) * iteration.kv
        computing = iteration.prompt_pairs * _SHARED / self.balance
        gbps = 1.0 if self.gpu is None else self.gpu.achievable_memory_gbps
        return (reading + computing) / gbps


def recorded_formats(kernel_names: list[str | None]) -> list[WeightFormat]:
    """Return the format of each kernel's weights, as far as names tell; else 16 bits."""
    by_name = {
        name: WEIGHTS[read_number_format(name or "", NARROW_FORMATS) or "bf16"]
        for name in set(kernel_names)
    }
    return [by_name[name] for name in kernel_names]


def served_format(iteration: ServedIteration, in_recording: WeightFormat) -> WeightFormat:
    """Return the format of a product's weights, which asking for a wider one does not change: a
    checkpoint whose experts are of 4 bits keeps them when the rest becomes FP8."""
    asked = iteration.weights
    if asked is None or asked.weight_bytes >= in_recording.weight_bytes:
        return in_recording
    return asked


def product_ratio(
    formats: list[WeightFormat],
    before: tuple[Bounds, ServedIteration],
    after: tuple[Bounds, ServedIteration],
) -> Floats:
    """Return by what each product's time is multiplied."""
    (old, was) = before
    (new, now) = after
    ratio = {
        kind: new.products(now.tokens, served_format(now, kind))
        / old.products(was.tokens, served_format(was, kind))
        for kind in set(formats)
    }
    return np.array([ratio[kind] for kind in formats], np.float64)
