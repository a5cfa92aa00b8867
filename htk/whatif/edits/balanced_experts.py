"""Experts get equally many tokens: what runs between dispatch and combine takes the mean."""

import numpy as np

from htk.base.columns.order import order_by
from htk.base.columns.types import Ints
from htk.base.errors import UsageError
from htk.whatif.edit_arguments import switched_on
from htk.whatif.experts import fullest_over_mean, mark_exchanges
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import rescale_transfers

NAME = "balanced_experts"
HELP = "All ranks' experts get equally many tokens: on. A bound."


def apply(model: StepModel, value: str) -> StepModel:
    switched_on(value, NAME)
    ranks = model.graph.ranks
    if len(ranks) < 2:
        raise UsageError(f"{NAME} needs several ranks; the trace holds {len(ranks)}")
    parts = [_list_expert_compute(model, rank) for rank in ranks]
    counts = {len(p) for p in parts}
    if counts == {0} or len(counts) > 1:
        raise UsageError(f"{NAME}: no pairs of all-to-alls, dispatch and combine, on every rank")
    length = model.lengths().astype(np.float64)
    new = length.copy()
    chosen = np.zeros(len(length), bool)
    for layer in zip(*parts, strict=True):  # some tens
        totals = [float(length[segment].sum()) for segment in layer]
        mean = float(np.mean(totals))
        for segment, total in zip(layer, totals, strict=True):
            new[segment] = length[segment] * (mean / total if total else 1.0)
            chosen[segment] = True
    sent = mark_exchanges(model)
    changed = model.with_lengths(chosen, new)
    balanced = rescale_transfers(changed, sent, 1 / fullest_over_mean(model))
    return (
        changed.with_lengths(sent, balanced)
        .with_uncertainty("compute", 0.1)
        .with_uncertainty("communication", 0.2)
        .with_assumption(
            "what each rank computes between the all-to-alls of a layer takes the mean over ranks; "
            "all-to-alls take as long as their mean member sends, where sizes were recorded"
        )
    )


def _list_expert_compute(model: StepModel, rank: int) -> list[Ints]:
    """Compute between every other all-to-all of a rank and the one after it."""
    acts = model.graph.activities
    exchanges = np.flatnonzero(model.is_collective("all_to_all") & (acts.rank == rank))
    exchanges = exchanges[order_by(acts.start[exchanges])]
    lane = compute_lane(model, rank)
    lane = lane[acts.kind[lane] == 0]
    return [
        lane[(acts.start[lane] >= acts.end[a]) & (acts.start[lane] < acts.end[b])]
        for a, b in zip(exchanges[::2].tolist(), exchanges[1::2].tolist(), strict=False)
    ]
