"""Experts spread over more or fewer ranks: all-to-alls send (E-1)/E of their tokens elsewhere."""

from dataclasses import replace

import numpy as np

from htk.base.core.humanize import pluralize_count
from htk.base.errors import UsageError
from htk.whatif.edit_arguments import positive_integer
from htk.whatif.experts import mark_exchanges, spread_gradients
from htk.whatif.group_kinds import described_degree
from htk.whatif.network_tiers import read_network
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node, rescale_transfers

NAME = "ep"
HELP = "Ranks that experts are spread over: 8. Low confidence."


def apply(model: StepModel, value: str) -> StepModel:
    ranks = positive_integer(value, NAME)
    if ranks == described_degree(model, "expert"):
        return model.with_assumption(
            f"experts are spread over {pluralize_count(ranks, 'rank')} already"
        )
    chosen = mark_exchanges(model)
    if not chosen.any() and ranks == 1:
        return model.with_assumption("no experts are spread over ranks")
    if not chosen.any():
        raise UsageError(f"{NAME}: the step holds no all-to-alls; experts of one rank are not seen")
    now = int(model.facts.group_size[chosen].max())
    node = gpus_of_a_node(model)
    if ranks == now:
        return model.with_assumption(
            f"experts are spread over {pluralize_count(ranks, 'rank')} already"
        )
    length = np.zeros(len(chosen))
    if ranks > 1:
        net = read_network(model)
        old = (now - 1) / now * net.exchange_pace(now, min(now, node))
        new = (ranks - 1) / ranks * net.exchange_pace(ranks, min(ranks, node))
        length = rescale_transfers(model, chosen, new / old)
    changed, words = spread_gradients(model.with_lengths(chosen, length), now, ranks)
    return (
        replace(changed, low_confidence=True)
        .with_uncertainty("communication", 0.4)
        .with_assumption(
            f"experts spread over {pluralize_count(ranks, 'rank')} in place of {now}: "
            "4 k (E-1)/E · tokens "
            "· hidden elements sent for a layer and micro-batch; each rank computes as many tokens "
            "as now, and is as busy as now",
            *words,
        )
    )
