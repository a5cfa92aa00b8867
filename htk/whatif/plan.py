"""A training step from models alone: no trace, and a band as wide as that deserves.

Matrix products and attention at a share of the measured-achievable rate, all else by the bytes that
it moves, communication of each strategy at what links usually reach; FSDP hides its transfers
behind compute where it can, tensor parallelism hides none. Held against measured jobs by the
scorecard, from which the band comes.
"""

import math
from dataclasses import dataclass, replace

import pyarrow as pa

from htk.columns.arrow import texts
from htk.core.chart import Bar
from htk.core.label import Label
from htk.errors import UsageError
from htk.models.decoder import Decoder, model_flops
from htk.models.hardware import Gpu
from htk.models.memory import CHECKPOINTING, Layout, Memory, memory, model_size, p_oom
from htk.models.network import Network, usual_network
from htk.models.wire import STRATEGIES, Sharding, ledger
from htk.schema import TEXT, table
from htk.whatif.calibration import NORMAL

# Of the achievable rate; and what else is moved: bytes of a token, layer and hidden element, there
# and back. Together they miss 111 measured steps by 14 % on average.
_MATRIX, _ATTENTION, _MOVED = 0.8, 0.3, 400
# Of what is done without recomputation: products, attention, all else.
_AGAIN = {"none": (1.0, 1.0, 1.0), "selective": (7 / 6, 1.0, 4 / 3), "full": (4 / 3, 4 / 3, 4 / 3)}
_DDP_HIDES = 2 / 3  # of compute: the backward pass
_SIGMA = 0.2  # of the logarithm of the step: see the scorecard
_MOST_GPUS = 1 << 17
_DAY_S = 86_400

MFU = (
    "MFU: model FLOPs (2 a multiply-add, causal attention halved, without recomputation) over the "
    "step and the dense bf16 peak"
)

RETURNS = table(
    strategy=(TEXT, "How parameters, gradients and optimizer state are sharded."),
    step_time_ns=(pa.int64(), "Expected step."),
    step_time_ns_lo90=(pa.int64(), "Nine of ten such steps take longer than this …"),
    step_time_ns_hi90=(pa.int64(), "… and less than this."),
    tokens_per_s=(pa.float64(), "Of the whole job."),
    mfu_pct=(pa.float64(), "Model FLOPs (causal attention halved, no recompute) of dense peak."),
    peak_memory_bytes=(pa.int64(), "Expected peak of a GPU."),
    p_oom=(pa.float64(), "Probability that it does not fit."),
    least_gpus=(pa.int64(), "Fewest such GPUs on which it is expected to fit; null: none do."),
    least_gpus_checkpointed=(pa.int64(), "The same with full activation checkpointing."),
    compute_ns=(pa.int64(), "Of the step, if it did nothing else."),
    comm_ns=(pa.int64(), "Of the step, if it did nothing else."),
    wire_bytes=(pa.int64(), "Sent by a rank in a step."),
    parameter_bytes=(pa.int64(), "Of the peak: parameters in 16 bit, gathered ones too."),
    gradient_bytes=(pa.int64(), "Of the peak: gradients in 16 bit."),
    optimizer_bytes=(pa.int64(), "Of the peak: Adam's moments and a copy, in single precision."),
    activation_bytes=(pa.int64(), "Of the peak: activations and logits."),
    tokens_per_s_per_gpu=(pa.float64(), "Of one GPU."),
    step_time_ns_lo50=(pa.int64(), "Three of four such steps take longer than this …"),
    step_time_ns_hi50=(pa.int64(), "… and as many less than this."),
    cost_per_million_tokens=(pa.float64(), "At the price given; null: no price."),
    run_days=(pa.float64(), "For the tokens given; null: none given."),
    run_cost=(pa.float64(), "For the tokens and price given; null: one is missing."),
)


