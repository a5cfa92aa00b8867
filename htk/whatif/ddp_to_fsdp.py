"""From data parallelism without shards to FSDP (its second version), whose units such a step lacks.

Units are the layers, told by their attention, and the root: what is in none. A unit is gathered and
copied out before its forward pass, and its backward pass where it was freed; the next unit's gather
is issued ahead of a unit's backward pass. Gradients are put together and reduced behind it, one
unit at a time: compute waits for the reduction before the last one. The CPU does all of that where
PyTorch's hooks stand; its calls and operators take as long as those of the recording, what is
Python in a hook is not in it and assumed.
"""

from dataclasses import dataclass, field

import numpy as np

from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.physics.network import Network
from htk.whatif.data_groups import Position, data_network, data_positions
from htk.whatif.fsdp_units import (
    Region,
    backward_layers,
    compute_lane,
    find_layers,
    find_passes,
    next_of,
    position_on,
    weights_between,
)
from htk.whatif.host_cost import delay_calls, host_ns, launch_ns, operator_ns, remove_calls
from htk.whatif.number_format import gradient_bytes
from htk.whatif.parallelism import Sharded, mark_replicating, scale_optimizer
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import COMPUTE, Work, insert_works, link_to_step_before

OUT = "fsdp::split_with_sizes_copy"
TOGETHER = "fsdp::chunk_cat"
# Python of a hook, in calls of a collective. PyTorch 2.13's hooks on a CPU took one to several.
_HOOK = 1.5
_HOST_SIGMA = 0.5


@dataclass(frozen=True)
class _Plan:
    """How units are sharded, and what that takes."""

    name: str
    shards: int
    replicas: int
    network: Network
    unit: float  # bytes of a layer
    root: float  # bytes of what is in no layer
    copied: float  # from buffer to parameters, or back; 0: unknown
    shortest: float  # a kernel
    hook: float  # ns of the CPU
    call: float  # to issue a collective
    operator: float  # to launch a kernel
    launch: float  # from a call to its activity

    @property
    def gather_ns(self) -> float:
        """The CPU time of a gather with the copies around it, in ns."""
        return self.call + 2 * self.operator

    @property
    def reduce_ns(self) -> float:
        return self.hook + self.operator + self.call * (2 if self.replicas > 1 else 1)

    def length(self, size: float) -> float:
        """Return the time of a gather or reduction of `size` bytes within a shard group, in ns."""
        return self.network.group_latency(self.shards) + size * self.network.shared(self.shards)

    def summed(self, size: float) -> float:
        """Return the time to sum a unit of `size` bytes over replicas, in ns."""
        world = self.shards * self.replicas
        return self.network.group_latency(world) + size * self.network.summed(world, self.shards)

    def copy(self, size: float) -> float:
        return self.shortest + size * self.copied


