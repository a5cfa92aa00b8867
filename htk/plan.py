"""A training step from models alone: no trace, and a band as wide as that deserves.

Compute at the measured-achievable rate of matrix products, communication of each strategy at what
links usually reach; FSDP hides its transfers behind compute where it can.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import pyarrow as pa

from htk.analysis import Analysis
from htk.arrow import texts
from htk.chart import Bar
from htk.errors import UsageError
from htk.models.decoder import Decoder, model_flops
from htk.models.hardware import Gpu
from htk.models.memory import memory
from htk.models.wire import STRATEGIES, Sharding, ledger
from htk.schema import TEXT, table

_OF_PEAK = 0.8  # achievable share of the peak where no measurement is known: median of those known
_IN_STEP = 0.7  # of the achievable rate, over a whole step with its other kernels
_OF_LINKS = 0.75  # of a link's rate, by large collectives
_RECOMPUTED = 4 / 3
# Closed-form models miss by 15 to 20 % on jobs they were not made from (Calculon on vTrain's).
_SIGMA = 0.2
_MEMORY_SIGMA = 0.08

RETURNS = table(
    strategy=(TEXT, "How parameters, gradients and optimizer state are sharded."),
    step_time_ns=(pa.int64(), "Expected step."),
    step_time_ns_lo90=(pa.int64(), "Nine of ten such steps take longer than this …"),
    step_time_ns_hi90=(pa.int64(), "… and less than this."),
    tokens_per_s=(pa.float64(), "Of the whole job."),
    mfu_pct=(pa.float64(), "Model FLOPs (causal attention halved, no recompute) of dense peak."),
    compute_ns=(pa.int64(), "Of the step, if it did nothing else."),
    comm_ns=(pa.int64(), "Of the step, if it did nothing else."),
    wire_bytes=(pa.int64(), "Sent by a rank in a step."),
    peak_memory_bytes=(pa.int64(), "Expected peak of a GPU."),
    p_oom=(pa.float64(), "Probability that it does not fit."),
    cost_per_million_tokens=(pa.float64(), "At the price given; null: no price."),
)


@dataclass(frozen=True)
class Job:
    model: Decoder
    gpu: Gpu
    nodes: int
    gpus_per_node: int
    micro_batch: int
    seq: int
    checkpointing: bool = False
    price: float | None = None

    def __post_init__(self) -> None:
        if min(self.nodes, self.gpus_per_node, self.micro_batch, self.seq) < 1:
            raise UsageError("nodes, GPUs per node, micro-batch and length must be at least 1")

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus_per_node


def plan_question() -> pa.Table:
    """What would training this model on this cluster take: time, memory, cost?"""
    return RETURNS.empty_table()


LABEL: Analysis[...] = Analysis(plan_question, RETURNS, Bar("strategy", ("step_time_ns",)))


def plan(job: Job) -> pa.Table:
    """A row for each strategy."""
    rows = [_row(job, strategy) for strategy in STRATEGIES]
    columns = [
        texts([str(r[f.name]) for r in rows])
        if f.type == TEXT
        else pa.array([r[f.name] for r in rows], f.type)
        for f in RETURNS
    ]
    return pa.table(columns, schema=RETURNS)


def _row(job: Job, strategy: str) -> dict[str, object]:
    flops = model_flops(job.model, job.micro_batch, job.seq)
    compute = _compute_ns(job, flops)
    wire, comm = _communication(job, strategy)
    hidden = min(comm, 2 * compute / 3) if strategy == "ddp" else min(comm, compute)
    step = compute + comm - hidden
    tokens = job.micro_batch * job.seq * job.ranks / (step / 1e9)
    shards = job.gpus_per_node if strategy == "hybrid_shard" else job.ranks
    peak = memory(
        job.model,
        "full_shard" if strategy == "hybrid_shard" else strategy,
        shards,
        job.micro_batch,
        job.seq,
        checkpointing=job.checkpointing,
    ).total
    wide = math.exp(1.645 * _SIGMA)
    cost = None if job.price is None else job.ranks * job.price / (3.6e-3 * tokens)
    return {
        "strategy": strategy,
        "step_time_ns": round(step),
        "step_time_ns_lo90": round(step / wide),
        "step_time_ns_hi90": round(step * wide),
        "tokens_per_s": tokens,
        "mfu_pct": 100 * flops / (step * 1e-9 * job.gpu.bf16_tflops * 1e12),
        "compute_ns": round(compute),
        "comm_ns": round(comm),
        "wire_bytes": wire,
        "peak_memory_bytes": peak,
        "p_oom": 1 - NormalDist().cdf(math.log(job.gpu.memory_gb * 1e9 / peak) / _MEMORY_SIGMA),
        "cost_per_million_tokens": cost,
    }


def _compute_ns(job: Job, flops: int) -> float:
    rate = job.gpu.achievable_bf16_tflops or _OF_PEAK * job.gpu.bf16_tflops
    again = _RECOMPUTED if job.checkpointing else 1.0
    return flops * again / (rate * _IN_STEP * 1e12) * 1e9


def _communication(job: Job, strategy: str) -> tuple[int, float]:
    """Bytes on the wire, and their time at the slowest level that each crosses."""
    within = _OF_LINKS * job.gpu.scale_up_gbps
    node = job.gpu.scale_out_gbps * job.gpus_per_node
    whole = within if job.nodes == 1 else min(within, _OF_LINKS * node)
    split = strategy == "hybrid_shard" and job.nodes > 1
    sharding = (
        Sharding(strategy, job.gpus_per_node, job.nodes)
        if split
        else Sharding("full_shard" if strategy == "hybrid_shard" else strategy, job.ranks)
    )
    sent = ledger(job.model.parameters, sharding, kept=job.model.root_parameters)
    if not split:
        return round(sent.wire), sent.wire / whole
    inside = (sent.gather_wire + sent.reduce_wire) / within
    between = sent.all_reduce_wire / (_OF_LINKS * job.gpu.scale_out_gbps)
    return round(sent.wire), inside + between
