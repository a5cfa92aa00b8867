"""Times that no step can take after an edit, however little is known of it.

No GPU computes faster than it can, what makes nothing longer makes no step longer, and what makes
nothing shorter makes none shorter. Intervals end there.
"""

import math
from collections.abc import Sequence

import numpy as np

from htk.whatif.step_model import StepModel

_NEVER_LONGER = ("no_skew", "remove_syncs", "no_data_wait", "fix_rank", "balanced_experts")
_RUN_TO_RUN = 0.01  # how far steps of one job differ
_NEXT_TO_NOTHING = 0.01  # of what an edit changes: contention settles a little otherwise


def step_limits(
    start: StepModel,
    edited: StepModel,
    asked: Sequence[tuple[str, str]],
    steps: tuple[int, int],
    mfu_pct: float | None,
) -> tuple[float, float]:
    """Return the least and the most ns that the step can take.

    `steps`: measured, and predicted; `mfu_pct`: of the predicted one.
    """
    measured, predicted = steps
    least = predicted * (mfu_pct or 0.0) / 100
    most = math.inf
    longer, shorter = _changes(start, edited)
    if longer <= _NEXT_TO_NOTHING * shorter or all(
        name in _NEVER_LONGER or (name, value) == ("overlap", "perfect") for name, value in asked
    ):
        most = measured * (1 + _RUN_TO_RUN)
    elif shorter <= _NEXT_TO_NOTHING * longer:
        least = max(least, measured * (1 - _RUN_TO_RUN))
    return least, most


def _changes(start: StepModel, edited: StepModel) -> tuple[float, float]:
    """Return by how many ns activities and waits became longer, and shorter; NaN: the edited step
    has others."""
    if edited.graph is not start.graph:
        return math.nan, math.nan
    more = np.append(edited.weight - start.weight, edited.wrap_weight - start.wrap_weight)
    return float(np.maximum(more, 0).sum()), float(np.maximum(-more, 0).sum())
