"""The micro-batches of a step: how many there are, and which of them reduce their gradients."""

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints, Mask
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.group_kinds import between_stages
from htk.whatif.step_model import StepModel

_SHARE = 0.1  # of the kernels of a step that trains, at least, are of its backward pass


def micro_batches(model: StepModel) -> int:
    """Return the number of micro-batches, by the step's backward passes; 0: none seen.

    A pass comes in parts where a library runs forward work beside it; what a layer of a shape of
    its own is evaluated for tells how many there are at most. Of stages of a pipeline the last one
    alone takes forward and backward passes in turn.
    """
    return model.once("micro-batches", lambda: _micro_batches(model))


def _micro_batches(model: StepModel) -> int:
    return max(_passes_of(model, compute_lane(model, rank)) for rank in _list_stage_ranks(model))


def _list_stage_ranks(model: StepModel) -> list[int]:
    """Return a rank of each stage, or more."""
    ranks = list(model.graph.ranks)
    return ranks if between_stages(model).any() else ranks[:1]


def _passes_of(model: StepModel, lane: Ints) -> int:
    """Return the backward passes of a rank."""
    back = model.facts.backward[lane]
    if back.sum() < _SHARE * len(lane):
        return 0
    passes = int(back[:1].sum() + (back[1:] & ~back[:-1]).sum())
    products = lane[back & model.facts.family.isin("gemm", "convolution")[lane]]
    shaped = products[model.facts.dims.where(bool)[products] & ~model.facts.recomputed[products]]
    if not len(shaped):
        return passes
    alike = Groups.by_keys([model.facts.op.codes[shaped], model.facts.dims.codes[shaped]])
    return min(passes, int(alike.count.min()))


def count_synchronisations(model: StepModel, reduces: Mask) -> int:
    """Return in how many backward passes of a rank gradients are reduced; 0: in none.

    With gradients accumulated without synchronisation (no_sync), the last one alone reduces them.
    """
    most = max(_count_reducing(model, reduces, rank) for rank in _list_stage_ranks(model))
    return min(most, max(micro_batches(model), 1))


def begins_of_backward(model: StepModel, lane: Ints) -> Ints:
    """Return the places on a stream where runs of backward work begin, with what it recomputes."""
    back = (model.facts.backward | model.facts.recomputed)[lane]
    return np.flatnonzero(np.append(back[:1], back[1:] & ~back[:-1]))


def _count_reducing(model: StepModel, reduces: Mask, rank: int) -> int:
    """Return in how many runs of backward work a rank reduces gradients."""
    acts = model.graph.activities
    lane = compute_lane(model, rank)
    begins = acts.start[lane[begins_of_backward(model, lane)]]
    of_rank = np.flatnonzero(reduces & (acts.rank == rank))
    return len(np.unique(np.searchsorted(begins, acts.start[of_rank], "right")))
