"""One described step: its time by part, memory by stage, what it sends, and how sure that is."""

from dataclasses import dataclass
from functools import cached_property

from htk.physics.decoder import model_flops
from htk.physics.memory import (
    Memory,
    compute_peak_memory,
    kept_of_layer,
    model_size,
    p_oom,
    stage_memory,
)
from htk.planning.plan.certainty import Certainty, estimate_plan_certainty
from htk.planning.plan.compute import PassTime, StageCompute, optimizer_ns
from htk.planning.plan.job import SHARDED, PlannedJob, optimizer_bytes
from htk.planning.plan.traffic import PlannedTransfer, list_transfers

_HIDES = 0.8  # of the pass that gradients, or parameters, of a step travel behind
_SLOWED = 0.2  # of communication that is hidden: what it takes from the products beside it
# Of tensor or expert communication, where it is overlapped: by a vendor's library, by a framework.
_OVERLAPPED = 0.8
_OVERLAPPED_BY_FRAMEWORK = 0.6
_HOST_GBPS = 50.0  # to the host's memory and back, one way, where a state is offloaded
_ZERO_BUBBLE = 1 / 3  # of the bubble that is left: weights' gradients fill the rest (Qi et al.)
_EXPOSED = ("data", "tensor", "context", "expert", "pipeline")


@dataclass(frozen=True)
class Parts:
    """Of a step, in ns; they add up to it."""

    products: float
    attention: float
    memory: float
    casts: float
    gaps: float
    exposed_data: float
    exposed_tensor: float
    exposed_context: float
    exposed_expert: float
    exposed_pipeline: float
    bubble: float
    optimizer: float
    offload: float

    @property
    def compute(self) -> float:
        return self.products + self.attention + self.memory + self.casts + self.gaps

    @property
    def exposed(self) -> float:
        return (
            self.exposed_data
            + self.exposed_tensor
            + self.exposed_context
            + self.exposed_expert
            + self.exposed_pipeline
        )

    @property
    def total(self) -> float:
        return self.compute + self.exposed + self.bubble + self.optimizer + self.offload


class Plan:
    """What a described job takes. Cheap to make: each answer is worked out when it is asked."""

    def __init__(self, job: PlannedJob) -> None:
        self.job = job

    @property
    def step_ns(self) -> float:
        """The expected step."""
        return self.parts.total

    @property
    def tokens_per_s(self) -> float:
        """Return the throughput of the whole job, in tokens per second."""
        return self.job.global_batch * self.job.seq / (self.step_ns / 1e9)

    @property
    def flops(self) -> float:
        """Model FLOPs of the step, of all GPUs."""
        return float(model_flops(self.job.model, self.job.global_batch, self.job.seq))

    @property
    def mfu(self) -> float:
        """Return the share of the dense 16-bit peak."""
        job = self.job
        return self.flops / job.ranks / (self.step_ns * 1e-9 * job.gpu.half_tflops * 1e12)

    @cached_property
    def certainty(self) -> Certainty:
        sent = sum(t.duration_ns for t in self.transfers)
        return estimate_plan_certainty(self.job, sent / self.step_ns)

    def interval(self, percent: int) -> tuple[float, float]:
        """Return the ends of the 50 % or 90 % prediction interval of the step, in ns."""
        factor = self.certainty.factor(percent)
        return self.step_ns / factor, self.step_ns * factor

    @cached_property
    def transfers(self) -> list[PlannedTransfer]:
        return list_transfers(self.job)

    @cached_property
    def memory(self) -> Memory:
        """Return the memory of the fullest GPU."""
        return compute_peak_memory(model_size(self.job.model), self.job.layout)

    def memory_of_stage(self, stage: int) -> Memory:
        return stage_memory(model_size(self.job.model), self.job.layout, stage)

    @property
    def p_oom(self) -> float:
        return p_oom(self.memory.total, self.job.gpu.memory_bytes)

    @property
    def cost_per_million_tokens(self) -> float | None:
        price = self.job.price
        return None if price is None else self.job.ranks * price / (3.6e-3 * self.tokens_per_s)

    @property
    def joules_per_token(self) -> float | None:
        """At the accelerators' rated power, or the one that was given; hosts and network beside."""
        watts = self.job.watts or self.job.gpu.tdp_w
        return None if watts is None else watts * self.job.ranks / self.tokens_per_s

    @property
    def run_days(self) -> float | None:
        tokens = self.job.run_tokens
        return None if tokens is None else tokens / self.tokens_per_s / 86_400

    @cached_property
    def parts(self) -> Parts:
        return _Step(self.job, self.transfers).parts()


def plan(job: PlannedJob) -> Plan:
    """Return what a described job takes; its parts are worked out when they are asked for."""
    return Plan(job)


