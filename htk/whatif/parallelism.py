"""What a step gathers and reduces of its parameters, as its own collectives show."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from htk.base.columns.order import order_by
from htk.base.columns.types import Mask
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.group_kinds import described_as
from htk.whatif.micro_batch_count import count_synchronisations
from htk.whatif.step_model import StepModel

GRADIENTS = 1 << 20  # all-reduces at least as large are of gradients
# Units are gathered so many times as often as reduced, at least, where a backward pass gathers all
# but the first again; stages of a pipeline that keep units whole gather some of them there too.
_TWICE = 1.25


@dataclass(frozen=True)
class Sharded:
    strategy: str
    ranks: int  # that share a shard; of ddp, all
    unit_bytes: tuple[int, ...]  # gathered units of one rank, in forward
    reduced_bytes: int  # gradients of one rank, each once
    backward: Mask  # gathers that repeat one of forward
    replicas: int = 1  # of a shard group
    synchronisations: int = 1  # micro-batches whose gradients are reduced

    @property
    def world(self) -> int:
        """Ranks of data parallelism."""
        return self.ranks * self.replicas


def find_sharded(model: StepModel) -> Sharded | None:
    """From all_gathers (out bytes) and reduce_scatters (in bytes); None: no FSDP."""
    return model.once("sharded", lambda: _find_sharded(model))


def shared_tokens(model: StepModel) -> Mask:
    """Return the gathers and scatters of activations, by which tensor-parallel ranks share tokens
    (sequence parallelism): of described groups, or of those that scatter in the forward pass."""
    return model.once("shared tokens", lambda: _shared_tokens(model))


def _shared_tokens(model: StepModel) -> Mask:
    both = model.is_collective("all_gather", "reduce_scatter")
    described = both & described_as(model, "tensor")
    scatters = model.is_collective("reduce_scatter") & ~model.facts.backward
    if described.any() or not scatters.any():
        return described
    forward = scatters & _before_backward(model)
    largest = np.maximum(model.facts.in_bytes, model.facts.out_bytes)
    alike = np.isin(model.facts.group_size, model.facts.group_size[forward])
    return both & alike & np.isin(largest, largest[forward])


def _find_sharded(model: StepModel) -> Sharded | None:
    of_parameters = ~shared_tokens(model)
    gathers = model.is_collective("all_gather") & (model.facts.out_bytes > 0) & of_parameters
    reduces = model.is_collective("reduce_scatter") & (model.facts.in_bytes > 0) & of_parameters
    if not gathers.any() or not reduces.any():
        return None
    acts = model.graph.activities
    backward = gathers & model.facts.backward
    units: tuple[int, ...] = ()
    for rank in model.graph.ranks:
        of_rank = np.flatnonzero(gathers & (acts.rank == rank))
        of_rank = of_rank[order_by(acts.start[of_rank])]
        seen: dict[int, int] = {}
        wanted = _count_sizes(model.facts.in_bytes[reduces & (acts.rank == rank)])
        forward = []
        for gather in of_rank.tolist():  # some tens of units
            size = int(model.facts.out_bytes[gather])
            seen[size] = seen.get(size, 0) + 1
            if backward[gather] or seen[size] > wanted.get(size, seen[size]):
                backward[gather] = True
            else:
                forward.append(size)
        each = sum(wanted.values()) // max(count_synchronisations(model, reduces), 1)
        units = tuple(forward[:each])
    of_first = acts.rank == model.graph.ranks[0]
    times = max(count_synchronisations(model, reduces), 1)
    copies = mark_replicating(model)
    again = backward.any() and (gathers & of_first).sum() > _TWICE * (reduces & of_first).sum()
    strategy = "hybrid_shard" if copies.any() else "full_shard" if again else "shard_grad_op"
    replicas = int(model.facts.group_size[copies].max()) if copies.any() else 1
    return Sharded(
        strategy,
        int(model.facts.group_size[gathers].max()),
        units,
        int(model.facts.in_bytes[reduces & of_first].sum()) // times,
        backward,
        replicas,
        times,
    )


def find_replicated(model: StepModel) -> Sharded | None:
    """Data parallelism without shards: all-reduces of gradients alone; None: none."""
    reduces = mark_replicating(model)
    if not reduces.any():
        return None
    first = model.graph.activities.rank == model.graph.ranks[0]
    times = max(count_synchronisations(model, reduces), 1)
    reduced = int(model.facts.in_bytes[reduces & first].sum()) // times
    ranks = int(model.facts.group_size[reduces].max())
    none = np.zeros(len(reduces), bool)
    return Sharded("ddp", ranks, (), reduced, none, synchronisations=times)


def mark_replicating(model: StepModel) -> Mask:
    """Return all-reduces of gradients: of some size, and none of them in the forward pass."""
    return model.once("replicating", lambda: _mark_replicating(model)).copy()


def _mark_replicating(model: StepModel) -> Mask:
    reduces = model.is_collective("all_reduce") & (model.facts.in_bytes >= GRADIENTS)
    if not reduces.any():
        return reduces
    forward = reduces & ~model.facts.backward & _before_backward(model)
    alike = model.facts.in_bytes <= _find_largest(model, forward)
    for of_group in (model.facts.group_size, model.facts.group_kind.codes):
        alike &= np.isin(of_group, of_group[forward])  # tensor parallelism reduces there too
    return reduces & ~alike


def scale_optimizer(model: StepModel, ratio: float) -> StepModel:
    """Return the optimizer works on more parameters, or fewer."""
    optimizer = model.facts.family.isin("optimizer")
    return model.with_lengths(optimizer, model.lengths() * ratio)


def _find_largest(model: StepModel, chosen: Mask) -> int:
    return int(model.facts.in_bytes[chosen].max(initial=-1))


def _before_backward(model: StepModel) -> Mask:
    acts = model.graph.activities
    back = model.facts.backward
    earlier = np.zeros(len(back), bool)
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)  # copies on other streams run ahead
        evaluated = lane[back[lane]]
        if len(evaluated):
            earlier |= (acts.rank == rank) & (acts.start < int(acts.start[evaluated].min()))
    return earlier


def _count_sizes(sizes: NDArray[np.int64]) -> dict[int, int]:
    values, count = np.unique(sizes, return_counts=True)
    return dict(zip(values.tolist(), count.tolist(), strict=True))
