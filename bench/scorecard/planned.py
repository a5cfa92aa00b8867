"""What a plan without any trace expects of a job: what predictions from its trace must beat."""

from bench.scorecard.jobs import Job
from htk.base.errors import HtkError
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan


def planned_ns(
    job: Job, micro_batches: int, *, precision: str = "bf16", sequence_parallel: bool = False
) -> float | None:
    """Return the step that a plan expects, of so many micro-batches; None: it takes no such job."""
    if job.decode_requests:
        return None
    try:
        described = PlannedJob(
            job.decoder,
            job.device,
            job.nodes,
            job.gpus_per_node,
            job.micro_batch,
            job.seq,
            "full" if job.checkpointing else "none",
            accumulation=micro_batches,
            tensor_parallel=job.tensor_parallel,
            context_parallel=job.context_parallel,
            expert_parallel=job.expert_parallel,
            strategy=job.strategy,
            sequence_parallel=sequence_parallel,
            precision=precision,
        )
        return float(plan(described).step_ns)
    except HtkError:
        return None


def planned_change(before: float | None, after: float | None) -> float | None:
    """Return how many times longer a plan expects a step to become."""
    return None if before is None or after is None else after / before
