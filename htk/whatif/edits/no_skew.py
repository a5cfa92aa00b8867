"""All ranks arrive at collectives together."""

from dataclasses import replace

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.errors import UsageError
from htk.whatif.contention import compute_contention, share_beside_transfers
from htk.whatif.same_calls import same_calls
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import part_collectives

NAME = "no_skew"
HELP = "All ranks arrive at collectives together: on."


def apply(model: StepModel, value: str) -> StepModel:
    if value != "on":
        raise UsageError(f"{NAME} {value!r}: it can only be on")
    alone = model.is_comm & model.facts.single
    changed = _shorten_lone(model, alone) if alone.any() else model
    changed = even_compute(changed)
    # The transfer hangs on the last arrival: without it each part starts when its rank does.
    joined = model.is_comm & ~model.facts.single
    return (
        replace(part_collectives(changed, joined), arrival_scale=0.0)
        .with_uncertainty("compute", 0.3)
        .with_assumption(
            "a kernel takes on each rank what it takes on average over ranks, and a rank's "
            "collective lasts as long as its transfer; with one rank recorded that is at least the "
            "10th percentile of equal ones"
        )
    )


def even_compute(model: StepModel) -> StepModel:
    """Return the model in which the same call computes as long on every rank: the mean of them."""
    ranks = len(model.graph.ranks)
    if ranks < 2:
        return model
    alike = same_calls(model)
    # Compute that has communication beside it while others wait is slower for it.
    slower = 1 + compute_contention(model) * share_beside_transfers(model, model.graph.time)
    alone = model.lengths() / slower
    mean = np.bincount(alike.group_ids, alone, len(alike)) / alike.count
    everywhere = model.is_compute & (alike.count == ranks)[alike.group_ids]
    return model.with_lengths(everywhere, mean[alike.group_ids] * slower)


def _shorten_lone(model: StepModel, alone: np.ndarray) -> StepModel:
    """Collectives whose peers are unknown last no longer than the fastest tenth of their like."""
    kind = model.facts.collective.codes
    alike = Groups.by_keys([kind, model.facts.in_bytes, model.facts.group_size])
    length = model.lengths()
    least = np.zeros(len(length))
    for group in np.unique(alike.group_ids[alone]).tolist():  # kinds of collectives
        same_group = alone & (alike.group_ids == group)
        least[same_group] = np.quantile(length[same_group], 0.1)
    return model.with_lengths(alone, np.minimum(length, least))