@dataclass(frozen=True)
class PlannedJob:
    model: Decoder
    gpu: Gpu
    nodes: int
    gpus_per_node: int
    micro_batch: int
    seq: int
    checkpointing: str = "none"  # selective, full
    price: float | None = None  # of a GPU-hour
    accumulation: int = 1
    tensor_parallel: int = 1
    tokens: float | None = None  # of the whole run

    def __post_init__(self) -> None:
        counts = (self.nodes, self.gpus_per_node, self.micro_batch, self.seq, self.accumulation)
        if min(counts) < 1:
            raise UsageError(
                "nodes, GPUs per node, micro-batch, length and accumulation must be at least 1"
            )
        if self.tensor_parallel < 1 or self.gpus_per_node % self.tensor_parallel:
            raise UsageError(
                f"tensor parallelism of {self.tensor_parallel} does not divide "
                f"{self.gpus_per_node} GPUs per node"
            )
        if self.checkpointing not in CHECKPOINTING:
            raise UsageError(
                f"checkpointing {self.checkpointing!r}: one of {', '.join(CHECKPOINTING)}"
            )
        for name, value in (("price", self.price), ("tokens", self.tokens)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{name} {value:g}: a positive number was expected")

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def replicas(self) -> int:
        """Data-parallel ranks."""
        return self.ranks // self.tensor_parallel

    def shards(self, strategy: str) -> int:
        """Ranks over which parameters are spread."""
        if strategy == "ddp":
            return 1
        if strategy == "hybrid_shard":
            return self.gpus_per_node // self.tensor_parallel
        return self.replicas


LABEL = Label(
    "plan_question",
    "What would training this model on this cluster take: time, memory, cost?",
    Bar("strategy", ("step_time_ns",)),
)


def plan(job: PlannedJob) -> pa.Table:
    """A row for each strategy."""
    rows = [_row(job, strategy) for strategy in STRATEGIES]
    columns = [
        texts([str(r[f.name]) for r in rows])
        if f.type == TEXT
        else pa.array([r[f.name] for r in rows], f.type)
        for f in RETURNS
    ]
    return pa.table(columns, schema=RETURNS)


def step_ns(job: PlannedJob, strategy: str) -> float:
    """The expected step."""
    compute, (_, sent) = _compute_ns(job), _communication(job, strategy)
    free = _DDP_HIDES * compute if strategy == "ddp" else compute
    return compute + max(sent - free, 0.0) + _tensor_ns(job)


def least_gpus(job: PlannedJob, strategy: str) -> int | None:
    """The fewest on which the expected peak fits, with the same work for each; None: none do."""
    fixed = strategy in ("ddp", "hybrid_shard")  # more GPUs make more copies
    shards = job.shards(strategy)
    if fixed:
        return shards * job.tensor_parallel if _fits(job, strategy, shards) else None
    high = 1
    while not _fits(job, strategy, high):
        high *= 2
        if high * job.tensor_parallel > _MOST_GPUS:
            return None
    low = high // 2  # does not fit, or is none
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _fits(job, strategy, middle) else (middle, high)
    return high * job.tensor_parallel


def _fits(job: PlannedJob, strategy: str, shards: int) -> bool:
    return _memory(job, strategy, shards).total <= job.gpu.memory_bytes


def _memory(job: PlannedJob, strategy: str, shards: int) -> Memory:
    copies = job.replicas // shards if strategy in ("ddp", "hybrid_shard") else 1
    layout = Layout(
        strategy,
        shards,
        max(copies, 1),
        job.tensor_parallel,
        micro_batch=job.micro_batch,
        seq=job.seq,
        checkpointing=job.checkpointing,
    )
    return memory(model_size(job.model), layout)


def _row(job: PlannedJob, strategy: str) -> dict[str, object]:
    step, held = step_ns(job, strategy), _memory(job, strategy, job.shards(strategy))
    compute, (wire, sent) = _compute_ns(job), _communication(job, strategy)
    tokens = job.micro_batch * job.seq * job.accumulation * job.replicas / (step / 1e9)
    flops = model_flops(job.model, job.micro_batch, job.seq) * job.accumulation
    each = flops / job.tensor_parallel
    wide50, wide90 = (math.exp(z * _SIGMA) for z in NORMAL)
    return {
        "strategy": strategy,
        "step_time_ns": round(step),
        "step_time_ns_lo90": round(step / wide90),
        "step_time_ns_hi90": round(step * wide90),
        "step_time_ns_lo50": round(step / wide50),
        "step_time_ns_hi50": round(step * wide50),
        "tokens_per_s": tokens,
        "tokens_per_s_per_gpu": tokens / job.ranks,
        "mfu_pct": 100 * each / (step * 1e-9 * job.gpu.half_tflops * 1e12),
        "compute_ns": round(compute),
        "comm_ns": round(sent + _tensor_ns(job)),
        "wire_bytes": wire,
        "parameter_bytes": round(held.parameters),
        "gradient_bytes": round(held.gradients),
        "optimizer_bytes": round(held.optimizer),
        "activation_bytes": round(held.activations + held.logits),
        "peak_memory_bytes": round(held.total),
        "p_oom": round(p_oom(held.total, job.gpu.memory_bytes), 4),
        "least_gpus": least_gpus(job, strategy),
        "least_gpus_checkpointed": least_gpus(replace(job, checkpointing="full"), strategy),
        **_costs(job, tokens),
    }


def _costs(job: PlannedJob, tokens_per_s: float) -> dict[str, float | None]:
    """Of a million tokens, and of the whole run."""
    hours = None if job.tokens is None else job.tokens / tokens_per_s / 3600
    both = hours is not None and job.price is not None
    return {
        "cost_per_million_tokens": None
        if job.price is None
        else job.ranks * job.price / (3.6e-3 * tokens_per_s),
        "run_days": None if hours is None else hours * 3600 / _DAY_S,
        "run_cost": job.ranks * (job.price or 0) * (hours or 0) if both else None,
    }


def _compute_ns(job: PlannedJob) -> float:
    model, tokens = job.model, job.micro_batch * job.seq * job.accumulation
    rate = job.gpu.achievable_half_tflops * 1e3
    flops = model_flops(model, job.micro_batch, job.seq) * job.accumulation
    matrices = 6 * tokens * (model.layers * model.layer_matrices + model.vocab * model.hidden)
    moved = _MOVED * tokens * model.layers * model.hidden / job.gpu.memory_gbps
    once = (matrices / (_MATRIX * rate), (flops - matrices) / (_ATTENTION * rate), moved)
    times = _AGAIN[job.checkpointing]
    return sum(ns * again for ns, again in zip(once, times, strict=True)) / job.tensor_parallel


def _tensor_ns(job: PlannedJob) -> float:
    """All-reduces of activations: four for each layer, 8 (t-1)/t · x bytes in all, not hidden."""
    t = job.tensor_parallel
    activations = 2 * job.micro_batch * job.seq * job.model.hidden
    sent = 8 * (t - 1) / t * activations * job.model.layers * job.accumulation
    again = 1.5 if job.checkpointing == "full" else 1.0
    return sent * again * _network(job).pace(t, t)


def _network(job: PlannedJob) -> Network:
    return usual_network(job.gpu, job.gpus_per_node)


def _communication(job: PlannedJob, strategy: str) -> tuple[int, float]:
    """Bytes of parameters and gradients on the wire, and their time at the slowest level that each
    crosses."""
    links, shards = _network(job), job.shards(strategy)
    here = max(job.gpus_per_node // job.tensor_parallel, 1)  # members of a group, in a node
    split = strategy == "hybrid_shard" and job.replicas > shards
    sharding = (
        Sharding(strategy, shards, job.replicas // shards)
        if split
        else Sharding("full_shard" if strategy == "hybrid_shard" else strategy, job.replicas)
    )
    parameters = job.model.parameters // job.tensor_parallel
    kept = job.model.root_parameters // job.tensor_parallel
    many = 1 if strategy == "ddp" else job.accumulation
    sent = ledger(parameters, sharding, kept=kept, micro_batches=many)
    if not split:
        return round(sent.wire), sent.wire * links.pace(job.replicas, here)
    inside = (sent.gather_wire + sent.reduce_wire) * links.pace(shards, shards)
    between = sent.all_reduce_wire * links.pace(job.replicas // shards, 1)
    return round(sent.wire), inside + between