@dataclass
class _Rank:
    """The new activities of a rank, in the order in which its CPU issues them."""

    model: StepModel
    plan: _Plan
    lane: Ints
    first: int  # number of its first work
    like: int  # a collective of its
    position: Position
    works: list[Work] = field(default_factory=list)
    calls: list[tuple[int, float]] = field(default_factory=list)  # that the CPU comes to later
    sent: int = -1  # the last collective of the shard group
    reduced: int = -1  # the last reduction
    summed: int = -1  # and the last one between replicas
    copied: list[int] = field(default_factory=list)  # out of buffers
    together: int = -1  # the last copy into a buffer, on the compute stream

    @property
    def number(self) -> int:
        return self.first + len(self.works)

    def call(self, activity: int) -> int:
        return int(self.model.graph.activities.call[activity])

    def is_backward(self, turn: Ints) -> bool:
        return bool(self.model.facts.backward[turn].any())

    def busy(self, before: int, ns: float) -> None:
        self.calls.append((self.call(before), ns))

    def gather(self, size: float, launched: int, lead: float) -> int:
        """Issue a gather `lead` ns before the CPU launches an activity; return its number."""
        held = self.copied[-2:-1] + [self.sent] * (self.sent >= 0)
        self.sent = self._build_collective("all_gather", size, held, launched, lead)
        return self.sent

    def copy_out(self, size: float, gathered: int, before: int) -> None:
        after = [
            gathered,
            *_find_predecessor(self.lane, before),
            *[self.together] * (self.together >= 0),
        ]
        self.copied.append(self._copy(size, after, before, OUT))

    def reduce(self, size: float, last: int, rest: int, lead: float) -> None:
        """Put a unit's gradients together behind its last activity, and reduce them."""
        following = next_of(self.lane, last)
        after = [last, *[self.reduced] * (self.reduced >= 0)]
        self.together = self._copy(size, after, following, TOGETHER)
        held = [self.together, *[self.sent] * (self.sent >= 0)]
        self.sent = self._build_collective("reduce_scatter", size, held, following, lead, rest)
        self.reduced = self.sent
        if self.plan.replicas > 1:
            held = [self.reduced, *[self.summed] * (self.summed >= 0)]
            self.summed = self._build_replica_sum(size, held, rest)

    def _copy(self, size: float, after: list[int], before: int, op: str) -> int:
        waits = (before,) if before not in after else ()
        copy = Work(int(self.lane[0]), self.plan.copy(size), tuple(after), waits, COMPUTE, op=op)
        self.works.append(copy)
        return self.number - 1

    def _build_collective(
        self, kind: str, size: float, after: list[int], launched: int, lead: float, rest: int = -1
    ) -> int:
        plan = self.plan
        gather = kind == "all_gather"
        part = size / plan.shards
        before = (rest,) if rest >= 0 and rest not in after else ()
        work = Work(
            self.like,
            plan.length(size),
            tuple(after),
            before,
            collective=kind,
            in_bytes=round(part if gather else size),
            out_bytes=round(size if gather else part),
            group_size=plan.shards,
            per_node=plan.network.in_node(plan.shards),
            joined=(len(self.works), self.position.group, self.position.place // plan.shards),
            call=self.call(launched),
            lag=plan.launch - lead,
        )
        self.works.append(work)
        return self.number - 1

    def _build_replica_sum(self, size: float, after: list[int], rest: int) -> int:
        plan = self.plan
        all_reduce = build_replica_reduce(
            self.like,
            plan.summed(size),
            (tuple(after), (rest,) if rest not in after else ()),
            size=size / plan.shards,
            ranks=plan.replicas,
            per_node=plan.network.replicas_in_node(plan.shards * plan.replicas, plan.shards),
            joined=(len(self.works), self.position.group, self.position.place % plan.shards),
        )
        self.works.append(all_reduce)
        return self.number - 1


def from_replicas(model: StepModel, now: Sharded, name: str, shards: int) -> StepModel:
    works: list[Work] = []
    calls: list[tuple[int, float]] = []
    plan, acts = None, model.graph.activities
    many = len(acts.start)
    reduces = np.flatnonzero(mark_replicating(model))
    firsts = []
    lasts = []
    units = 0
    positions = data_positions(model)
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        turns = find_passes(model, lane)
        forward = find_layers(model, turns[0]) if turns else []
        backward = backward_layers(model, lane, len(forward))
        if not forward or not backward:
            raise UsageError(
                "sharding: from ddp the layers must be seen: attention kernels, forward and "
                "backward; record a step of FSDP"
            )
        plan = plan or _plan_units(model, now, name, shards, lane, forward)
        like = int(reduces[acts.rank[reduces] == rank][0])
        builder = _Rank(model, plan, lane, many + len(works), like, positions[rank])
        for turn in turns:
            if builder.is_backward(turn):
                _build_backward(builder, turn, backward_layers(model, turn, len(forward)))
            else:
                _build_forward(builder, turn, find_layers(model, turn))
        firsts.append(builder.first)
        lasts.append(int(lane[-1]))
        works += builder.works
        calls += builder.calls
        units = len(forward)
    bare = scale_optimizer(remove_calls(model, mark_replicating(model), hooks=False), 1 / shards)
    late = delay_calls(bare, np.array([c for c, _ in calls]), np.array([ns for _, ns in calls]))
    edited = link_to_step_before(insert_works(late, works), np.array(lasts), np.array(firsts))
    hook = 0.0 if plan is None else plan.hook / 1e3
    return (
        edited.with_uncertainty("structure", 0.03)
        .with_uncertainty("host", _HOST_SIGMA)
        .with_assumption(
            f"units are the {units} layers that attention kernels tell, and what is in none",
            "calls and operators of FSDP take the host as long as those of the recording; Python "
            f"of its hooks, which that does not show, is assumed to take {hook:.0f} us each time",
        )
    )


def _build_forward(builder: _Rank, turn: Ints, regions: list[Region]) -> None:
    """Gather the units of a forward pass, whose activities are the turn's."""
    plan = builder.plan
    acts = builder.model.graph.activities
    begin = next(int(a) for a in turn.tolist() if acts.kind[a] == 0)
    for size, first in [(plan.root, begin), *((plan.unit, r.first) for r in regions)]:
        builder.busy(first, plan.hook + plan.gather_ns)
        lead = plan.operator
        if size == plan.root and begin == regions[0].first:  # both hooks come before one launch
            lead += plan.hook + plan.gather_ns
        builder.copy_out(size, builder.gather(size, first, lead), first)


def _build_backward(builder: _Rank, turn: Ints, regions: list[Region]) -> None:
    """Gather the units of a backward pass, whose activities are the turn's, and reduce them."""
    plan = builder.plan
    lane = builder.lane
    backward = turn[builder.model.facts.backward[turn]]
    again = plan.name != "shard_grad_op"
    rest = next_of(lane, int(backward[-1]))
    builder.together = -1
    begin = int(backward[0])
    gathered = -1
    if again:
        builder.busy(begin, plan.call + plan.operator)
        gathered = builder.gather(plan.unit, begin, 0.0)
    for k, region in enumerate(regions):
        ns = plan.hook
        last = k + 1 == len(regions)
        if again:
            builder.copy_out(plan.unit, gathered, region.first)
            ns += plan.operator if last else plan.gather_ns
            if not last:
                gathered = builder.gather(plan.unit, region.first, 0.0)
        builder.busy(region.first, ns)
        following = next_of(lane, region.last)
        builder.busy(following, plan.reduce_ns)
        lead = 0.0 if last else plan.hook + plan.gather_ns * again
        builder.reduce(plan.unit, region.last, rest, lead)
    builder.busy(rest, plan.reduce_ns)
    builder.reduce(plan.root, int(backward[-1]), rest, 0.0)


def _plan_units(
    model: StepModel, now: Sharded, name: str, shards: int, lane: Ints, forward: list[Region]
) -> _Plan:
    """Return how units are sharded, and what that takes.

    A layer is what lies between two attention kernels, the same in all.
    """
    many = len(forward)
    unit = float(gradient_bytes(model)) * weights_between(model, lane, forward[many // 2])
    if not 0 < unit * many <= now.reduced_bytes:
        unit = now.reduced_bytes / (many + 1)
    root = max(now.reduced_bytes - unit * many, 0.0)
    gpu = model.device
    computing = model.is_compute & (model.lengths() > 0)
    call = host_ns(model, mark_replicating(model), hooks=True)
    copied = 0.0 if gpu is None else 2 / gpu.achievable_memory_gbps
    shortest = float(model.lengths()[computing].min(initial=0)) if gpu else 0.0
    return _Plan(
        name,
        shards,
        now.world // shards,
        data_network(model),
        unit,
        root,
        copied,
        shortest,
        _HOOK * call,
        call,
        operator_ns(model),
        launch_ns(model),
    )


def build_replica_reduce(
    like: int,
    length: float,
    order: tuple[tuple[int, ...], tuple[int, ...]],
    *,
    size: float,
    ranks: int,
    per_node: int,
    joined: tuple[int, ...],
) -> Work:
    """Return the all-reduce, between the replicas of each shard, of what shard groups reduced."""
    return Work(
        like,
        length,
        *order,
        collective="all_reduce",
        in_bytes=round(size),
        out_bytes=round(size),
        group_size=ranks,
        per_node=per_node,
        joined=joined,
    )


def _find_predecessor(lane: Ints, before: int) -> tuple[int, ...]:
    """Return the activity in front of one on its stream."""
    position = position_on(lane, before)
    return (int(lane[position - 1]),) if position else ()
