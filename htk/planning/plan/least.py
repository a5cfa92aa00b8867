"""The fewest GPUs on which a job is expected to fit."""

from dataclasses import replace

from htk.physics.memory import compute_peak_memory, model_size
from htk.planning.plan.job import PlannedJob

_MOST_GPUS = 1 << 17


def least_gpus(job: PlannedJob) -> int | None:
    """Return the fewest on which the expected peak fits, with the same work for each; None: none
    do. More replicas help where something is sharded over them."""
    split = job.tensor_parallel * job.pipeline_parallel
    fewest = max(job.context_parallel, _expert_group(job))
    if job.strategy in ("ddp", "hybrid_shard"):  # more GPUs make more copies
        shards = max(job.shards, fewest)
        return shards * split if _has_room(job, job.shards, 1) else None
    high = 1
    while not _has_room(job, high * fewest, 1):
        high *= 2
        if high * fewest * split > _MOST_GPUS:
            return None
    low = high // 2  # does not fit, or is none
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _has_room(job, middle * fewest, 1) else (middle, high)
    return high * fewest * split


def _expert_group(job: PlannedJob) -> int:
    """Data-parallel ranks that experts are spread over."""
    return -(-job.expert_parallel * job.expert_tensor // job.tensor_parallel)


def _has_room(job: PlannedJob, shards: int, copies: int) -> bool:
    layout = replace(job.layout, shards=shards, replicas=copies)
    return compute_peak_memory(model_size(job.model), layout).total <= job.gpu.memory_bytes
