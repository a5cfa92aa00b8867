"""No call waits for the GPU.

Steps then overlap where the host runs ahead: what the next one gathers waits for the optimizer of
this one, and a communicator takes its collectives in turn.
"""

import numpy as np

from htk.base.columns.types import NONE, Mask
from htk.quantities.graph.nodes import FREES
from htk.whatif.edit_arguments import switched_on
from htk.whatif.fsdp_units import compute_lane
from htk.whatif.micro_batches import in_order
from htk.whatif.step_model import StepModel
from htk.whatif.synthetic_ops import link_to_step_before

NAME = "remove_syncs"
HELP = "No synchronising call or blocking copy in the step: on."

_NEXT_STEP = 0.01  # of the step, one sigma: how steps overlap is not in the recording


def apply(model: StepModel, value: str) -> StepModel:
    switched_on(value, NAME)
    blocked = model.graph.edges("sync") & ~into_frees(model)
    if not blocked.any():
        return model
    free = model.without(blocked)
    if len(model.graph.wrap_src):
        free = in_order(_wait_for_optimizer(free))
    return free.with_uncertainty("structure", _NEXT_STEP).with_assumption(
        "calls that waited for the GPU return at once; parameters are gathered once the optimizer "
        "of the step before is done"
    )


def into_frees(model: StepModel) -> Mask:
    """Return the edges into the ends of calls that give memory back, which wait for the GPU too."""
    graph = model.graph
    frees = np.zeros(len(graph.time), bool)
    frees[graph.call_end[graph.calls.named(FREES)[: len(graph.call_end)]]] = True
    return np.asarray(frees[graph.dst])


def _wait_for_optimizer(model: StepModel) -> StepModel:
    """Return the model in which gathers, and copies for them, wait for the last optimizer."""
    acts = model.graph.activities
    optimizer = model.facts.family.isin("optimizer")
    gathers = model.is_collective("all_gather")
    lasts = []
    firsts = []
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        updates = lane[optimizer[lane]]
        last = updates[-1:] if len(updates) else lane[-1:]
        for first in _find_first_gathers(model, gathers & (acts.rank == rank)) if len(last) else ():
            lasts.append(int(last[0]))
            firsts.append(first)
    return link_to_step_before(model, np.array(lasts, np.int64), np.array(firsts, np.int64))


def _find_first_gathers(model: StepModel, gathers: Mask) -> list[int]:
    """Return the first of these gathers, and the first copy that one of them waits for."""
    graph = model.graph
    acts = model.graph.activities
    rows = np.flatnonzero(gathers)
    if not len(rows):
        return []
    _, feeding = graph.events_into(graph.start[rows])
    feeders = np.unique(graph.ended_at[feeding])
    lanes = np.unique(acts.lane[compute_lane(model, int(acts.rank[rows[0]]))])
    copies = feeders[(feeders != NONE) & ~np.isin(acts.lane[feeders], lanes)]
    return [int(each[np.argmin(acts.start[each])]) for each in (rows, copies) if len(each)]
