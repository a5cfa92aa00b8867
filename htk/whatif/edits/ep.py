"""Experts spread over more or fewer ranks: all-to-alls send (E-1)/E of their tokens elsewhere."""

from dataclasses import replace

import numpy as np

from htk.core.humanize import pluralize
from htk.errors import UsageError
from htk.whatif.edit_arguments import positive_integer
from htk.whatif.network_tiers import network
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node, rescaled

NAME = "ep"
HELP = "Ranks that experts are spread over: 8. Low confidence."


def apply(model: StepModel, value: str) -> StepModel:
    ranks = positive_integer(value, NAME)
    exchanges = model.is_collective("all_to_all") & (model.facts.group_size > 1)
    if not exchanges.any():
        raise UsageError(f"{NAME}: the step holds no all-to-alls; experts of one rank are not seen")
    now, node = int(model.facts.group_size[exchanges].max()), gpus_of_a_node(model)
    length = model.lengths().astype(np.float64)
    if ranks not in (1, now):
        old = (now - 1) / now * network(model).pace(now, min(now, node))
        new = (ranks - 1) / ranks * network(model).pace(ranks, min(ranks, node))
        length = rescaled(model, exchanges, new / old)
    changed = model.with_lengths(exchanges, length if ranks > 1 else np.zeros(len(length)))
    return (
        replace(changed, low_confidence=True)
        .with_uncertainty("communication", 0.4)
        .with_assumption(
            f"experts spread over {pluralize(ranks, 'rank')} in place of {now}: "
            "4 k (E-1)/E · tokens "
            "· hidden elements sent for a layer and micro-batch; each rank computes as many tokens "
            "as now, and is as busy as now"
        )
    )
