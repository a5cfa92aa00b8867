"""What the models of a plan expect of a described job, in the best layout where none is said."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from htk.claims.described import ClaimedJob
from htk.models.wire import STRATEGIES
from htk.plan.job import PlannedJob
from htk.plan.step import plan

_SIGMA = 0.2  # of the logarithm of a plan's step: see the scorecard
_ONE_IN_TEN = 1.2816  # quantile of a normal distribution
_FP8 = 1.35  # over bf16, of a step whose products are in fp8: torchtitan, Megatron Bridge
_USUAL_SEQ = 2048


@dataclass(frozen=True)
class ExpectedRate:
    """Tokens a second and GPU."""

    middle: float
    most: float  # that one in ten such jobs would pass
    what: str  # it is expected of


def expected_rate(job: ClaimedJob) -> ExpectedRate | None:
    """Return what such jobs reach; None: the plan's models do not hold such a job."""
    if job.decoder is None or job.precision not in ("bf16", "fp16", "fp8"):
        return None
    rates = {planned: _rate(job, planned) for planned in _layouts(job)}
    if not rates:
        return None
    best = max(rates, key=rates.__getitem__)
    middle = rates[best] * (_FP8 if job.precision == "fp8" else 1.0)
    is_stated = job.micro_batch is not None and job.tensor_parallel is not None
    what = (
        "this job"
        if is_stated
        else f"the best layout (micro-batch {best.micro_batch}, "
        + (f"tensor parallelism {best.tensor_parallel}, checkpointing {best.checkpointing})")
    )
    return ExpectedRate(middle, middle * math.exp(_ONE_IN_TEN * _SIGMA), what)


def _rate(job: ClaimedJob, planned: PlannedJob) -> float:
    """Tokens a second and GPU. Of a pipeline one stage is planned, on the GPUs that share it."""
    step = min(plan(replace(planned, strategy=name)).step_ns for name in STRATEGIES)
    sequences = planned.micro_batch * planned.accumulation / planned.tensor_parallel
    rate = sequences * planned.seq / step * 1e9
    stages = job.pipeline_parallel or 1
    if stages > 1:
        count = planned.accumulation if job.global_batch else stages
        rate *= count / (count + (stages - 1) / job.virtual_stages) / stages
    return rate


def _layouts(job: ClaimedJob) -> Iterator[PlannedJob]:
    """Yield the layouts that the claim leaves open."""
    model, stages = job.decoder, job.pipeline_parallel or 1
    assert model is not None
    of_stage = replace(model, layers=max(round(model.layers / stages), 1))
    gpus = max(job.gpus // stages, 1)
    per_node = min(gpus, job.gpus_per_node)
    tensors = [job.tensor_parallel or 1] if job.tensor_parallel or job.micro_batch else [1, 2, 4, 8]
    kinds = [job.checkpointing] if job.checkpointing else ["none", "selective", "full"]
    for tensor in tensors:
        if per_node % tensor:
            continue
        for micro_batch in [job.micro_batch] if job.micro_batch else [1, 2, 4, 8]:
            for kind in kinds:
                count = (job.global_batch or 0) // (job.replicas * micro_batch)
                yield PlannedJob(
                    of_stage, job.gpu, max(gpus // per_node, 1), per_node, micro_batch,
                    job.seq or _USUAL_SEQ, kind, accumulation=max(count, 1),
                    tensor_parallel=tensor, kernels="eager",
                )  # fmt: skip
