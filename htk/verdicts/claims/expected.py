"""What the models of a plan expect of a described job, in the best layout where none is said."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import Plan
from htk.verdicts.claims.described import ClaimedJob

_ONE_IN_TEN = 1.2816 / 1.6449  # of the half width of a 90 % interval, in a normal distribution
_USUAL_SEQ = 2048
_HARDLY_FITS = 0.95  # probability of running out of memory, from which no job is compared with it
_OPEN_MICRO_BATCHES = (1, 2, 4, 8)
_OPEN_TENSORS = (1, 2, 4, 8)
_SHARDED = ("full_shard", "shard_grad_op", "zero1")
_STAGED = ("zero1", "ddp")


@dataclass(frozen=True)
class ExpectedRate:
    """Tokens a second and GPU."""

    middle: float
    most: float  # that one in ten such jobs would pass
    what: str  # it is expected of


def expected_rate(job: ClaimedJob) -> ExpectedRate | None:
    """Return what such jobs reach; None: the plan's models do not hold such a job."""
    if job.decoder is None:
        return None
    plans = list(_list_plans(job))
    if not plans:
        return None
    fitting = [plan for plan in plans if plan.p_oom < _HARDLY_FITS]
    best = max(fitting or plans, key=lambda plan: plan.tokens_per_s / plan.job.ranks)
    middle = best.tokens_per_s / best.job.ranks
    far = math.log(best.certainty.factor(90)) * _ONE_IN_TEN
    layout = best.job
    is_stated = job.micro_batch is not None and job.tensor_parallel is not None
    what = (
        "this job"
        if is_stated
        else f"the best layout (micro-batch {layout.micro_batch}, tensor parallelism "
        f"{layout.tensor_parallel}, {layout.strategy}, checkpointing {layout.checkpointing})"
    )
    return ExpectedRate(middle, middle * math.exp(far), what)


def lightest_plan(job: ClaimedJob) -> Plan | None:
    """Return the plan of the layouts that the claim leaves open which takes the least memory."""
    if job.decoder is None:
        return None
    fused = (Plan(replace(plan.job, fused_loss=True)) for plan in _list_plans(job))
    return min(fused, key=lambda plan: plan.memory.total, default=None)


def _list_plans(job: ClaimedJob) -> Iterator[Plan]:
    """Yield plans of the layouts that the claim leaves open, where they can be."""
    assert job.decoder is not None
    per_node = min(job.gpus, job.gpus_per_node)
    is_open = job.tensor_parallel is None and job.micro_batch is None
    tensors = _OPEN_TENSORS if is_open else (job.tensor_parallel or 1,)
    batches = (job.micro_batch,) if job.micro_batch else _OPEN_MICRO_BATCHES
    kinds = (job.checkpointing,) if job.checkpointing else ("none", "selective", "full")
    stages = job.pipeline_parallel or 1
    for tensor, batch, kind in product(tensors, batches, kinds):
        split = tensor * stages * job.context_parallel
        count = (job.global_batch or 0) // max(job.gpus // split * batch, 1)
        shape: Fields = {
            "nodes": max(job.gpus // per_node, 1),
            "gpus_per_node": per_node,
            "micro_batch": batch,
            "seq": job.seq or _USUAL_SEQ,
            "checkpointing": kind,
            "accumulation": max(count, stages if job.global_batch is None else 1),
            "tensor_parallel": tensor,
            "pipeline_parallel": stages,
            "virtual_stages": job.virtual_stages if stages > 1 else 1,
            "context_parallel": job.context_parallel,
            "expert_parallel": job.expert_parallel,
            "precision": _choose_recipe(job),
            "kernels": job.kernels,
            "attention": job.attention,
        }
        for strategy in _list_strategies(job, split):
            try:
                yield Plan(PlannedJob(job.decoder, job.gpu, strategy=strategy, **shape))
            except UsageError:  # no layout of so many GPUs
                continue


def _list_strategies(job: ClaimedJob, split: int) -> tuple[str, ...]:
    if job.strategy is not None:
        return (job.strategy,)
    return _SHARDED if split * job.expert_parallel == 1 else _STAGED


def _choose_recipe(job: ClaimedJob) -> str:
    if job.precision == "fp4":
        return "nvfp4"
    return "mxfp8" if job.precision == "fp8" and job.gpu.has("fp4") else job.precision
