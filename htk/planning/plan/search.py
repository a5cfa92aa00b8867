"""The best layouts of a job on its GPUs: all that fit, from the fastest on.

Every way to deal the GPUs to tensor, pipeline, context and expert parallelism, to cut the batch
into micro-batches, to recompute and to shard, is planned with the same batch. Of one number of GPUs
cost and energy follow the step's time; what is traded for it is memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from htk.base.core.chart import Scatter
from htk.base.core.label import Label
from htk.base.errors import UsageError
from htk.base.schema import BOOL, FLOAT64, INT32, INT64, TEXT, table
from htk.physics.memory import CHECKPOINTING
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan, plan
from htk.planning.plan.table import rows_as

MOST_LAYOUTS = 50_000
_USUAL_TOKENS = 1 << 22  # of a step, where no batch is given
_MICRO_BATCHES = (1, 2, 4, 8, 16)
_PIECE = 4096  # tokens: a sequence that context parallelism cuts has no shorter pieces
STRATEGIES = {
    "ddp": "DDP",
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "shard_grad_op": "FSDP (ZeRO-2)",
    "full_shard": "FSDP (ZeRO-3)",
    "hybrid_shard": "FSDP, hybrid",
}
_LIKELY = 0.5  # to run out of memory: what is likelier is left out
_CHUNKS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
# Plans of one model and GPU miss each other by so much at the median: docs/plan_scorecard.md.
APART = 0.1

FOUND = table(
    layout=(TEXT, "Parallelism beside data's, sharding, micro-batch, recomputation."),
    gpu_count=(INT64, "GPUs of the job."),
    step_time_ns=(INT64, "Expected step."),
    step_time_ns_lo90=(INT64, "Nine of ten such steps take longer than this …"),
    step_time_ns_hi90=(INT64, "… and less than this."),
    behind_best_pct=(FLOAT64, "Step over the fastest layout's, less one."),
    on_front=(BOOL, "No other layout is both faster and smaller."),
    tokens_per_s_per_gpu=(FLOAT64, "Of one GPU."),
    mfu_pct=(FLOAT64, "Model FLOPs (causal attention halved, no recompute) of dense peak."),
    peak_memory_bytes=(INT64, "Expected peak of the fullest GPU."),
    p_oom=(FLOAT64, "Probability that it does not fit."),
    exposed_comm_ns=(INT64, "Of the step: communication that no computing hides."),
    bubble_ns=(INT64, "Of the step: a pipeline's stages wait for each other."),
    cost_per_million_tokens=(FLOAT64, "At the price given; null: no price."),
    energy_j_per_token=(FLOAT64, "At the GPUs' rated power, or as given; null: not known."),
    run_days=(FLOAT64, "For the tokens given; null: none given."),
    tensor_parallel=(INT64, "GPUs that share each layer."),
    pipeline_parallel=(INT64, "Stages."),
    virtual_stages=(INT64, "Chunks of a stage."),
    context_parallel=(INT64, "GPUs that share a sequence."),
    expert_parallel=(INT64, "GPUs that experts are spread over."),
    micro_batch=(INT32, "Sequences of a GPU at once."),
    accumulation=(INT64, "Micro-batches of a step, of each pipeline."),
    strategy=(TEXT, "How parameters, gradients and optimizer state are sharded."),
    checkpointing=(TEXT, "Activations that are computed again."),
)

SEARCH_LABEL = Label(
    "plan_search",
    "Which layouts of this job are fastest on these GPUs, and what do they take?",
    Scatter("step_time_ns", "peak_memory_bytes", color="strategy"),
)


@dataclass(frozen=True)
class SearchAnswer:
    plans: tuple[Plan, ...]  # that fit, the fastest first
    front: frozenset[int]  # of those: that no other beats in time and memory
    tried: int
    too_large: int  # of those: that are likelier than not to run out of memory


def search_plans(
    job: PlannedJob,
    batch: int | None = None,
    planned_by: Callable[[PlannedJob], Plan] = plan,
) -> SearchAnswer:
    """Return the layouts of a job that fit; `batch`: sequences of a step, else what makes about
    four million tokens. What the job says of its own layout is not kept."""
    sequences = batch or usual_batch(job)
    if sequences < 1:
        raise UsageError(f"a batch of {sequences} sequences: at least 1 was expected")
    tried = 0
    fitting = []
    for described in list_layouts(job, sequences):
        tried += 1
        if tried > MOST_LAYOUTS:
            raise UsageError(f"over {MOST_LAYOUTS} layouts: name some of the parallelism")
        planned = planned_by(described)
        if planned.p_oom < _LIKELY:
            fitting.append(planned)
    fitting.sort(key=lambda p: p.step_ns)
    front = pareto_front([planned.memory.total for planned in fitting])
    return SearchAnswer(tuple(fitting), front, tried, tried - len(fitting))


def join_searches(answers: Sequence[SearchAnswer]) -> SearchAnswer:
    """Return several searches, such as of several numbers of GPUs, as one."""
    plans = sorted((p for answer in answers for p in answer.plans), key=lambda p: p.step_ns)
    front = pareto_front([planned.memory.total for planned in plans])
    tried = sum(a.tried for a in answers)
    too_large = sum(a.too_large for a in answers)
    return SearchAnswer(tuple(plans), front, tried, too_large)


def usual_batch(job: PlannedJob) -> int:
    """Return the sequences of about four million tokens, a power of two."""
    return 1 << max(round(_USUAL_TOKENS / job.seq).bit_length() - 1, 0)


def list_layouts(job: PlannedJob, batch: int) -> Iterator[PlannedJob]:
    """Yield every layout of the job's GPUs that takes a batch of so many sequences."""
    for tensor in _list_divisors(job, min(job.link_domain, job.ranks)):
        kv_heads = job.model.kv_heads
        if job.model.heads % tensor or (kv_heads % tensor and tensor % kv_heads):
            continue
        for context in _list_contexts(job):
            for pipeline in _list_divisors(job, job.model.layers):
                split = tensor * context * pipeline
                if job.ranks % split or batch % (job.ranks // split):
                    continue
                for expert in _list_expert_counts(job, job.ranks // pipeline):
                    schedule = "zero_bubble" if job.schedule == "zero_bubble" else "1f1b"
                    shape = replace(
                        job, tensor_parallel=tensor, context_parallel=context,
                        pipeline_parallel=pipeline, expert_parallel=expert, virtual_stages=1,
                        accumulation=1, checkpointing="none", strategy="zero1",
                        schedule=schedule,
                        expert_tensor_parallel=None, micro_batch=1,
                    )  # fmt: skip
                    yield from _deal_batch(shape, batch)


def _deal_batch(shape: PlannedJob, batch: int) -> Iterator[PlannedJob]:
    """Each way to cut a batch, to interleave, to shard and to recompute."""
    each = batch // shape.replicas
    sharded: tuple[str, ...] = ("zero1",)
    if shape.pipeline_parallel == 1 and shape.expert_parallel == 1:
        sharded += ("full_shard", "hybrid_shard")
    for micro_batch in (n for n in _MICRO_BATCHES if each % n == 0):
        count = each // micro_batch
        for chunks in _list_chunks(shape, count):
            for strategy in sharded:
                for again in CHECKPOINTING:
                    yield replace(
                        shape, micro_batch=micro_batch, accumulation=count, virtual_stages=chunks,
                        strategy=strategy, checkpointing=again,
                    )  # fmt: skip


def _list_divisors(job: PlannedJob, most: int) -> list[int]:
    """Divisors of the GPUs up to so many."""
    return [n for n in range(1, min(most, job.ranks) + 1) if job.ranks % n == 0]


def _list_contexts(job: PlannedJob) -> list[int]:
    return [c for c in (1, 2, 4, 8, 16) if c == 1 or job.seq // c >= _PIECE]


def _list_expert_counts(job: PlannedJob, stage: int) -> list[int]:
    if job.model.experts == 1:
        return [1]
    powers = [1 << k for k in range(job.model.experts.bit_length())]
    return [e for e in powers if job.model.experts % e == 0 and stage % e == 0]


def _list_chunks(shape: PlannedJob, count: int) -> list[int]:
    """Interleaving wants whole layers for each chunk, and micro-batches for all stages."""
    stages = shape.pipeline_parallel
    if stages == 1 or count % stages or shape.schedule == "zero_bubble":
        return [1]
    return [v for v in _CHUNKS if v == 1 or shape.model.layers % (stages * v) == 0]


def pareto_front(values: Sequence[float]) -> frozenset[int]:
    """Return the places, of plans from the fastest on, whose value is below all before."""
    least = float("inf")
    places = set()
    for order, value in enumerate(values):
        if value < least:
            least = value
            places.add(order)
    return frozenset(places)


def search_table(answer: SearchAnswer, most: int = 50) -> pa.Table:
    """Return the fastest layouts, and all of the front."""
    best = answer.plans[0].step_ns if answer.plans else 0.0
    rows = []
    for order, planned in enumerate(answer.plans):
        if order >= most and order not in answer.front:
            continue
        job, parts = planned.job, planned.parts
        low, high = planned.interval(90)
        rows.append(
            {
                "layout": layout_words(job),
                "gpu_count": job.ranks,
                "step_time_ns": round(planned.step_ns),
                "step_time_ns_lo90": round(low),
                "step_time_ns_hi90": round(high),
                "behind_best_pct": 100 * (planned.step_ns / best - 1),
                "on_front": order in answer.front,
                "tokens_per_s_per_gpu": planned.tokens_per_s / job.ranks,
                "mfu_pct": 100 * planned.mfu,
                "peak_memory_bytes": round(planned.memory.total),
                "p_oom": round(planned.p_oom, 4),
                "exposed_comm_ns": round(parts.exposed),
                "bubble_ns": round(parts.bubble),
                "cost_per_million_tokens": planned.cost_per_million_tokens,
                "energy_j_per_token": planned.joules_per_token,
                "run_days": planned.run_days,
                "tensor_parallel": job.tensor_parallel,
                "pipeline_parallel": job.pipeline_parallel,
                "virtual_stages": job.virtual_stages,
                "context_parallel": job.context_parallel,
                "expert_parallel": job.expert_parallel,
                "micro_batch": job.micro_batch,
                "accumulation": job.accumulation,
                "strategy": job.strategy,
                "checkpointing": job.checkpointing,
            }
        )
    return rows_as(FOUND, rows)


def layout_words(job: PlannedJob) -> str:
    """Return the layout as one reads it: tp 4, pp 8 × 5, ZeRO-1, micro-batch 1, selective."""
    words = []
    for name, count in (("tp", job.tensor_parallel), ("cp", job.context_parallel),
                        ("ep", job.expert_parallel)):  # fmt: skip
        if count > 1:
            words.append(f"{name} {count}")
    if job.pipeline_parallel > 1:
        chunks = f" × {job.virtual_stages}" if job.virtual_stages > 1 else ""
        words.append(f"pp {job.pipeline_parallel}{chunks}")
    words += [STRATEGIES.get(job.strategy, job.strategy), f"micro-batch {job.micro_batch}"]
    if job.checkpointing != "none":
        words.append(job.checkpointing)
    return ", ".join(words)
