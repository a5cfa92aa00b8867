"""One rank, or all, as fast as ranks usually are: kernel by kernel.

Usual is the median over ranks, of an even number the lower of the middle two: of two ranks the pace
of the faster one, not the middle between it and the slow one.
"""

import numpy as np

from htk.base.errors import UsageError
from htk.whatif.contention import compute_contention, share_beside_transfers
from htk.whatif.same_calls import same_calls
from htk.whatif.step_model import StepModel

NAME = "fix_rank"
HELP = "This rank (or all) computes as fast as the median rank: 7, all."


def apply(model: StepModel, value: str) -> StepModel:
    acts = model.graph.activities
    ranks = model.graph.ranks
    if len(ranks) < 2:
        raise UsageError(f"{NAME} needs several ranks; the trace holds {len(ranks)}")
    if value != "all" and (not value.isdigit() or int(value) not in ranks):
        raise UsageError(f"{NAME} {value!r}: one of {ranks} or all")
    chosen = model.is_compute
    if value != "all":
        chosen &= acts.rank == int(value)
    alike = same_calls(model)
    # While the others wait for a slow rank their compute has communication beside it.
    slower = 1 + compute_contention(model) * share_beside_transfers(model, model.graph.time)
    alone = model.lengths() / slower
    median = alike.lower_medians(alone)[alike.group_ids]
    return (
        model.with_lengths(chosen, np.minimum(alone, median) * slower)
        .with_uncertainty("compute", 0.05)
        .with_assumption(
            "each of its kernels takes no longer than the median over ranks of the same call, "
            "without what communication beside it costs"
        )
    )