class _Step:
    def __init__(self, job: PlannedJob, sent: list[PlannedTransfer]) -> None:
        self.job = job
        self.stage = StageCompute(job)
        self.sent = sent

    def parts(self) -> Parts:
        m = self.job.accumulation
        there, back = self.passes
        slot = there.plus(back)
        exposed = {kind: self._compute_exposed(kind, slot.total) for kind in _EXPOSED}
        busy = slot.total + (exposed["tensor"] + exposed["context"] + exposed["expert"]) / m
        work = slot.times(m)
        return Parts(
            products=work.products,
            attention=work.attention,
            memory=work.memory,
            casts=work.casts,
            gaps=work.gaps,
            exposed_data=exposed["data"],
            exposed_tensor=exposed["tensor"],
            exposed_context=exposed["context"],
            exposed_expert=exposed["expert"],
            exposed_pipeline=exposed["pipeline"],
            bubble=self._compute_bubble(busy),
            optimizer=self._compute_optimizer(),
            offload=self._compute_offload(),
        )

    @cached_property
    def passes(self) -> tuple[PassTime, PassTime]:
        """Forward and backward of a micro-batch on the slowest stage: the last has the logits as
        well, unless layers are dealt so that it has fewer of them."""
        job = self.job
        there = self.stage.forward
        back = self.stage.backward
        logits = self.stage.logits
        chunks = job.pipeline_parallel * job.virtual_stages
        if job.model.layers % chunks == 0 or job.pipeline_parallel == 1:
            return there.plus(logits[0]), back.plus(logits[1])
        share = 1 / job.pipeline_parallel
        even = there.plus(logits[0].times(share)), back.plus(logits[1].times(share))
        # A chunk is whole layers: the fullest stage has as many as rounding up gives.
        fullest = -(-job.model.layers // chunks) * chunks / job.model.layers
        most = there.times(fullest), back.times(fullest)
        return even if even[0].total > most[0].total else most

    def _sum_durations(self, kind: str, phase: str | None = None) -> float:
        rows = (r for r in self.sent if r.kind == kind and phase in (None, r.phase))
        return sum(row.duration_ns for row in rows)

    def _compute_exposed(self, kind: str, slot: float) -> float:
        job = self.job
        sent = self._sum_durations(kind)
        if kind == "data":
            return self._exposed_data(slot)
        hidden = _OVERLAPPED if job.kernels == "fused" else _OVERLAPPED_BY_FRAMEWORK
        if kind == "tensor":
            return sent * (1 - hidden if job.overlaps_tensor else 1.0)
        if kind == "expert":
            return sent * (1 - hidden if job.overlap_expert else 1.0)
        if kind == "context":  # behind the attention of the piece before
            there, back = self.passes
            free = job.accumulation * (there.attention + back.attention)
            return _subtract_hidden(sent, free)
        return sent if job.virtual_stages == 1 else 0.0  # interleaved: behind the other chunk

    def _exposed_data(self, slot: float) -> float:
        job = self.job
        there, back = self.passes
        if job.strategy in SHARDED:
            sent = self._sum_durations("data")
            return _subtract_hidden(sent, job.accumulation * slot)
        ahead = self._sum_durations("data", "forward")
        behind = self._sum_durations("data", "backward")
        return _subtract_hidden(ahead, _HIDES * there.total) + _subtract_hidden(
            behind, _HIDES * back.total
        )

    def _compute_bubble(self, slot: float) -> float:
        job = self.job
        idle = (job.pipeline_parallel - 1) / job.virtual_stages * slot
        return idle * (_ZERO_BUBBLE if job.schedule == "zero_bubble" else 1.0)

    @property
    def _updated(self) -> float:
        """Parameters that a rank updates."""
        job = self.job
        model = self.job.model
        every = model.parameters / (job.pipeline_parallel * job.tensor_parallel)
        if job.expert_parallel > 1 and job.shards == 1:
            experts = model.moe_layers * model.experts * model.expert_parameters
            spread = job.expert_parallel * job.expert_tensor / job.tensor_parallel
            every -= experts * (1 - 1 / spread) / (job.pipeline_parallel * job.tensor_parallel)
        return job.trained_share * every / job.shards

    def _compute_optimizer(self) -> float:
        job = self.job
        if job.optimizer == "none":
            return 0.0
        return optimizer_ns(job.gpu, self._updated, optimizer_bytes(job.optimizer, job.format))

    def _compute_offload(self) -> float:
        """Return what travels to the host's memory and back, less what computing hides of it."""
        job = self.job
        if job.offload == "none":
            return 0.0
        there, back = self.passes
        slot = there.total + back.total
        if job.offload == "optimizer":  # gradients down, parameters up
            moved = self._updated * (job.format.gradient_bytes + job.format.parameter_bytes)
            return _subtract_hidden(moved / _HOST_GBPS, _HIDES * slot)
        size = model_size(job.model)
        kept = kept_of_layer(size, job.layout) * job.model.layers / job.pipeline_parallel
        moved = 2 * kept  # there and back
        return _subtract_hidden(job.accumulation * moved / _HOST_GBPS, job.accumulation * slot)


def _subtract_hidden(sent: float, free: float) -> float:
    """Return what communication adds where so much computing is free to hide it."""
    return max(sent - free, 0.0) + _SLOWED * min(sent, free)
