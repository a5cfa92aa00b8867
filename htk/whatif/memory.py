"""Peak memory after an edit, and how likely it is not to fit.

The model of `htk.physics.memory` tells what the recorded layout and the edited one hold. Where
allocations were recorded their peak is the anchor: state moves by as much as the model says, what
was activations grows by its ratio. Where they were not, the model's own peak is the answer, with a
wider interval.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from htk.base.core.humanize import format_bytes
from htk.physics.hardware import Gpu
from htk.physics.memory import (
    SIGMA,
    Layout,
    Memory,
    ModelSize,
    add_allocator_share,
    compute_peak_memory,
    p_oom,
)
from htk.physics.training_job import TrainingJob
from htk.whatif.recorded_peaks import PeakChange, RecordedPeaks

_SURE = 0.8  # of activations by the model: the least that the recorded peak is said to hold
_HALF, _SINGLE = 2.0, 4.0  # bytes of an activation
# Bytes of a parameter: two moments of Adam, of 32 and of 8 bits, and a copy in single precision of
# what is not.
_MOMENTS, _SMALL_MOMENTS, _COPY = 8.0, 2.0, 4.0
_MEASURED_SIGMA = 0.03
_CHANGED_SIGMA = 0.08
_FSDP = ("full_shard", "shard_grad_op", "hybrid_shard")
_NINE_TENTHS = 1.645  # standard deviations
_FROM_SHAPES_SIGMA = 0.1  # what shapes leave open of a model, beside the uncertainty of any peak


@dataclass(frozen=True)
class Held:
    """What a GPU held at its peak in the recording."""

    size: ModelSize  # as far as the recording shows it; 0: not
    layout: Layout
    capacity: float | None
    peaks: RecordedPeaks | None = None  # None: no allocations were recorded
    gpu: Gpu | None = None  # recorded

    @cached_property
    def reckoned(self) -> Memory:
        """The memory that the model predicts for the recorded layout."""
        return compute_peak_memory(self.size, self.layout)

    @property
    def activations(self) -> float:
        """The bytes of the recorded peak that grow with the batch.

        At the peak fewer units may be gathered than at most, so it is no less than the model's.
        """
        by_model = self.reckoned
        reckoned = by_model.activations + by_model.logits
        if self.peaks is None:
            return reckoned
        rest = float(self.peaks.growing.max())
        if self.peaks.is_of_blocks:
            return rest
        unsharded = by_model.gathered + by_model.buffers
        return max(rest - unsharded, min(_SURE * reckoned, rest)) if unsharded else rest


@dataclass(frozen=True)
class PredictedPeak:
    """The peak of an edited job, in bytes."""

    allocated: float  # what the framework's tensors take
    total: float  # with what the allocator loses, context, libraries and communicators
    p_oom: float | None  # None: no GPU is known
    sigma: float  # one standard deviation of the logarithm of what is allocated
    words: tuple[str, ...] = ()  # what it assumes


def predict_peak(before: Held, job: TrainingJob, kept: float) -> PredictedPeak | None:
    """Return the peak of an edited job; where nothing tells whether its ranks share parameters,
    that of ranks that do not, no surer than both are alike.

    `kept`: tokens of a rank's micro-batch, over the recorded. None where experts move, whose
    parameters a recording does not tell from others, or other stages of a pipeline; where it does
    not tell whether there are any, more than the batch must stay.
    """
    peak = _compute_peak(before, job, kept)
    is_told = job.strategy is not None or before.layout.shards * before.layout.replicas > 1
    if peak is None or is_told or not job.data_ranks or job.data_ranks < 2:
        return peak
    sharded = replace(job, strategy="full_shard", shards=job.data_ranks)
    least = _compute_peak(before, sharded, kept)
    if least is None:
        return peak
    apart = math.log(peak.allocated / least.allocated) / _NINE_TENTHS
    return replace(
        peak,
        sigma=math.hypot(peak.sigma, apart),
        words=(
            "one rank does not tell its sharding; memory is of ranks that share nothing, and "
            f"{format_bytes(round(least.allocated))} would be allocated with --sharding full_shard",
        ),
    )


def _compute_peak(before: Held, job: TrainingJob, kept: float) -> PredictedPeak | None:
    """Return the peak of an edited job whose sharding is known."""
    then = _reckoned_after(before, job, kept)
    if then is None:
        return None
    capacity = before.capacity if job.gpu in (before.gpu, None) else job.gpu.memory_bytes
    if before.peaks is None:
        sigma = math.hypot(SIGMA, _FROM_SHAPES_SIGMA)
        fits = None if capacity is None else p_oom(then.total, capacity, sigma)
        return PredictedPeak(then.held, then.total, fits, sigma)
    peak = max(before.peaks.after(_compute_change(before, job, then, kept)), 0.0)
    taken = add_allocator_share(peak + then.left)
    total = taken + then.reserved
    moved = abs(math.log(max(peak, 1.0) / before.peaks.highest))
    sigma = math.hypot(_MEASURED_SIGMA, _CHANGED_SIGMA * min(moved, 2.0))
    fits = None if capacity is None else p_oom(taken, capacity - then.reserved, sigma)
    return PredictedPeak(peak, total, fits, sigma)


def activations_ratio(before: Held, job: TrainingJob, kept: float) -> float | None:
    """Return how many times the activations of the recording an edited job keeps; None: not known,
    or it keeps other things as well."""
    then = _reckoned_after(before, job, kept)
    if before.peaks is None or then is None:
        return None
    change = _compute_change(before, job, then, kept)
    rest = replace(change, growing=1.0, casts=1.0)
    is_same = math.isclose(change.state, 0.0, abs_tol=1.0) and rest == PeakChange(change.state)
    return change.growing if is_same else None


def _reckoned_after(before: Held, job: TrainingJob, kept: float) -> Memory | None:
    """Return the memory that the model predicts for an edited job; None: it cannot."""
    if before.layout.pipeline not in (1, job.pipeline or 1):
        return None
    if (job.expert or 1) != before.layout.expert and not before.size.expert_parameters:
        return None
    layout = layout_of(job, before.layout, kept)
    if job.pipeline is None and not _is_alike(layout, before.layout):
        return None
    return compute_peak_memory(
        before.size, replace(layout, trained=_share_trained(before.size, job))
    )


def _is_alike(some: Layout, other: Layout) -> bool:
    """Return whether two layouts differ in their batch alone."""
    batch = replace(other, micro_batch=some.micro_batch, micro_batches=some.micro_batches)
    return some == batch


def _compute_change(before: Held, job: TrainingJob, then: Memory, kept: float) -> PeakChange:
    """Return what an edited job makes of the recorded peaks."""
    assert before.peaks is not None
    now = before.reckoned
    reckoned = now.activations + now.logits
    wider = layout_of(job, before.layout).saved_bytes / before.layout.saved_bytes
    ratio = (then.activations + then.logits) / reckoned if reckoned else kept * wider
    rest = float(before.peaks.growing.max())
    share = before.activations / rest if rest else 0.0  # what is gathered does not grow
    several = (job.micro_batches or 1) > 1 or job.captured
    was = before.layout.micro_batches > 1
    optimizer = then.optimizer / now.optimizer if now.optimizer else 1.0
    casts = 0.0 if job.is_single_precision else 1.0
    accumulates = None if several == was else several
    return PeakChange(
        state=then.state
        + _copied_alone(before.size, layout_of(job, before.layout))
        - now.state
        - _copied_alone(before.size, before.layout),
        growing=1 + share * (ratio - 1),
        optimizer=optimizer,
        casts=casts,
        accumulates=accumulates,
    )


def _copied_alone(size: ModelSize, layout: Layout) -> float:
    """Return the bytes that FSDP gathers of the parameters of one rank, which has them all."""
    if layout.strategy not in _FSDP or layout.shards * layout.replicas > 1:
        return 0.0
    return compute_peak_memory(size, replace(layout, shards=2)).gathered


def layout_of(job: TrainingJob, like: Layout, kept: float = 1.0) -> Layout:
    """Return what decides the memory of a job; `like`: the recorded one, whose kernels it keeps.

    `kept`: tokens of a rank's micro-batch, over the recorded, where no batch or length is known.
    """
    samples = job.micro_batch if job.seq or kept == 1 else None
    shards = job.shards or 1
    length = job.seq or like.seq
    element = _SINGLE if job.is_single_precision else _HALF
    flash = like.flash if job.flash is None else job.flash
    fused_loss = like.fused_loss if job.fused_loss is None else job.fused_loss
    return replace(
        like,
        strategy=job.strategy or "ddp",
        shards=shards,
        replicas=max((job.data_ranks or 1) // shards, 1),
        tensor=job.tensor or 1,
        pipeline=job.pipeline or 1,
        context=job.context or 1,
        expert=job.expert or 1,
        ahead=job.ahead,
        virtual=job.virtual,
        micro_batch=samples or like.micro_batch * kept,
        seq=length,
        micro_batches=round(job.micro_batches or 1),
        checkpointing=job.checkpointing or like.checkpointing,
        sequence_parallel=job.sequence_parallel,
        element_bytes=element,
        saved_bytes=element,
        parameter_bytes=element,
        gradient_bytes=element,
        flash=flash,
        fused_loss=fused_loss,
        optimizer_bytes=_optimizer_bytes(job),
    )


def _optimizer_bytes(job: TrainingJob) -> float:
    """Return the bytes of a parameter that the optimizer keeps."""
    moments = _SMALL_MOMENTS if job.eight_bit else _MOMENTS
    return moments + (0.0 if job.is_single_precision else _COPY)


def _share_trained(size: ModelSize, job: TrainingJob) -> float:
    """Return the share of parameters that have gradients: all, or adapters of layers' products."""
    every = size.layers * size.layer_parameters + size.root_parameters
    if not job.adapter_rank or not every:
        return 1.0
    return min(2 * job.adapter_rank * size.product_width * size.layers / every, 1.0)
