"""A training job as far as it is known: its layout, batch, model and GPU. Valid, or refused.

Plans describe one, recordings are read into one, simulations make one, and an edit makes another
one of it. What is not known is None, and rules that need it are not asked.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from htk.base.core.stated_counts import INDEX, RANKS
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.physics.hardware import Gpu

_WAYS = ("tensor", "pipeline", "context")  # that divide the ranks among themselves
_WORDS = {
    "ranks": "ranks",
    "tensor": "tensor parallelism",
    "pipeline": "pipeline stages",
    "context": "context parallelism",
    "expert": "expert parallelism",
    "virtual": "interleaved chunks of a stage",
    "shards": "ranks of a shard group",
    "micro_batch": "samples of a micro-batch",
    "micro_batches": "micro-batches",
    "seq": "tokens of a sequence",
}
_ENDS = 2  # embedding and loss, which may be chunks of their own: 126 layers in 16 stages of 8
_FAR, _TRIED = 4, 64  # times a refused value, and how many more: how far others are looked for


@dataclass(frozen=True)
class TrainingJob:
    """None: not known."""

    ranks: int | None = None
    node: int | None = None  # GPUs of one
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    expert_tensor: int | None = None  # ranks that share each expert
    virtual: int = 1  # chunks of layers that a stage holds
    sequence_parallel: bool = False
    strategy: str | None = None
    shards: int | None = None  # ranks that share parameters, of a hybrid or whole sharding
    micro_batch: float | None = None  # samples
    micro_batches: float | None = None  # of a step, that each rank works on
    seq: float | None = None  # tokens
    ahead: int = 1  # units of sharded parameters that are gathered early
    precision: str | None = None  # of matrix products
    checkpointing: str | None = None
    flash: bool | None = None  # attention is one kernel, which keeps no scores
    fused_loss: bool | None = None  # leaves gradients in the place of logits
    eight_bit: bool | None = None  # moments of the optimizer
    adapter_rank: int | None = None  # of LoRA, all else frozen
    captured: bool = False  # the whole step in a CUDA graph, whose gradients stay in memory
    gpu: Gpu | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    experts: int | None = None
    even_stages: bool = False  # whether every stage must hold as many layers

    @property
    def split(self) -> int | None:
        """Return the ranks that work on the same samples."""
        return _multiply_known(self.tensor, self.pipeline, self.context)

    @property
    def replicas(self) -> int | None:
        """Return the data-parallel groups of ranks, each with other samples."""
        if self.ranks is None or self.split is None:
            return None
        return self.ranks // self.split

    @property
    def data_ranks(self) -> int | None:
        """Return the ranks of a stage that hold the same parameters."""
        return _multiply_known(self.replicas, self.context)

    @property
    def node_shards(self) -> int | None:
        """Return how many ranks that hold the same parameters share a node, as hybrid shards do."""
        if self.data_ranks is None:
            return None
        tensor = self.tensor or 1
        stage = self.data_ranks * tensor
        return max(min(self.node or stage, stage) // tensor, 1)

    @property
    def is_single_precision(self) -> bool:
        """Return whether matrix products take numbers of four bytes."""
        return self.precision in ("fp32", "tf32")

    @property
    def global_batch(self) -> float | None:
        """Return the samples of a step, of all ranks together."""
        if self.micro_batch is None or self.micro_batches is None or self.replicas is None:
            return None
        return self.micro_batch * self.micro_batches * self.replicas


@dataclass(frozen=True)
class Fault:
    """Why there can be no such job."""

    field: str  # what may be changed to make it one
    words: str


def with_count(job: TrainingJob, field: str, number: int) -> TrainingJob:
    """Return the job with another number of ranks, samples or tokens of a field."""
    changed: Fields = {field: number}
    return replace(job, **changed)


def is_valid(job: TrainingJob) -> bool:
    """Return whether there can be such a job."""
    return next(_list_faults(job), None) is None


def check_job(job: TrainingJob) -> None:
    """Raise UsageError unless there can be such a job; it names the nearest valid values."""
    fault = next(_list_faults(job), None)
    if fault is not None:
        raise UsageError(f"{fault.words}{_nearest_words(job, fault)}")


def _list_faults(job: TrainingJob) -> Iterator[Fault]:
    yield from _bad_counts(job)
    yield from _bad_ranks(job)
    yield from _bad_model(job)
    yield from _bad_tokens(job)
    yield from _bad_format(job)


def _bad_counts(job: TrainingJob) -> Iterator[Fault]:
    for field, words in _WORDS.items():
        value = getattr(job, field)
        if value is None:
            continue
        if value <= 0:
            yield Fault(field, f"{words} must be at least 1, not {value:g}")
        if value > INDEX.most:
            yield Fault(field, f"{words} must be at most {INDEX.most:,}, not {value:g}")
        if field != "seq" and abs(value - round(value)) > 1e-6:
            yield Fault(field, f"{value:.4g} {words} are not a whole number")
    if job.ranks is not None and job.ranks > RANKS.most:
        yield Fault("ranks", f"{job.ranks:,} ranks: at most {RANKS.most:,} are answered for")


def _bad_ranks(job: TrainingJob) -> Iterator[Fault]:
    if job.ranks is None:
        return
    ways = [(getattr(job, way) or 1, way) for way in _WAYS]
    split = 1
    for degree, _ in ways:
        split *= degree
    if job.ranks % split:
        parts = " × ".join(f"{_WORDS[way]} {degree}" for degree, way in ways if degree > 1)
        yield Fault(max(ways)[1], f"{parts} needs {split} ranks, which does not divide {job.ranks}")
        return
    data = job.ranks // (split // (job.context or 1))
    if job.strategy == "hybrid_shard" and job.shards and data % job.shards:
        yield Fault("shards", f"{job.shards} ranks to a shard group do not divide {data}")
    if job.expert and job.expert > 1:
        stage = data * (job.tensor or 1)
        group = job.expert * (job.expert_tensor or 1)
        if stage % group:
            yield Fault(
                "expert", f"experts over {group} ranks do not divide the {stage} of a stage"
            )


def _bad_model(job: TrainingJob) -> Iterator[Fault]:
    tensor = job.tensor or 1
    stages = job.pipeline or 1
    if job.heads and job.heads % tensor:
        yield Fault("tensor", f"tensor parallelism {tensor} does not divide {job.heads} heads")
    if job.kv_heads and job.kv_heads % tensor and tensor % job.kv_heads:
        words = f"tensor parallelism {tensor} and {job.kv_heads} key-value heads do not divide"
        yield Fault("tensor", words)
    if job.virtual > 1 and stages == 1:
        yield Fault("virtual", "chunks of a stage (interleaving) need a pipeline of 2 or more")
    chunks = stages * job.virtual
    if job.layers and chunks > 1:
        parts = f"{stages} stages" + (f" of {job.virtual} chunks" if job.virtual > 1 else "")
        if chunks > job.layers + (0 if job.even_stages else _ENDS):
            yield Fault("pipeline", f"{parts} are more than {job.layers} layers")
        elif job.even_stages and job.layers % chunks:
            yield Fault("pipeline", f"{parts} do not divide {job.layers} layers")
    if job.experts and job.expert and job.experts % job.expert:
        words = f"expert parallelism {job.expert} does not divide {job.experts} experts"
        yield Fault("expert", words)


def _bad_tokens(job: TrainingJob) -> Iterator[Fault]:
    context = job.context or 1
    tensor = job.tensor or 1
    if job.seq and context > 1 and job.seq % context:
        words = f"context parallelism {context} does not divide {job.seq:g} tokens"
        yield Fault("context", words)
    if job.sequence_parallel and tensor == 1:
        yield Fault("tensor", "sequence parallelism goes with tensor parallelism, which is 1")


def _bad_format(job: TrainingJob) -> Iterator[Fault]:
    number_format = job.precision
    if job.gpu is None or number_format in (None, "fp32"):
        return
    if not job.gpu.has(number_format):
        have = [f for f in ("tf32", "fp16", "bf16", "fp8", "fp4") if job.gpu.has(f)]
        words = f"{job.gpu.name} has no {number_format} matrix products; it has {', '.join(have)}"
        yield Fault("", words)


def _nearest_words(job: TrainingJob, fault: Fault) -> str:
    """Return the valid values below and above a refused one, in words."""
    if fault.field not in _WORDS:
        return ""
    value = getattr(job, fault.field) or 1
    most = min(_FAR * max(round(value), 2), round(value) + _TRIED)
    if fault.field in _WAYS and job.ranks:
        most = min(most, job.ranks)

    def is_fitting(number: int) -> bool:
        return is_valid(with_count(job, fault.field, number))

    words = [str(number) for number in _find_neighbours(value, most, is_fitting)]
    if fault.field in _WAYS and job.ranks and job.split and job.ranks % job.split:
        more = -(-job.ranks // job.split) * job.split
        if is_valid(replace(job, ranks=more)):
            words.append(f"{more} ranks")
    return f": take {' or '.join(words)}" if words else ""


def _find_neighbours(value: float, most: int, fits: Callable[[int], bool]) -> list[int]:
    """Return the largest fitting number below a value and the smallest above it."""
    start = min(round(value), most)
    first = max(start - _TRIED, 0)
    below = next((n for n in range(start, first, -1) if n < value and fits(n)), None)
    above = next((n for n in range(start, most + 1) if n > value and fits(n)), None)
    return [n for n in (below, above) if n is not None]


def _multiply_known(*factors: int | None) -> int | None:
    total = 1
    for factor in factors:
        if factor is None:
            return None
        total *= factor
    return total
