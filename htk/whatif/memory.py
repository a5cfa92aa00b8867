"""Peak memory after an edit, and how likely it is not to fit.

The model of `htk.physics.memory` tells what the recorded layout and the edited one hold. Where
allocations were recorded their peak is the anchor: state moves by as much as the model says, what
was activations grows by its ratio. Where they were not, the model's own peak is the answer, with a
wider interval.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from htk.physics.hardware import Gpu
from htk.physics.memory import SIGMA, Layout, Memory, ModelSize, allocated, memory, p_oom
from htk.physics.training_job import TrainingJob

_SURE = 0.8  # of activations by the model: the least that the recorded peak is said to hold
_MEASURED_SIGMA, _CHANGED_SIGMA = 0.03, 0.08
_FROM_SHAPES_SIGMA = 0.1  # what shapes leave open of a model, beside the uncertainty of any peak


@dataclass(frozen=True)
class Held:
    """What a GPU held at its peak in the recording."""

    size: ModelSize  # as far as the recording shows it; 0: not
    layout: Layout
    capacity: float | None
    static: float = 0.0  # least that was allocated
    measured: float | None = None  # the recorded peak
    gpu: Gpu | None = None  # recorded

    @cached_property
    def reckoned(self) -> Memory:
        """The memory that the model predicts for the recorded layout."""
        return memory(self.size, self.layout)

    @property
    def activations(self) -> float:
        """The bytes of the recorded peak that grow with the batch.

        At the peak fewer units may be gathered than at most, so it is no less than the model's.
        """
        by_model = self.reckoned
        reckoned = by_model.activations + by_model.logits
        if self.measured is None:
            return reckoned
        rest = self.measured - self.static
        return max(rest - by_model.gathered - by_model.buffers, min(_SURE * reckoned, rest))


def after(before: Held, job: TrainingJob, kept: float) -> tuple[int | None, float | None]:
    """Return the peak of an edited job, in bytes, and the probability that it does not fit.

    `kept`: tokens of a rank's micro-batch, over the recorded. Null where experts move: a recording
    does not tell their parameters from others.
    """
    if (job.expert or 1) != before.layout.expert and not before.size.expert_parameters:
        return None, None
    now = before.reckoned
    then = memory(before.size, layout_of(job, before.layout, kept))
    capacity = before.capacity if job.gpu in (before.gpu, None) else job.gpu.memory_bytes
    if before.measured is None:
        peak = then.total
        sigma = math.hypot(SIGMA, _FROM_SHAPES_SIGMA)
        return round(peak), None if capacity is None else p_oom(peak, capacity, sigma)
    reckoned = now.activations + now.logits
    ratio = (then.activations + then.logits) / reckoned if reckoned else kept
    change = then.state - now.state + before.activations * (ratio - 1)
    peak = max(before.measured + change, 0.0)
    if capacity is None:
        return round(peak), None
    moved = abs(math.log(max(peak, 1.0) / before.measured))
    sigma = math.hypot(_MEASURED_SIGMA, _CHANGED_SIGMA * min(moved, 2.0))
    return round(peak), p_oom(allocated(peak), capacity - then.reserved, sigma)


def layout_of(job: TrainingJob, like: Layout, kept: float = 1.0) -> Layout:
    """Return what decides the memory of a job; `like`: the recorded one, whose kernels it keeps.

    `kept`: tokens of a rank's micro-batch, over the recorded, where no batch is known.
    """
    shards = job.shards or 1
    length = job.seq or like.seq
    return replace(
        like,
        strategy=job.strategy or "ddp",
        shards=shards,
        replicas=max((job.data_ranks or 1) // shards, 1),
        tensor=job.tensor or 1,
        pipeline=job.pipeline or 1,
        context=job.context or 1,
        expert=job.expert or 1,
        virtual=job.virtual,
        micro_batch=job.micro_batch or like.micro_batch * kept,
        seq=length,
        micro_batches=round(job.micro_batches or 1),
        checkpointing=job.checkpointing or like.checkpointing,
        sequence_parallel=job.sequence_parallel,
    )
