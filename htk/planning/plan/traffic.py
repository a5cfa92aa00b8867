"""What the ranks of a described job send to each other in a step, and how long that takes.

Each kind of parallelism has its rows: in which pass, by which collective, over how many ranks, what
a rank hands in and what it sends. Sizes are those of `models.wire` for what is sharded, of
Korthikanti et al. (2022) for tensor and sequence parallelism, of ring attention (Liu et al., 2023)
for context parallelism. Tokens that several experts of one domain take cross to it once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from htk.physics.collective_latency import hops_ns
from htk.physics.network import Network
from htk.physics.wire import Sharding, build_ledger
from htk.planning.plan.job import SHARDED, PlannedJob


@dataclass(frozen=True)
class PlannedTransfer:
    """Of one rank and step."""

    kind: str  # data, tensor, context, expert, pipeline
    phase: str  # forward, backward, step
    collective: str
    ranks: int
    input_bytes: float  # that the rank hands in
    wire_bytes: float  # that it sends
    duration_ns: float  # all of them one after the other, exposed or not


def list_transfers(job: PlannedJob) -> list[PlannedTransfer]:
    """Return all that a rank of an inner stage sends in a step."""
    return list(_Traffic(job).rows())


class _Traffic:
    def __init__(self, job: PlannedJob) -> None:
        self.job = job
        self.model = job.model
        self.layers = job.model.layers / job.pipeline_parallel
        self.again = job.checkpointing == "full"
        element = job.format.element_bytes
        self.activations = element * job.tokens_of_rank * job.model.hidden  # of a micro-batch

    @cached_property
    def network(self) -> Network:
        return self.job.network

    def rows(self) -> Iterator[PlannedTransfer]:
        job = self.job
        yield from self._list_data_transfers()
        if job.tensor_parallel > 1:
            yield from self._list_tensor_transfers()
        if job.context_parallel > 1:
            yield from self._list_context_transfers()
        if job.expert_parallel > 1 and self.model.moe_layers:
            yield from self._list_expert_transfers()
        if job.pipeline_parallel > 1:
            yield from self._list_pipeline_transfers()

    def _build_transfer(
        self,
        kind: str,
        phase: str,
        collective: str,
        ranks: int,
        stride: int,
        size: tuple[float, float],
        count: float,
    ) -> PlannedTransfer:
        """`size`: what all of them hand in, and send; `count`: calls."""
        into, wire = size
        pace = self.network.spread_pace(ranks, stride)
        members = self.network.members(ranks, stride)
        latency = self.network.latency(ranks, members)
        if collective in ("all_gather", "reduce_scatter", "all_reduce"):
            each = wire * pace / max(count, 1.0)
            latency = max(latency, hops_ns(collective, ranks, members, each))
        ns = wire * pace + count * latency
        return PlannedTransfer(kind, phase, collective, ranks, into, wire, ns)

    def _list_data_transfers(self) -> Iterator[PlannedTransfer]:
        """Parameters and gradients: those of experts lie on fewer copies."""
        job = self.job
        model = self.model
        experts = float(model.moe_layers * model.experts * model.expert_parameters)
        experts /= job.pipeline_parallel * job.expert_parallel * job.expert_tensor
        ends = model.root_parameters / (2 if job.pipeline_parallel > 1 else 1)
        beside = float(model.parameters - model.root_parameters)
        beside -= model.moe_layers * model.experts * model.expert_parameters
        dense = (beside / job.pipeline_parallel + ends) / job.tensor_parallel
        kept = ends / job.tensor_parallel
        stride = job.tensor_parallel
        if job.expert_parallel == 1:
            dense = dense + experts * job.expert_tensor / job.tensor_parallel
            experts = 0.0
        yield from self._list_copies(dense, kept, job.data_ranks, stride)
        if experts:
            stride = job.expert_parallel * job.expert_tensor
            yield from self._list_copies(experts, 0.0, job.expert_replicas, stride)

    def _list_copies(
        self, parameters: float, kept: float, ranks: int, stride: int
    ) -> Iterator[PlannedTransfer]:
        if ranks < 2:
            return
        job, layers = self.job, self.layers
        sharding = self._build_sharding(ranks)
        batches = job.accumulation if job.strategy in SHARDED else 1
        trained = job.trained_share
        sent = build_ledger(round(parameters), sharding, kept=round(kept), micro_batches=batches)
        calls = layers * batches
        if sent.gather_wire:
            share = sent.forward_gather_input / sent.gather_input if sent.gather_input else 1.0
            if job.strategy in ("zero1", "zero2"):
                share, calls = 1.0, layers
            s = sharding.shards
            for phase, part in (("forward", share), ("backward", 1 - share)):
                if part > 1e-9:
                    size = part * sent.gather_input, part * sent.gather_wire
                    yield self._build_transfer("data", phase, "all_gather", s, stride, size, calls)
        if sent.reduce_wire:
            into = sent.reduce_wire * sharding.shards / (sharding.shards - 1)
            size = trained * into, trained * sent.reduce_wire
            s = sharding.shards
            yield self._build_transfer("data", "backward", "reduce_scatter", s, stride, size, calls)
        if sent.all_reduce_wire:
            r = sharding.replicas if sharding.replicas > 1 else ranks
            far = stride * (sharding.shards if sharding.replicas > 1 else 1)
            wire = trained * sent.all_reduce_wire
            size = wire * r / (2 * (r - 1)), wire
            yield self._build_transfer("data", "backward", "all_reduce", r, far, size, calls)

    def _build_sharding(self, ranks: int) -> Sharding:
        job = self.job
        parameter = job.format.parameter_bytes
        gradient = job.format.gradient_bytes
        if job.format.saved_bytes < 1:  # gathered in a byte or more
            parameter = max(parameter, 1)
        shards = ranks
        copies = 1
        strategy = job.strategy
        if strategy == "hybrid_shard":
            shards = min(job.shards, ranks)
            copies = max(ranks // shards, 1)
            strategy = "hybrid_shard" if copies > 1 else "full_shard"
        if strategy == "zero2":  # gradients are reduced with each micro-batch all the same
            strategy = "zero1"
        return Sharding(strategy, shards, copies, round(parameter), round(gradient))

    def _list_tensor_transfers(self) -> Iterator[PlannedTransfer]:
        """Two all-reduces of activations a layer and pass; with sequence parallelism each is a
        reduce-scatter and an all-gather, and the backward pass gathers the inputs again."""
        job = self.job
        t = self.job.tensor_parallel
        calls = (self.model.mixers + self.model.feed_forwards) / job.pipeline_parallel
        calls += self.model.state_space_layers / job.pipeline_parallel
        calls *= job.accumulation
        moved = calls * self.activations
        wire = 2 * (t - 1) / t * moved
        forward = 2.0 if self.again else 1.0
        kind = "all_reduce" if job.sequence_split == 1 else "reduce_scatter, all_gather"
        size = forward * moved, forward * wire
        yield self._build_transfer("tensor", "forward", kind, t, 1, size, 2 * forward * calls)
        more = 1.5 if job.sequence_split > 1 else 1.0
        yield self._build_transfer(
            "tensor", "backward", kind, t, 1, (more * moved, more * wire), 2 * calls
        )

    def _list_context_transfers(self) -> Iterator[PlannedTransfer]:
        """Keys and values go round the ring; backward also their gradients."""
        job = self.job
        c = self.job.context_parallel
        count = self.model.mixers / job.pipeline_parallel * job.accumulation
        width = 2 * self.model.kv_width / job.tensor_parallel
        each = job.format.element_bytes * job.tokens_of_rank * width * count
        forward = 2.0 if self.again else 1.0
        for phase, times in (("forward", forward), ("backward", 2.0)):
            size = times * each, times * (c - 1) * each
            calls = times * (c - 1) * count
            yield self._build_transfer(
                "context", phase, "send_recv", c, job.tensor_parallel, size, calls
            )

    def _list_expert_transfers(self) -> Iterator[PlannedTransfer]:
        """To the experts and back, a layer and pass."""
        job = self.job
        model = self.model
        e = self.job.expert_parallel
        count = model.moe_layers / job.pipeline_parallel * job.accumulation
        split = job.sequence_split
        width = job.format.element_bytes * (model.expert_input or model.hidden)
        taken = min(job.capacity or 1.0, 1.0) * model.active_experts
        tokens = job.tokens_of_rank / split
        stride = job.expert_tensor
        domains = max(e // self.network.members(e, stride), 1)
        within = tokens * taken * width * (e - 1) / e
        far = tokens * width * _other_domains(domains, taken)
        there = 2 * count  # dispatch and combine
        links = self.network.within.ns_per_byte or self.network.links or 0.0
        near_ns = within * links
        far_ns = 0.0
        if domains > 1:
            far_ns = far * self.network.spread_pace(domains, self.network.node)
        latency = self.network.latency(e, self.network.members(e, stride))
        ns = there * (max(near_ns, far_ns) + latency)
        wire = there * (far if domains > 1 else within)
        forward = 2.0 if self.again else 1.0
        handed = there * tokens * taken * width
        for phase, times in (("forward", forward), ("backward", 1.0)):
            yield PlannedTransfer(
                "expert", phase, "all_to_all", e, times * handed, times * wire, times * ns
            )

    def _list_pipeline_transfers(self) -> Iterator[PlannedTransfer]:
        """Activations to the next stage, their gradients to the one before."""
        job = self.job
        calls = job.accumulation * job.virtual_stages
        size = self.activations / job.sequence_split * calls
        stride = job.ranks // job.pipeline_parallel
        for phase in ("forward", "backward"):
            yield self._build_transfer(
                "pipeline", phase, "send_recv", 2, stride, (size, size), calls
            )


def _other_domains(domains: int, experts: float) -> float:
    """Return how many domains beside its own a token goes to, if experts are chosen evenly."""
    if domains < 2:
        return 0.0
    return float((domains - 1) * (1 - (1 - 1 / domains) ** experts))
